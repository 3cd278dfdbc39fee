#include "compiler/frontend/onnx/known/sizes.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/importer/context.h"
#include "compiler/frontend/onnx/testing/testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

const Expr b = Expr::Symbol("b");  // 1 to 64
const Expr s = Expr::Symbol("s");  // 0 to 512

Value Sizes(std::vector<Expr> sizes, Elem elem = Elem::kInt64) {
  Known known;
  known.shape = {static_cast<int64_t>(sizes.size())};
  known.sizes = std::move(sizes);
  Value value;
  value.elem = elem;
  value.shape = {known.shape[0]};
  value.known = std::make_shared<const Known>(std::move(known));
  return value;
}

Value Literal(Tensor tensor) {
  Value value;
  value.elem = ElemOf(tensor.dtype);
  value.shape.assign(tensor.shape.begin(), tensor.shape.end());
  value.known = std::make_shared<const Known>(KnownOf(std::move(tensor)));
  return value;
}

Value Ints(std::vector<int64_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Literal(Tensor::Of<int64_t>(DType::kI64, {n}, values));
}
Value Int(int64_t value) { return Literal(Tensor::Of<int64_t>(DType::kI64, {}, {value})); }
Value Floats(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Literal(Tensor::Of<float>(DType::kF32, {n}, values));
}

// Returns the elements of result `o` as text; "-" if they are not known.
std::string Compute(const std::string& op, int64_t opset, const std::vector<Value>& operands,
                    const std::map<std::string, TestAttr>& attrs = {}, int results = 1, int o = 0) {
  TestGraph graph;
  std::vector<std::string> inputs, outputs;
  std::vector<const Value*> pointers;
  for (const Value& operand : operands) {
    inputs.push_back("x" + std::to_string(inputs.size()));
    pointers.push_back(&operand);
  }
  for (int i = 0; i < results; ++i) outputs.push_back("y" + std::to_string(i));
  graph.Node(op, inputs, outputs, attrs);
  const SchemaRow* schema = FindSchema("", op, opset);
  if (schema == nullptr) return "no schema";
  const Scope scope;
  const Frame frame;
  const GraphInfo info;
  const NodeContext context(nullptr, graph.proto.node(0), *schema, pointers, scope, frame, info);
  Bounds bounds;
  bounds.Set("b", 1, 64);
  bounds.Set("s", 0, 512);
  const std::optional<std::vector<Value>> values = ComputeKnown(context, bounds);
  if (!values) return "-";
  const Value& value = (*values)[o];
  std::string text(value.elem == Elem::kInt64 ? "" : ElemName(value.elem));
  text += ShapeToString(value.shape) + ":";
  const Known& known = *value.known;
  for (const Expr& size : known.sizes) text += " " + size.ToString();
  if (known.divisor != 1) text += " /" + std::to_string(known.divisor);
  if (known.sizes.empty() && known.literal) {
    for (int64_t i = 0; i < known.literal->elements(); ++i) {
      text += " " + std::to_string(LoadScalar(*known.literal, i).f);
    }
  }
  return text;
}

Value OfShape(Shape shape) {
  Value value;
  value.shape = std::move(shape);
  return value;
}

TEST(SizesTest, ShapesOfWhatIsNotKnown) {
  EXPECT_EQ(Compute("Shape", 13, {OfShape({b, s, 64})}), "[3]: b s 64");
  EXPECT_EQ(Compute("Shape", 15, {OfShape({b, s, 64})}, {{"start", int64_t{-2}}}), "[2]: s 64");
  EXPECT_EQ(Compute("Shape", 15, {OfShape({b, s, 64})}, {{"end", int64_t{-1}}}), "[2]: b s");
  EXPECT_EQ(Compute("Shape", 15, {OfShape({b})}, {{"start", int64_t{5}}}), "[0]:");
  EXPECT_EQ(Compute("Shape", 13, {OfShape({})}), "[0]:");
  EXPECT_EQ(Compute("Size", 13, {OfShape({b, s, 3})}), "[]: 3*b*s");
}

TEST(SizesTest, ArithmeticIsOfExpressions) {
  EXPECT_EQ(Compute("Add", 14, {Sizes({b, s}), Ints({1, 2})}), "[2]: b + 1 s + 2");
  EXPECT_EQ(Compute("Mul", 14, {Sizes({b}), Sizes({s})}), "[1]: b*s");
  EXPECT_EQ(Compute("Sub", 14, {Sizes({b}), Sizes({b})}), "[1]: 0");
  EXPECT_EQ(Compute("Neg", 13, {Sizes({b})}), "[1]: -b");
  EXPECT_EQ(Compute("Max", 13, {Sizes({b}), Ints({0}), Ints({-5})}), "[1]: b");
  EXPECT_EQ(Compute("Min", 13, {Sizes({b}), Ints({8})}), "[1]: min(b, 8)");
  EXPECT_EQ(Compute("Abs", 13, {Sizes({b})}), "[1]: b");
  EXPECT_EQ(Compute("Abs", 13, {Sizes({b - s})}), "-");
}

TEST(SizesTest, DivisionNeedsItsSigns) {
  EXPECT_EQ(Compute("Div", 14, {Sizes({s}), Ints({2})}), "[1]: floordiv(s, 2)");
  EXPECT_EQ(Compute("Div", 14, {Sizes({b - s}), Ints({2})}), "-");
  EXPECT_EQ(Compute("Div", 14, {Sizes({b}), Sizes({s})}), "-");  // s may be 0
  EXPECT_EQ(Compute("Div", 14, {Ints({-7, 7, -7}), Ints({2, -2, -2})}), "[3]: -3 -3 3");
  EXPECT_EQ(Compute("Div", 14, {Ints({1}), Ints({0})}), "-");
  EXPECT_EQ(Compute("Div", 14, {Ints({std::numeric_limits<int64_t>::min()}), Ints({-1})}), "-");
  EXPECT_EQ(Compute("Mod", 13, {Ints({-7, 7, -7}), Ints({3, -3, -3})}), "[3]: 2 -2 -1");
  EXPECT_EQ(Compute("Mod", 13, {Ints({-7, 7}), Ints({3, -3})}, {{"fmod", int64_t{1}}}),
            "[2]: -1 1");
  EXPECT_EQ(Compute("Mod", 13, {Sizes({4 * s}), Ints({2})}), "[1]: 0");
}

TEST(SizesTest, WhatLeavesItsTypeIsNotKnown) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Compute("Add", 14, {Ints({most}), Ints({1})}), "-");
  const Value byte = Literal(Tensor::Of<uint8_t>(DType::kU8, {1}, {200}));
  EXPECT_EQ(Compute("Add", 14, {byte, byte}), "-");
  EXPECT_EQ(Compute("Cast", 13, {Ints({300})}, {{"to", int64_t{2}}}), "-");
  EXPECT_EQ(Compute("Cast", 13, {Sizes({b})}, {{"to", int64_t{2}}}), "uint8[1]: b");
  EXPECT_EQ(Compute("Cast", 13, {Sizes({s})}, {{"to", int64_t{2}}}), "-");  // to 512
}

TEST(SizesTest, ComparisonsAreDecidedOrNotKnown) {
  EXPECT_EQ(Compute("Equal", 13, {Sizes({b, b, 4}), Ints({-1, 0, 4})}), "bool[3]: 0 0 1");
  EXPECT_EQ(Compute("Equal", 13, {Sizes({b}), Ints({1})}), "-");
  EXPECT_EQ(Compute("Less", 13, {Sizes({b}), Ints({65})}), "bool[1]: 1");
  EXPECT_EQ(Compute("GreaterOrEqual", 16, {Sizes({b}), Ints({1})}), "bool[1]: 1");
  EXPECT_EQ(Compute("LessOrEqual", 16, {Sizes({s}), Ints({-1})}), "bool[1]: 0");
  const Value yes = Literal(Tensor::Of<uint8_t>(DType::kBool, {2}, {1, 0}));
  EXPECT_EQ(Compute("Where", 16, {yes, Sizes({b, b}), Sizes({s, s})}), "[2]: b s");
  EXPECT_EQ(Compute("Not", 1, {yes}), "bool[2]: 0 1");
  EXPECT_EQ(Compute("And", 7, {yes, yes}), "bool[2]: 1 0");
}

TEST(SizesTest, SizesAsFloats) {
  // Cast, multiply by a scale, Floor, Cast back: the pattern of old exports of Resize.
  Value half = Sizes({s}, Elem::kFloat);
  EXPECT_EQ(Compute("Cast", 13, {Sizes({s})}, {{"to", int64_t{1}}}), "float[1]: s");
  EXPECT_EQ(Compute("Mul", 14, {half, Floats({0.5})}), "float[1]: s /2");
  EXPECT_EQ(Compute("Div", 14, {half, Floats({4})}), "float[1]: s /4");
  EXPECT_EQ(Compute("Div", 14, {half, Floats({3})}), "-");  // rounds
  EXPECT_EQ(Compute("Mul", 14, {half, Floats({0.1f})}), "-");
  EXPECT_EQ(Compute("Mul", 14, {half, Floats({-1})}), "-");       // -0 where s is 0
  EXPECT_EQ(Compute("Mul", 14, {half, Floats({1 << 20})}), "-");  // beyond 2^24
  Known known = *half.known;
  known.divisor = 2;
  half.known = std::make_shared<const Known>(known);
  EXPECT_EQ(Compute("Floor", 13, {half}), "float[1]: floordiv(s, 2)");
  EXPECT_EQ(Compute("Ceil", 13, {half}), "float[1]: floordiv(s + 1, 2)");
  EXPECT_EQ(Compute("Cast", 13, {half}, {{"to", int64_t{7}}}), "[1]: floordiv(s, 2)");
  EXPECT_EQ(Compute("Add", 14, {half, Floats({0.25})}), "float[1]: 2*s + 1 /4");
  EXPECT_EQ(Compute("Round", 22, {half}), "-");
}

TEST(SizesTest, FloatsThatAreNoSizesAreMovedOnly) {
  EXPECT_EQ(Compute("Add", 14, {Floats({0.5}), Floats({0.5})}), "-");
  EXPECT_EQ(Compute("Concat", 13, {Floats({1.5}), Floats({0.1f})}, {{"axis", int64_t{0}}}),
            "float[2]: 1.500000 0.100000");
  EXPECT_EQ(
      Compute("Concat", 13, {Floats({1.5}), Sizes({s}, Elem::kFloat)}, {{"axis", int64_t{0}}}),
      "float[2]: 3 2*s /2");
}

TEST(SizesTest, Movement) {
  EXPECT_EQ(Compute("Gather", 13, {Sizes({b, s, 64}), Ints({-1, 0})}), "[2]: 64 b");
  EXPECT_EQ(Compute("Gather", 13, {Sizes({b, s, 64}), Int(1)}), "[]: s");
  EXPECT_EQ(Compute("Gather", 13, {Sizes({b}), Int(1)}), "-");  // outside
  EXPECT_EQ(Compute("Slice", 13, {Sizes({b, s, 64}), Ints({1}), Ints({1 << 30})}), "[2]: s 64");
  EXPECT_EQ(
      Compute("Slice", 13, {Sizes({b, s, 64}), Ints({-1}), Ints({-100}), Ints({0}), Ints({-2})}),
      "[2]: 64 b");
  EXPECT_EQ(Compute("Slice", 13, {Sizes({b, s}), Ints({-9}), Ints({-9}), Ints({0}), Ints({-1})}),
            "[1]: b");
  EXPECT_EQ(Compute("Slice", 13, {Ints({}), Ints({5}), Ints({-9}), Ints({0}), Ints({-1})}), "[0]:");
  EXPECT_EQ(Compute("Slice", 1, {Sizes({b, s, 64})},
                    {{"starts", std::vector<int64_t>{0}}, {"ends", std::vector<int64_t>{-1}}}),
            "[2]: b s");
  EXPECT_EQ(Compute("Concat", 13, {Sizes({b}), Sizes({s, 3})}, {{"axis", int64_t{0}}}),
            "[3]: b s 3");
  EXPECT_EQ(Compute("Split", 13, {Sizes({b, s, 4}), Ints({1, 2})}, {}, 2, 1), "[2]: s 4");
  EXPECT_EQ(Compute("Split", 18, {Sizes({b, s, 4})}, {{"num_outputs", int64_t{2}}}, 2, 0),
            "[2]: b s");
  EXPECT_EQ(Compute("Split", 13, {Sizes({b, s, 4})}, {}, 2, 0), "-");  // does not divide
  EXPECT_EQ(Compute("Unsqueeze", 13, {Sizes({b}), Ints({0})}), "[1, 1]: b");
  EXPECT_EQ(Compute("Squeeze", 13, {Sizes({b})}), "[]: b");
  EXPECT_EQ(Compute("Reshape", 14, {Sizes({b, s}), Ints({-1, 1})}), "[2, 1]: b s");
  EXPECT_EQ(Compute("Flatten", 13, {Sizes({b, s})}), "[2, 1]: b s");
  EXPECT_EQ(Compute("Expand", 13, {Sizes({b}), Ints({2, 1})}), "[2, 1]: b b");
  EXPECT_EQ(Compute("Tile", 13, {Sizes({b, s}), Ints({2})}), "[4]: b s b s");
  const Value square = Literal(Tensor::Of<int64_t>(DType::kI64, {2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(Compute("Transpose", 13, {square}), "[2, 2]: 1 3 2 4");
  EXPECT_EQ(Compute("Range", 11, {Int(5), Int(0), Int(-2)}), "[3]: 5 3 1");
  EXPECT_EQ(Compute("Range", 11, {Int(5), Int(6), Int(-2)}), "[0]:");
  EXPECT_EQ(Compute("ConstantOfShape", 9, {Ints({2})}), "float[2]: 0.000000 0.000000");
  const Value at = Literal(Tensor::Of<int64_t>(DType::kI64, {1, 1}, {-1}));
  EXPECT_EQ(Compute("ScatterND", 18, {Sizes({b, s}), at, Ints({7})}), "[2]: b 7");
}

TEST(SizesTest, Reductions) {
  EXPECT_EQ(Compute("ReduceProd", 18, {Sizes({b, s, 4})}, {{"keepdims", int64_t{0}}}), "[]: 4*b*s");
  EXPECT_EQ(Compute("ReduceSum", 13, {Sizes({b, s})}), "[1]: b + s");
  EXPECT_EQ(Compute("ReduceMax", 18, {Sizes({b, 100})}), "[1]: 100");
  EXPECT_EQ(Compute("ReduceMin", 18, {Sizes({b, s})}), "[1]: min(b, s)");
  EXPECT_EQ(
      Compute("ReduceSum", 13, {Ints({1, 2}), Ints({})}, {{"noop_with_empty_axes", int64_t{1}}}),
      "[2]: 1 2");
  EXPECT_EQ(Compute("CumSum", 14, {Sizes({b, s, 1}), Int(0)}), "[3]: b b + s b + s + 1");
  EXPECT_EQ(Compute("CumSum", 14, {Ints({1, 2, 3}), Int(0)},
                    {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}),
            "[3]: 5 3 0");
}

TEST(SizesTest, NothingTooLargeAndNothingUnknown) {
  EXPECT_EQ(Compute("Expand", 13, {Ints({1}), Ints({kMaxKnownElements + 1})}), "-");
  EXPECT_EQ(Compute("Tile", 13, {Ints({1}), Ints({int64_t{1} << 40})}), "-");
  EXPECT_EQ(Compute("Add", 14, {OfShape({2}), Ints({1, 2})}), "-");
  EXPECT_EQ(Compute("Sqrt", 13, {Floats({4})}), "-");  // not among the ops
}

TEST(SizesTest, LiteralsAndIntegers) {
  EXPECT_EQ(IntegersOf(KnownOf(Tensor::Of<int64_t>(DType::kI64, {2}, {1, -2}))),
            (std::vector<int64_t>{1, -2}));
  const Known large = KnownOf(Tensor::Of<uint64_t>(DType::kU64, {1}, {~uint64_t{0}}));
  EXPECT_TRUE(large.sizes.empty());
  EXPECT_EQ(IntegersOf(large), std::nullopt);
  EXPECT_EQ(IntegersOf(KnownOf(Tensor::Of<int64_t>(DType::kI64, {0}, {}))), std::vector<int64_t>());
  EXPECT_EQ(IntegersOf(*Sizes({b}).known), std::nullopt);
}

// Axes of an empty tensor may be of any size, so their products may overflow int64 and are not
// used.
TEST(SizesTest, EmptyTensorsOfHugeAxes) {
  const int64_t huge = int64_t{1} << 62;
  const Value empty = Literal(Tensor::Zeros(DType::kI64, {0, huge, huge, huge}));
  const Value tall = Literal(Tensor::Zeros(DType::kI64, {huge, 0}));
  EXPECT_EQ(Compute("Transpose", 13, {empty}), "-");
  EXPECT_EQ(Compute("Concat", 13, {tall, tall, tall}, {{"axis", int64_t{0}}}), "-");
  EXPECT_EQ(Compute("Split", 18, {tall}, {{"num_outputs", int64_t{2}}}, 2), "-");
  EXPECT_EQ(Compute("Split", 13, {tall, Ints({INT64_MAX, INT64_MAX})}, {}, 2), "-");
  EXPECT_EQ(Compute("Tile", 13, {empty, Ints({1, 9, 9, 9})}), "-");
  EXPECT_EQ(Compute("Expand", 13, {empty, Ints({1, 1, 1, 1})}), "-");
  EXPECT_EQ(Compute("Slice", 13, {tall, Ints({0}), Ints({INT64_MAX})}), "-");
  EXPECT_EQ(Compute("ConstantOfShape", 9, {Ints({huge, huge, 0})}), "-");
  EXPECT_EQ(Compute("Expand", 13, {Int(1), Ints({huge, huge, 0})}), "-");
  const Value wide = Literal(Tensor::Zeros(DType::kI64, {9, 9, 9, 9, 0}));
  const Value many = Ints({65'536, 65'536, 65'536, 65'536, 1});
  EXPECT_EQ(Compute("Tile", 13, {wide, many}), "-");
}

TEST(SizesTest, ExpressionsAreOfFewElementsAndTerms) {
  const std::vector<Expr> some(128, b), many(129, b);
  EXPECT_NE(Compute("Concat", 13, {Sizes(some), Sizes(some)}, {{"axis", int64_t{0}}}), "-");
  EXPECT_EQ(Compute("Concat", 13, {Sizes(some), Sizes(many)}, {{"axis", int64_t{0}}}), "-");
  Expr deep = b;
  for (int i = 0; i < 2; ++i) deep = FloorDiv(2 * deep + 1, 3);
  EXPECT_NE(Compute("Add", 13, {Sizes({deep}), Int(1)}), "-");
  for (int i = 0; i < 90; ++i) deep = FloorDiv(2 * deep + 1, 3);
  EXPECT_EQ(Compute("Add", 13, {Sizes({deep}), Int(1)}), "-");
}

}  // namespace
}  // namespace athanor::onnx
