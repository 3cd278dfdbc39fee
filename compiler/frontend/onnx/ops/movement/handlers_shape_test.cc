#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"

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
    return ValuesOf(OneNode("Shape", 15)
                        .In(x, {"b", 3, "s"})
                        .Attr("start", start)
                        .Attr("end", end)
                        .Result(Elem::kInt64));
  };
  EXPECT_EQ(ValuesOf(OneNode("Shape", 13).In(x, {"b", 3, "s"}).Result(Elem::kInt64)),
            (Values{2, 3, 4}));
  EXPECT_EQ(of(1, 3), (Values{3, 4}));
  EXPECT_EQ(of(-1, 9), (Values{4}));
  EXPECT_EQ(of(-9, -1), (Values{2, 3}));
  EXPECT_EQ(of(2, 1), (Values{}));
  EXPECT_EQ(ValuesOf(OneNode("Size", 13).In(x, {"b", 3, "s"}).Result(Elem::kInt64)), (Values{24}));
}

TEST(HandlersShapeTest, ConstantsOfEveryForm) {
  const auto constant = [](const std::string& name, TestAttr value) {
    return OneNode("Constant", 13).Attr(name, std::move(value));
  };
  EXPECT_EQ(constant("value_int", int64_t{-7}).Result(Elem::kInt64), Of(DType::kI64, {}, {-7}));
  EXPECT_EQ(constant("value_ints", List{1, 2}).Result(Elem::kInt64), Ints({1, 2}));
  EXPECT_EQ(constant("value_float", 0.5f).Result(), Of(DType::kF32, {}, {0.5}));
  EXPECT_EQ(constant("value_floats", std::vector<float>{1, 2}).Result(),
            Of(DType::kF32, {2}, {1, 2}));
  const Tensor held = Of(DType::kF16, {2, 1}, {1, -2});
  EXPECT_EQ(constant("value", held).Result(Elem::kFloat16), held);
  EXPECT_TRUE(Says(constant("value_string", std::string("a")).Error(), "strings"));
  EXPECT_TRUE(Says(OneNode("Constant", 13).Error(), "0 attributes"));
}

TEST(HandlersShapeTest, ConstantOfShape) {
  const auto of = [](const Values& shape) {
    return OneNode("ConstantOfShape", 9).Fixed(Ints(shape)).Result();
  };
  EXPECT_EQ(of({2, 3}), Tensor::Zeros(DType::kF32, {2, 3}));
  EXPECT_EQ(of({0}), Tensor::Zeros(DType::kF32, {0}));
  EXPECT_EQ(of({}), Tensor::Zeros(DType::kF32, {}));
  EXPECT_EQ(ValuesOf(of({70'000})), Values(70'000, 0.0));  // too many to be known by value
  EXPECT_EQ(OneNode("ConstantOfShape", 9)
                .Fixed(Ints({2}))
                .Attr("value", Of(DType::kI8, {1}, {-3}))
                .Result(Elem::kInt8),
            Of(DType::kI8, {2}, {-3, -3}));
  EXPECT_TRUE(Says(OneNode("ConstantOfShape", 9).Fixed(Ints({-1})).Error(), "negative size"));
  EXPECT_TRUE(Says(OneNode("ConstantOfShape", 9).In(Ints({2})).Error(), "values={\"x0\""));
}

Values Counted(Elem elem, double start, double limit, double delta) {
  OneNode t("Range", 11);
  for (double v : {start, limit, delta}) t.Fixed(Of(CarrierOf(elem), {}, {v}));
  return ValuesOf(t.Result(elem));
}

TEST(HandlersShapeTest, RangeUpAndDown) {
  EXPECT_EQ(Counted(Elem::kInt64, 1, 8, 3), (Values{1, 4, 7}));
  EXPECT_EQ(Counted(Elem::kInt32, 5, -2, -3), (Values{5, 2, -1}));
  EXPECT_EQ(Counted(Elem::kInt16, 5, 5, 1), (Values{}));
  EXPECT_EQ(Counted(Elem::kInt64, 5, 1, 2), (Values{}));
  EXPECT_EQ(Counted(Elem::kFloat, 0, 2, 0.5), (Values{0, 0.5, 1, 1.5}));
  EXPECT_EQ(Counted(Elem::kFloat, 0, 1, 0.1f).size(), 10u);
  EXPECT_EQ(Counted(Elem::kDouble, 1, 0, -0.25), (Values{1, 0.75, 0.5, 0.25}));
  OneNode endless("Range", 11);
  for (double v : {1.0, 2.0, 0.0}) endless.Fixed(Of(DType::kI64, {}, {v}));
  EXPECT_TRUE(Says(endless.Error(), "delta is 0"));
  OneNode unknown("Range", 11);
  for (double v : {0.0, 2.0, 1.0}) unknown.In(Of(DType::kF32, {}, {v}));
  EXPECT_TRUE(Says(unknown.Error(), "start"));
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
  EXPECT_EQ(OneNode("EyeLike", 9).In(x, {"n", 3}).Result(),
            Of(DType::kI32, {2, 3}, {1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(OneNode("EyeLike", 9)
                .In(x)
                .Attr("k", int64_t{-1})
                .Attr("dtype", int64_t{1})
                .Result(Elem::kFloat),
            Of(DType::kF32, {2, 3}, {0, 0, 0, 1, 0, 0}));
  EXPECT_TRUE(Says(OneNode("EyeLike", 9).In(Ints({1})).Error(), "matrix"));
}

// Truncated to 32 bits, it would name int64.
TEST(HandlersShapeTest, ADtypeBeyond32BitsIsNone) {
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 2});
  const int64_t dtype = (int64_t{1} << 32) + 7;
  const std::string refused = OneNode("EyeLike", 9).In(x).Attr("dtype", dtype).Error();
  EXPECT_NE(refused.find("4294967303"), std::string::npos) << refused;
  EXPECT_FALSE(OneNode("Cast", 13).Fixed(Ints({1})).Attr("to", dtype).Out(Elem::kInt64).Run().ok());
}

TEST(HandlersShapeTest, AllInputsWhoseValuesAreNeededAreNamedAtOnce) {
  const auto expect = [](OneNode node, const std::vector<std::string>& inputs) {
    const std::string error = node.Error();
    for (const std::string& input : inputs) {
      EXPECT_NE(error.find("values={\"" + input + "\": ...}"), std::string::npos) << error;
    }
  };
  for (Elem elem : {Elem::kInt64, Elem::kFloat}) {
    OneNode range("Range", 11);
    range.In(elem, {}, {0}).In(elem, {}, {5}).In(elem, {}, {1});
    expect(range, {"x0", "x1", "x2"});
  }
  OneNode pad("Pad", 18);
  pad.In(Elem::kFloat, {2}, {1, 2}).In(Elem::kInt64, {2}, {1, 1}).Omit();
  expect(pad.In(Elem::kInt64, {1}, {0}), {"x1", "x3"});
  OneNode resize("Resize", 13);
  resize.Attr("coordinate_transformation_mode", std::string("tf_crop_and_resize"));
  resize.In(Elem::kFloat, {2}, {1, 2}).In(Elem::kFloat, {2}, {0, 1}).In(Elem::kFloat, {1}, {2});
  expect(resize, {"x1", "x2"});
}

TEST(HandlersShapeTest, AClipOfAnRnnIsNotNegative) {
  OneNode rnn("RNN", 14);
  rnn.In(Elem::kFloat, {1, 1, 1}, {1}).In(Elem::kFloat, {1, 1, 1}, {1});
  rnn.In(Elem::kFloat, {1, 1, 1}, {1}).Attr("clip", -1.0F);
  EXPECT_NE(rnn.Error().find("attribute clip is -1; it must be 0 or more"), std::string::npos);
}

}  // namespace
}  // namespace athanor::onnx
