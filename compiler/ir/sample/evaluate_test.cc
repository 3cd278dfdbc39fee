#include <cmath>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Values = std::vector<double>;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(EvaluateTest, IdentityIsBitForBitInEveryDType) {
  for (const DTypeRow& row : kDTypes) {
    Graph g;
    GraphBuilder b(&g);
    const NodeId x = b.Input("x", {row.dtype, {32}}).value();
    b.Output("y", x);
    b.Output("again", x);
    Tensor t = Tensor::Zeros(row.dtype, {32});
    for (size_t i = 0; i < t.bytes.size(); ++i) {
      t.bytes[i] = static_cast<char>(row.kind == DTypeKind::kBool ? i % 2 : i * 37 + 1);
    }
    const std::vector<Tensor> y = Evaluate(g, {t}).value();
    EXPECT_EQ(y, (std::vector<Tensor>{t, t})) << row.name;
  }
}

TEST(EvaluateTest, ExtremesPassThroughMovement) {
  for (const Tensor& x :
       {Tensor::Of<int64_t>(DType::kI64, {1}, {int64_t{1} << 40}),
        Of(DType::kF64, {1}, {1.0000000000000002}), Tensor::Of<uint16_t>(DType::kF16, {1}, {1}),
        Tensor::Of<uint16_t>(DType::kBF16, {1}, {1}), Tensor::Of<uint32_t>(DType::kF32, {1}, {1}),
        Tensor::Of<uint32_t>(DType::kF32, {1}, {0x7fa00001})}) {
    Graph g;
    GraphBuilder b(&g);
    const NodeId in = b.Input("x", {x.dtype, {1}}).value();
    const IndexMap expand = {{3}, {0}};
    b.Output("y", b.Add(Op::kIndexMap, {in}, {{"map", expand}}).value());
    EXPECT_EQ(Evaluate(g, {x}).value()[0].bytes, x.bytes + x.bytes + x.bytes);
  }
}

// y = x @ w + c with a dim, a parameter, a constant, and a node that no output needs.
Graph Affine() {
  Graph g;
  g.dims = {{"b", 1, 8}};
  GraphBuilder b(&g);
  const Expr rows = Expr::Symbol("b");
  const NodeId w = b.Parameter("w", {DType::kF32, {2, 3}}).value();
  const NodeId x = b.Input("x", {DType::kF32, {rows, 2}}).value();
  const NodeId c = b.Constant(Of(DType::kF32, {3}, {10, 20, 30})).value();
  EXPECT_TRUE(b.Add(Op::kExp, {x}).ok());
  const NodeId product = b.Add(Op::kContract, {x, w}, {{"spec", std::string("mk,kn->mn")}}).value();
  const IndexMap map = {{rows, 3}, {Expr::Axis(1)}};
  const NodeId bias = b.Add(Op::kIndexMap, {c}, {{"map", map}}).value();
  const NodeId sum = b.Add(Op::kAdd, {product, bias}, {}, "sum").value();
  b.Output("y", sum);
  b.Output("c", c);
  b.Output("y2", sum);
  return g;
}

const Tensor kW = Of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});

TEST(EvaluateTest, InputsThenParametersAndAnySizeOfADim) {
  const Graph g = Affine();
  for (int64_t rows : {1, 2, 7}) {
    const std::vector<Tensor> y =
        Evaluate(g, {Of(DType::kF32, {rows, 2}, Values(2 * rows, 1)), kW}).value();
    ASSERT_EQ(y.size(), 3u);
    EXPECT_EQ(y[0].shape, (std::vector<int64_t>{rows, 3}));
    EXPECT_EQ(ValuesOf(y[0])[3 * rows - 1], 39);
    EXPECT_EQ(ValuesOf(y[1]), (Values{10, 20, 30}));
    EXPECT_EQ(y[2], y[0]);
  }
}

TEST(EvaluateTest, EvaluateAllReturnsEveryNode) {
  const Graph g = Affine();
  const std::vector<Tensor> values = EvaluateAll(g, {Of(DType::kF32, {1, 2}, {0, 1}), kW}).value();
  ASSERT_EQ(values.size(), g.nodes.size());
  EXPECT_EQ(values[0], kW);
  EXPECT_EQ(ValuesOf(values[3])[0], 1);  // exp(0), though no output needs it
  EXPECT_EQ(ValuesOf(values.back()), (Values{14, 25, 36}));
}

TEST(EvaluateTest, RefusesTensorsThatDoNotFit) {
  const Graph g = Affine();
  const auto refused = [&](const std::vector<Tensor>& inputs) {
    const absl::StatusOr<std::vector<Tensor>> y = Evaluate(g, inputs);
    EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument);
    return MessageOf(y.status());
  };
  const Tensor x = Of(DType::kF32, {1, 2}, {0, 1});
  EXPECT_NE(refused({x}).find("takes 2 tensors"), std::string::npos);
  const std::string dtype = refused({Of(DType::kF64, {1, 2}, {0, 1}), kW});
  for (const char* part : {"x", "expects f32, got f64", "Cast it to f32"}) {
    EXPECT_NE(dtype.find(part), std::string::npos) << dtype;
  }
  EXPECT_NE(refused({Of(DType::kF32, {1, 3}, {0, 1, 2}), kW}).find("x"), std::string::npos);
  EXPECT_NE(refused({Of(DType::kF32, {9, 2}, Values(18, 0)), kW}).find("b"), std::string::npos);
  EXPECT_NE(refused({x, Of(DType::kF32, {2, 2}, {1, 2, 3, 4})}).find("w"), std::string::npos);
  Tensor cut = x;
  cut.bytes.resize(7);
  EXPECT_NE(refused({cut, kW}).find("has 7 bytes, its shape needs 8"), std::string::npos);
}

TEST(EvaluateTest, AnInputWithAValueTakesNoOtherContents) {
  Graph g;
  GraphBuilder b(&g);
  const Tensor value = Of(DType::kF32, {2}, {0.0, 1});
  const NodeId x = b.Input("axes", {DType::kF32, {2}}, value).value();
  b.Output("y", b.Add(Op::kExp, {x}).value());
  EXPECT_TRUE(Evaluate(g, {value}).ok());
  EXPECT_TRUE(EvaluateAll(g, {value}).ok());
  // Compared bit for bit: the other zero is a different value.
  const absl::StatusOr<std::vector<Tensor>> y = Evaluate(g, {Of(DType::kF32, {2}, {-0.0, 1})});
  EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(y.status()),
            "\"axes\" (Input): is [-0.0, 1.0]; its attribute value makes it [0.0, 1.0]");
  EXPECT_EQ(b.Input("z", {DType::kI64, {}}, value).status().code(),
            absl::StatusCode::kInvalidArgument);
  // The message names the first of many elements that differs.
  Values many(100, 7);
  const NodeId long_one =
      b.Input("long", {DType::kI64, {100}}, Of(DType::kI64, {100}, many)).value();
  b.Output("l", long_one);
  Values other = many;
  other[73] = -5;
  EXPECT_NE(MessageOf(Evaluate(g, {value, Of(DType::kI64, {100}, other)}).status())
                .find("\"long\" (Input): element 73 is -5; its attribute value makes it 7"),
            std::string::npos);
}

TEST(EvaluateTest, AnErrorOfAnOpNamesItsNode) {
  Graph g;
  GraphBuilder b(&g);
  const NodeId x = b.Input("x", {DType::kF32, {2}}).value();
  const NodeId i = b.Input("i", {DType::kI64, {1}}).value();
  b.Output("y", b.Add(Op::kGather, {x, i}, {{"axis", int64_t{0}}}, "pick").value());
  const absl::StatusOr<std::vector<Tensor>> y =
      Evaluate(g, {Of(DType::kF32, {2}, {1, 2}), Of(DType::kI64, {1}, {2})});
  EXPECT_EQ(y.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(MessageOf(y.status()).find("pick"), std::string::npos) << y.status();
  EXPECT_NE(MessageOf(y.status()).find("index 2 at position [0]"), std::string::npos);
}

// A diamond whose values have different last uses: freed memory must not be read again.
TEST(EvaluateTest, ValuesLiveUntilTheirLastUse) {
  Graph g;
  GraphBuilder b(&g);
  const NodeId x = b.Input("x", {DType::kF64, {3}}).value();
  const NodeId doubled = b.Add(Op::kAdd, {x, x}).value();
  const NodeId squared = b.Add(Op::kMul, {doubled, doubled}).value();
  const NodeId sum = b.Add(Op::kAdd, {squared, doubled}).value();
  b.Output("tap", squared);
  b.Output("y", b.Add(Op::kMul, {sum, x}).value());
  const std::vector<Tensor> y = Evaluate(g, {Of(DType::kF64, {3}, {1, 2, 3})}).value();
  EXPECT_EQ(ValuesOf(y[0]), (Values{4, 16, 36}));
  EXPECT_EQ(ValuesOf(y[1]), (Values{6, 40, 126}));
}

TEST(EvaluateTest, RankZeroAndEmptyTensors) {
  Graph g;
  g.dims = {{"n", 0, 4}};
  GraphBuilder b(&g);
  const NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  const NodeId s = b.Add(Op::kSumReduce, {x}, {{"axes", std::vector<int64_t>{0}}}).value();
  b.Output("sum", s);
  b.Output("max", b.Add(Op::kMaxReduce, {x}, {{"axes", std::vector<int64_t>{0}}}).value());
  b.Output("exp", b.Add(Op::kExp, {x}).value());
  const std::vector<Tensor> y = Evaluate(g, {Of(DType::kF32, {0}, {})}).value();
  EXPECT_EQ(ValuesOf(y[0]), (Values{0}));
  EXPECT_TRUE(std::isinf(ValuesOf(y[1])[0]));
  EXPECT_EQ(y[2].elements(), 0);
}

}  // namespace
}  // namespace athanor
