#include <string>
#include <vector>

#include "compiler/frontend/onnx/handlers_testing.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(HandlersShapeTest, ShapeOfAnyPartAndSize) {
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 3, 4});
  const auto of = [&](int64_t start, int64_t end) {
    return ValuesOf(OpTrial(15, "Shape")
                        .In(x, {"b", 3, "s"})
                        .Attr("start", start)
                        .Attr("end", end)
                        .Run(Elem::kInt64));
  };
  EXPECT_EQ(ValuesOf(OpTrial(13, "Shape").In(x, {"b", 3, "s"}).Run(Elem::kInt64)),
            (Values{2, 3, 4}));
  EXPECT_EQ(of(1, 3), (Values{3, 4}));
  EXPECT_EQ(of(-1, 9), (Values{4}));
  EXPECT_EQ(of(-9, -1), (Values{2, 3}));
  EXPECT_EQ(of(2, 1), (Values{}));
  EXPECT_EQ(ValuesOf(OpTrial(13, "Size").In(x, {"b", 3, "s"}).Run(Elem::kInt64)), (Values{24}));
}

TEST(HandlersShapeTest, ConstantsOfEveryForm) {
  const auto constant = [](const std::string& name, TestAttr value) {
    return OpTrial(13, "Constant").Attr(name, std::move(value));
  };
  EXPECT_EQ(constant("value_int", int64_t{-7}).Run(Elem::kInt64), Of(DType::kI64, {}, {-7}));
  EXPECT_EQ(constant("value_ints", List{1, 2}).Run(Elem::kInt64), Ints({1, 2}));
  EXPECT_EQ(constant("value_float", 0.5f).Run(), Of(DType::kF32, {}, {0.5}));
  EXPECT_EQ(constant("value_floats", std::vector<float>{1, 2}).Run(), Of(DType::kF32, {2}, {1, 2}));
  const Tensor held = Of(DType::kF16, {2, 1}, {1, -2});
  EXPECT_EQ(constant("value", held).Run(Elem::kFloat16), held);
  EXPECT_TRUE(Says(constant("value_string", std::string("a")).Refused(), "strings"));
  EXPECT_TRUE(Says(OpTrial(13, "Constant").Refused(), "0 attributes"));
}

TEST(HandlersShapeTest, ConstantOfShape) {
  const auto of = [](const Values& shape) {
    return OpTrial(9, "ConstantOfShape").Const(Ints(shape)).Run();
  };
  EXPECT_EQ(of({2, 3}), Tensor::Zeros(DType::kF32, {2, 3}));
  EXPECT_EQ(of({0}), Tensor::Zeros(DType::kF32, {0}));
  EXPECT_EQ(of({}), Tensor::Zeros(DType::kF32, {}));
  EXPECT_EQ(ValuesOf(of({70'000})), Values(70'000, 0.0));  // more than is followed by value
  EXPECT_EQ(OpTrial(9, "ConstantOfShape")
                .Const(Ints({2}))
                .Attr("value", Of(DType::kI8, {1}, {-3}))
                .Run(Elem::kInt8),
            Of(DType::kI8, {2}, {-3, -3}));
  EXPECT_TRUE(Says(OpTrial(9, "ConstantOfShape").Const(Ints({-1})).Refused(), "negative size"));
  EXPECT_TRUE(Says(OpTrial(9, "ConstantOfShape").In(Ints({2})).Refused(), "values={\"x0\""));
}

Values Counted(Elem elem, double start, double limit, double delta) {
  OpTrial t(11, "Range");
  for (double v : {start, limit, delta}) t.Const(Of(CarrierOf(elem), {}, {v}));
  return ValuesOf(t.Run(elem));
}

TEST(HandlersShapeTest, RangeUpAndDown) {
  EXPECT_EQ(Counted(Elem::kInt64, 1, 8, 3), (Values{1, 4, 7}));
  EXPECT_EQ(Counted(Elem::kInt32, 5, -2, -3), (Values{5, 2, -1}));
  EXPECT_EQ(Counted(Elem::kInt16, 5, 5, 1), (Values{}));
  EXPECT_EQ(Counted(Elem::kInt64, 5, 1, 2), (Values{}));
  EXPECT_EQ(Counted(Elem::kFloat, 0, 2, 0.5), (Values{0, 0.5, 1, 1.5}));
  EXPECT_EQ(Counted(Elem::kFloat, 0, 1, 0.1f).size(), 10u);
  EXPECT_EQ(Counted(Elem::kDouble, 1, 0, -0.25), (Values{1, 0.75, 0.5, 0.25}));
  OpTrial endless(11, "Range");
  for (double v : {1.0, 2.0, 0.0}) endless.Const(Of(DType::kI64, {}, {v}));
  EXPECT_TRUE(Says(endless.Refused(), "delta is 0"));
  OpTrial unknown(11, "Range");
  for (double v : {0.0, 2.0, 1.0}) unknown.In(Of(DType::kF32, {}, {v}));
  EXPECT_TRUE(Says(unknown.Refused(), "start"));
}

TEST(HandlersShapeTest, RangeOverADimAsFloats) {
  TestModel m(17);
  m.Input("x", Elem::kFloat, {"n"}).Node("Shape", {"x"}, {"shape"});
  m.Node("Cast", {"shape"}, {"limits"}, {{"to", int64_t{1}}});
  m.Initializer("zero", Of(DType::kF32, {}, {0})).Initializer("half", Of(DType::kF32, {}, {0.5}));
  m.Node("Squeeze", {"limits"}, {"limit"});
  m.Node("Range", {"zero", "limit", "half"}, {"y"}).Output("y", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "n", .min = 1, .max = 9}};
  EXPECT_EQ(RunModel(m, {Tensor::Zeros(DType::kF32, {2})}, options).value()[0],
            Of(DType::kF32, {4}, {0, 0.5, 1, 1.5}));
}

TEST(HandlersShapeTest, EyeLike) {
  const Tensor x = Tensor::Zeros(DType::kI32, {2, 3});
  EXPECT_EQ(OpTrial(9, "EyeLike").In(x, {"n", 3}).Run(),
            Of(DType::kI32, {2, 3}, {1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(OpTrial(9, "EyeLike")
                .In(x)
                .Attr("k", int64_t{-1})
                .Attr("dtype", int64_t{1})
                .Run(Elem::kFloat),
            Of(DType::kF32, {2, 3}, {0, 0, 0, 1, 0, 0}));
  EXPECT_TRUE(Says(OpTrial(9, "EyeLike").In(Ints({1})).Refused(), "matrix"));
}

// Cut to 32 bits it would be that of int64.
TEST(HandlersShapeTest, ADtypeBeyond32BitsIsNone) {
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 2});
  const int64_t dtype = (int64_t{1} << 32) + 7;
  const std::string refused = OpTrial(9, "EyeLike").In(x).Attr("dtype", dtype).Refused();
  EXPECT_NE(refused.find("4294967303"), std::string::npos) << refused;
  EXPECT_FALSE(OpTrial(13, "Cast").Const(Ints({1})).Attr("to", dtype).Try(Elem::kInt64).ok());
}

}  // namespace
}  // namespace athanor::onnx
