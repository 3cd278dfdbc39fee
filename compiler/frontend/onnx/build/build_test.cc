// Tests of OpBuilder's nodes, literals and sizes.
#include "compiler/frontend/onnx/build/build.h"

#include <limits>
#include <memory>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

Expr S(const char* name) { return Expr::Symbol(name); }

TEST(BuildTest, ScalarsAreExactOrFail) {
  Built t;
  EXPECT_EQ(ValuesOf(t.Run(t.b().Scalar(Elem::kFloat16, 0.5))), std::vector<double>{0.5});
  EXPECT_EQ(ValuesOf(t.Run(t.b().Scalar(Elem::kInt8, -128))), std::vector<double>{-128});
  EXPECT_EQ(LoadScalar(t.Run(t.b().Scalar(Elem::kInt64, 0x1p40)), 0).i, int64_t{1} << 40);
  EXPECT_EQ(ValuesOf(t.Run(t.b().Scalar(Elem::kDouble, 1 + 0x1p-52))),
            std::vector<double>{1 + 0x1p-52});
  EXPECT_TRUE(std::isnan(
      ValuesOf(t.Run(t.b().Scalar(Elem::kFloat, std::numeric_limits<double>::quiet_NaN())))[0]));
  const std::vector<std::pair<Elem, double>> wrong = {
      {Elem::kFloat, 0.1},    {Elem::kFloat16, 1e6},   {Elem::kInt8, 128}, {Elem::kUInt8, -1},
      {Elem::kInt32, 0.5},    {Elem::kInt4, 8},        {Elem::kUInt2, 4},  {Elem::kBool, 2},
      {Elem::kInt64, 0x1p63}, {Elem::kFloat8E4M3FN, 1}};
  for (const auto& [elem, value] : wrong) {
    Built bad;
    bad.b().Scalar(elem, value);
    EXPECT_EQ(bad.b().status().code(), absl::StatusCode::kInvalidArgument)
        << ElemName(elem) << " " << value;
  }
}

TEST(BuildTest, IntegersToTheLastBit) {
  for (int64_t value : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                        (int64_t{1} << 53) + 1}) {
    Built t;
    const Value v = t.b().Integer(Elem::kInt64, value);
    EXPECT_EQ(LoadScalar(t.Run(v), 0).i, value);
    ASSERT_NE(v.known, nullptr);
    EXPECT_EQ(v.known->sizes, std::vector<Expr>{value});
  }
  Built t;
  t.b().Integer(Elem::kUInt64, -1);
  EXPECT_FALSE(t.b().status().ok());
}

TEST(BuildTest, LiteralsAreKnown) {
  Built t;
  const Tensor ints = Of(DType::kI32, {2, 2}, {1, 2, 3, -4});
  const Value v = t.b().Literal(Elem::kInt32, ints);
  EXPECT_EQ(t.Run(v), ints);
  EXPECT_EQ(v.known->literal, ints);
  EXPECT_EQ(v.known->sizes, (std::vector<Expr>{1, 2, 3, -4}));
  // A number outside int64 is not an expression.
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  const Value u = t.b().Literal(Elem::kUInt64, Tensor::Of<uint64_t>(DType::kU64, {1}, {huge}));
  EXPECT_TRUE(u.known->sizes.empty());
  EXPECT_EQ(LoadScalar(t.Run(u), 0).u, huge);
  t.b().Literal(Elem::kFloat, ints);
  EXPECT_EQ(t.b().status().code(), absl::StatusCode::kInternal);
}

TEST(BuildTest, TheFirstFailureStaysAndTheRestDoesNothing) {
  Built t;
  t.b().Fail(absl::NotFoundError("first"));
  t.b().Fail(absl::InternalError("second"));
  const size_t nodes = t.graph().nodes.size();
  const Value x = t.b().Scalar(Elem::kFloat, 1);
  EXPECT_EQ(Add(t.b(), x, Cast(t.b(), x, Elem::kInt4)).shape, FailedValue().shape);
  EXPECT_EQ(Size(t.b(), Elem::kFloat, 3, {2}).shape, FailedValue().shape);
  EXPECT_EQ(t.graph().nodes.size(), nodes);
  EXPECT_EQ(t.b().status(), absl::NotFoundError("first"));
}

TEST(BuildTest, SplatIsOneElement) {
  Built t({{"n", 0, 9}});
  const Value v = Splat(t.b(), t.b().Scalar(Elem::kFloat, 2.5), {S("n"), 3});
  EXPECT_EQ(v.shape, (Shape{S("n"), 3}));
  t.Input(Elem::kBool, {S("n")});
  EXPECT_EQ(ValuesOf(t.Run(v, {Of(DType::kBool, {2}, {0, 0})})), std::vector<double>(6, 2.5));
  EXPECT_EQ(t.Run(v, {Of(DType::kBool, {0}, {})}).elements(), 0);
}

// A constant of many equal elements takes the memory of one.
TEST(BuildTest, EqualElementsAreNotMaterialised) {
  Built t;
  Known known;
  known.shape = {200};
  known.literal = Of(DType::kF32, {200}, std::vector<double>(200, 7));
  Value v;
  v.shape = {200};
  v.known = std::make_shared<const Known>(known);
  EXPECT_EQ(t.Run(v), *known.literal);
  for (const Node& node : t.graph().nodes) {
    if (node.op == Op::kConstant) EXPECT_LE(GetAttr<Tensor>(node.attrs, "value").elements(), 1);
  }
}

TEST(BuildTest, SizesAsData) {
  const Expr a = S("a"), c = S("c");
  const std::vector<Expr> sizes = {a,     3,           a + 2,         a * c, FloorDiv(c, 2) - a,
                                   0 - c, MaxOf(a, c), Mod(c, 4) + 1, 0,     c - 5000};
  Built t({{"a", 0, 100}, {"c", 1, 1000}});
  t.Input(Elem::kBool, {a, c});
  for (Elem elem : {Elem::kInt64, Elem::kInt32, Elem::kFloat, Elem::kDouble}) {
    const Value v = t.b().Sizes(elem, sizes, {2, 5});
    EXPECT_EQ(v.node, kNoNode);  // no node is made before it is needed
    for (auto [x, y] : {std::pair{0, 1}, {7, 11}, {3, 6}}) {
      const Expr::Env env = {{"a", x}, {"c", y}};
      std::vector<double> want;
      for (const Expr& e : sizes) want.push_back(static_cast<double>(e.Evaluate(env).value()));
      const Tensor got = t.Run(v, {Tensor::Zeros(DType::kBool, {x, y})});
      EXPECT_EQ(got.shape, (std::vector<int64_t>{2, 5}));
      EXPECT_EQ(ValuesOf(got), want) << ElemName(elem) << " a=" << x << " c=" << y;
    }
  }
}

TEST(BuildTest, SizesOfNumbersAreLiterals) {
  Built t;
  const Value v = t.b().Sizes(Elem::kInt64, {2, 3}, {2});
  EXPECT_TRUE(v.known->concrete());
  EXPECT_EQ(ValuesOf(t.Run(v)), (std::vector<double>{2, 3}));
  const Value empty = t.b().Sizes(Elem::kInt64, {}, {0});
  EXPECT_EQ(t.Run(empty).elements(), 0);
  t.b().Sizes(Elem::kInt32, {int64_t{1} << 40}, {1});
  EXPECT_EQ(t.b().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BuildTest, LiteralsTogetherAreBounded) {
  Built t;
  for (int i = 0; i < 2; ++i) t.b().Literal(Elem::kUInt8, Tensor::Zeros(DType::kU8, {60 << 20}));
  EXPECT_TRUE(t.b().status().ok());
  t.b().Literal(Elem::kUInt8, Tensor::Zeros(DType::kU8, {60 << 20}));
  EXPECT_EQ(t.b().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(BuildTest, SizesOverADivisor) {
  Built t({{"a", 1, 100}});
  t.Input(Elem::kBool, {S("a")});
  Known known;
  known.sizes = {S("a")};
  known.divisor = 3;
  Value v;
  v.known = std::make_shared<const Known>(known);
  EXPECT_EQ(ValuesOf(t.Run(v, {Tensor::Zeros(DType::kBool, {10})})),
            std::vector<double>{static_cast<double>(10.0F / 3.0F)});
}

TEST(BuildTest, OneSizeInEveryElement) {
  Built t({{"a", 0, 1 << 30}});
  t.Input(Elem::kBool, {S("a")});
  const Value v = Size(t.b(), Elem::kFloat16, S("a") * 2 - 1, {2, 2});
  EXPECT_EQ(ValuesOf(t.Run(v, {Tensor::Zeros(DType::kBool, {4})})), std::vector<double>(4, 7));
  const Value narrow = Size(t.b(), Elem::kInt4, S("a"), {});
  EXPECT_EQ(ValuesOf(t.Run(narrow, {Tensor::Zeros(DType::kBool, {5})})), std::vector<double>{5});
}

TEST(BuildTest, SourcesFlow) {
  Built t;
  Value x = t.Input(Elem::kFloat, {2}), y = t.Input(Elem::kFloat, {2});
  x.sources = {0, 2};
  y.sources = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(Add(t.b(), x, y).sources, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Cast(t.b(), x, Elem::kInt4).sources, (std::vector<int>{0, 2}));
}

// Bounded however many nodes fail, since a file may have thousands.
TEST(BuildTest, HintsOfAllFailuresTogetherAreBounded) {
  Graph graph;
  graph.dims = {{"height", 1, 512}, {"width", 1, 512}};
  OpBuilder b(&graph, GraphLimits{});
  const Expr h = Expr::Symbol("height"), w = Expr::Symbol("width");
  for (int i = 1; i <= 5'000; ++i) {
    EXPECT_FALSE(BroadcastShape(b, {{h * w + i, 4}, {h + w, 4}}).ok());
  }
  EXPECT_EQ(b.hints().tries(), MultiplesHints::kMostTries);
}

}  // namespace
}  // namespace athanor::onnx
