#include <string>
#include <tuple>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

Tensor Scales(const Values& values) {
  return Of(DType::kF32, {static_cast<int64_t>(values.size())}, values);
}

OneNode Resized(int64_t opset, const Tensor& x, const std::string& mode,
                const std::string& coordinates) {
  OneNode t("Resize", opset);
  t.In(x).Attr("mode", mode);
  if (!coordinates.empty()) t.Attr("coordinate_transformation_mode", coordinates);
  return t;
}

void ExpectNear(const Tensor& got, const Values& want) {
  const Tensor wanted = Of(got.dtype, got.shape, want);
  const absl::Status s = CompareTensors(got, wanted, 1e-6, 1e-6);
  EXPECT_TRUE(s.ok()) << s;
}

const Tensor kFour = Of(DType::kF32, {4}, {1, 2, 3, 4});

TEST(HandlersResizeTest, TheFirstResizeDividesAndRoundsDown) {
  EXPECT_EQ(ValuesOf(OneNode("Resize", 10).In(kFour).Fixed(Scales({1.5})).Result()),
            (Values{1, 1, 2, 3, 3, 4}));
  EXPECT_EQ(ValuesOf(OneNode("Upsample", 9).In(kFour, {"n"}).Fixed(Scales({2})).Result()),
            (Values{1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(ValuesOf(OneNode("Upsample", 7)
                         .In(Of(DType::kF32, {2}, {1, 3}))
                         .Attr("scales", std::vector<float>{2})
                         .Attr("mode", std::string("linear"))
                         .Result()),
            (Values{1, 2, 3, 3}));
  EXPECT_EQ(OneNode("Upsample", 6)
                .In(Of(DType::kF32, {1, 1, 1, 2}, {1, 3}))
                .Attr("height_scale", 1.0f)
                .Attr("width_scale", 2.0f)
                .Attr("mode", std::string("bilinear"))
                .Result(),
            Of(DType::kF32, {1, 1, 1, 4}, {1, 2, 3, 3}));
}

TEST(HandlersResizeTest, FromElevenOnItCentres) {
  const auto nearest = [](const std::string& rounding) {
    return ValuesOf(Resized(11, kFour, "nearest", "")
                        .Fixed(Scales({}))
                        .Fixed(Scales({0.5}))
                        .Attr("nearest_mode", rounding)
                        .Result());
  };
  EXPECT_EQ(nearest("round_prefer_floor"), (Values{1, 3}));  // elements at 0.5 and 2.5
  EXPECT_EQ(nearest("round_prefer_ceil"), (Values{2, 4}));
  EXPECT_EQ(nearest("floor"), (Values{1, 3}));
  EXPECT_EQ(nearest("ceil"), (Values{2, 4}));
}

TEST(HandlersResizeTest, LinearByEveryCoordinate) {
  const auto linear = [](const std::string& coordinates, double size) {
    return Resized(19, kFour, "linear", coordinates).Omit().Omit().Fixed(Ints({size})).Result();
  };
  ExpectNear(linear("half_pixel", 8), {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4});
  ExpectNear(linear("align_corners", 7), {1, 1.5, 2, 2.5, 3, 3.5, 4});
  ExpectNear(linear("align_corners", 1), {1});
  ExpectNear(linear("asymmetric", 8), {1, 1.5, 2, 2.5, 3, 3.5, 4, 4});
  ExpectNear(linear("pytorch_half_pixel", 1), {1});
  ExpectNear(linear("half_pixel", 1), {2.5});
  ExpectNear(linear("half_pixel_symmetric", 2), {1.5, 3.5});
}

TEST(HandlersResizeTest, TheGivenScaleCountsNotThatOfWholeSizes) {
  // 4 * 0.8 is 3.2, rounded to 3; positions are still divided by 0.8, not by 0.75.
  ExpectNear(Resized(13, kFour, "linear", "").Omit().Fixed(Scales({0.8f})).Result(),
             {1.125, 2.375, 3.625});
  ExpectNear(
      Resized(19, kFour, "linear", "half_pixel_symmetric").Omit().Fixed(Scales({0.8f})).Result(),
      {1.25, 2.5, 3.75});
}

TEST(HandlersResizeTest, CubicAndItsOutside) {
  const auto cubic = [](int64_t exclude) {
    return Resized(13, kFour, "cubic", "")
        .Omit()
        .Fixed(Scales({2}))
        .Attr("exclude_outside", exclude)
        .Result();
  };
  // Computed by Keys' polynomials at distances 1.25, 0.25, 0.75, 1.75 with a = -0.75.
  const Values w = {-0.10546875, 0.87890625, 0.26171875, -0.03515625};
  ExpectNear(cubic(0), {0.89453125, 1.1914062, 1.6679688, w[0] * 1 + w[1] * 2 + w[2] * 3 + w[3] * 4,
                        2.703125, 3.3320312, 3.8085938, 4.1054688});
  EXPECT_NEAR(ValuesOf(cubic(1))[7], (w[0] * 3 + w[1] * 4) / (w[0] + w[1]), 1e-6);
}

TEST(HandlersResizeTest, AntialiasAveragesWhatIsLeftOut) {
  const auto run = [](const Tensor& x, const std::string& mode, double scale) {
    return Resized(18, x, mode, "")
        .Omit()
        .Fixed(Scales({scale}))
        .Attr("antialias", int64_t{1})
        .Result();
  };
  // Weights 1/8, 3/8, 3/8, 1/8 around 0.5 and 2.5, with the edge repeated.
  ExpectNear(run(kFour, "linear", 0.5), {1.625, 3.375});
  const Tensor eight = Count(DType::kF32, {8});
  ExpectNear(run(eight, "linear", 0.25), {1.65625, 5.34375});
  ExpectNear(run(eight, "cubic", 0.25), {1.42407227, 5.57592773});
  ExpectNear(run(kFour, "linear", 1.0), {1, 2, 3, 4});
  EXPECT_TRUE(Says(Resized(18, kFour, "nearest", "")
                       .Omit()
                       .Fixed(Scales({0.5}))
                       .Attr("antialias", int64_t{1})
                       .Error(),
                   "no antialias"));
}

TEST(HandlersResizeTest, SizesOfDims) {
  const Tensor x = Of(DType::kF32, {1, 1, 2, 2}, {1, 2, 3, 4}),
               like = Tensor::Zeros(DType::kF32, {1, 1, 4, 2});
  TestModel m(13);
  m.Input("x", Elem::kFloat, {1, 1, "h", "w"}).Input("like", Elem::kFloat, {1, 1, "h2", "w"});
  m.Node("Shape", {"like"}, {"shape"});
  m.Node("Resize", {"x", "", "", "shape"}, {"y"}, {{"mode", std::string("linear")}});
  m.Output("y", Elem::kFloat);
  ImportOptions options;
  for (const char* name : {"h", "w", "h2"})
    options.dims.push_back({.name = name, .min = 1, .max = 8});
  ExpectNear(RunModel(m, {x, like}, options).value()[0], {1, 2, 1.5, 2.5, 2.5, 3.5, 3, 4});
}

TEST(HandlersResizeTest, PoliciesKeepTheAspect) {
  const Tensor x = Count(DType::kF32, {2, 4});
  const auto shape = [&](std::string policy) {
    return Resized(18, x, "nearest", "")
        .Omit()
        .Omit()
        .Fixed(Ints({3, 8}))
        .Attr("keep_aspect_ratio_policy", std::move(policy))
        .Result()
        .shape;
  };
  EXPECT_EQ(shape("stretch"), (List{3, 8}));
  EXPECT_EQ(shape("not_larger"), (List{3, 6}));
  EXPECT_EQ(shape("not_smaller"), (List{4, 8}));
}

TEST(HandlersResizeTest, CropsFillWhatIsOutside) {
  const auto run = [](bool data) {
    OneNode t = Resized(13, kFour, "linear", "tf_crop_and_resize");
    const Tensor roi = Of(DType::kF32, {2}, {0, 2});
    if (data) {
      t.In(roi);
    } else {
      t.Fixed(roi);
    }
    return t.Omit().Fixed(Ints({3})).Attr("extrapolation_value", 9.0f).Result();
  };
  ExpectNear(run(false), {1, 4, 9});
  ExpectNear(run(true), {1, 4, 9});
}

TEST(HandlersResizeTest, RefusesWhatItCannotKnow) {
  EXPECT_TRUE(Says(Resized(13, kFour, "linear", "").Omit().Error(), "neither"));
  EXPECT_TRUE(Says(Resized(13, kFour, "linear", "").Omit().In(Scales({2})).Error(), "its scales"));
  EXPECT_TRUE(Says(Resized(13, kFour, "linear", "").Omit().Fixed(Scales({-1})).Error(), "above 0"));
  EXPECT_TRUE(
      Says(Resized(13, kFour, "linear", "half_pixel_symmetric").Omit().Fixed(Scales({2})).Error(),
           "half_pixel_symmetric"));
}

TEST(HandlersResizeTest, GridSample) {
  const Tensor x = Of(DType::kF32, {1, 1, 2, 2}, {1, 2, 3, 4});
  const auto run = [&](int64_t opset, const Values& at, std::string mode, std::string padding,
                       int64_t align) {
    return ValuesOf(OneNode("GridSample", opset)
                        .In(x, {"n", 1, "h", "w"})
                        .In(Of(DType::kF32, {1, 1, 1, 2}, at), {"n", 1, 1, 2})
                        .Attr("mode", std::move(mode))
                        .Attr("padding_mode", std::move(padding))
                        .Attr("align_corners", align)
                        .Result())[0];
  };
  EXPECT_EQ(run(16, {0, 0}, "bilinear", "zeros", 0), 2.5);
  EXPECT_EQ(run(20, {1, -1}, "linear", "zeros", 1), 2);
  EXPECT_EQ(run(20, {1, -1}, "linear", "zeros", 0), 0.5);  // at a corner, where a quarter is inside
  EXPECT_EQ(run(20, {9, 9}, "linear", "border", 0), 4);
  EXPECT_EQ(run(20, {9, 9}, "nearest", "zeros", 0), 0);
  EXPECT_EQ(run(20, {3, -1}, "linear", "reflection", 1), 1);
  EXPECT_EQ(run(20, {-0.5, 0.5}, "nearest", "reflection", 0), 3);
  // In cubic mode a position outside is not moved inside; only its neighbours are.
  EXPECT_NEAR(run(16, {0.9, 0}, "bicubic", "border", 0), 3.107999, 1e-5);
  EXPECT_NEAR(run(20, {-2, 0.5}, "cubic", "border", 0), 3, 1e-5);
}

// Expected values are those of ONNX Runtime 1.31.
TEST(HandlersResizeTest, ALengthIsThatOfTheResult) {
  const Tensor three = Of(DType::kF32, {3}, {-2, 1, 2});
  const auto by = [&](const std::string& coordinates, float scale, const Values& roi) {
    return Resized(13, three, "linear", coordinates)
        .Fixed(Scales(roi))
        .Fixed(Scales({scale}))
        .Result();
  };
  // Half of three is one element; its position is 0, not the middle of the first two.
  EXPECT_EQ(ValuesOf(by("pytorch_half_pixel", 0.5F, {})), Values{-2});
  // floor(3 * 0.75 * 2.4) = 5 positions from 0.25 * 2 to 1 * 2.
  ExpectNear(by("tf_crop_and_resize", 2.4F, {0.25, 1}), {-0.5, 0.625, 1.25, 1.625, 2});
}

TEST(HandlersResizeTest, SizesAreProductsInFloat32) {
  const auto size = [](double n, float scale, std::vector<TestSize> shape) {
    const Tensor x = Tensor::Zeros(DType::kF32, {static_cast<int64_t>(n)});
    return OneNode("Resize", 18)
        .In(x, std::move(shape))
        .Omit()
        .Fixed(Scales({scale}))
        .Result()
        .shape[0];
  };
  for (const auto& [n, scale, want] : {std::tuple(10, 0.7F, 7),
                                       {5, 2.6F, 13},
                                       {3, 1.0F / 3, 1},
                                       {7, 0.15F, 1},
                                       {4, 1.5F, 6},
                                       {3, 4.0F / 3, 4}}) {
    EXPECT_EQ(size(n, scale, {}), want) << n << " * " << scale;
    EXPECT_EQ(size(n, scale, {"n"}), want) << n << " * " << scale << ", of a dim";
  }
}

TEST(HandlersResizeTest, AffineGridMovesAndScales) {
  const Tensor theta = Of(DType::kF32, {1, 2, 3}, {2, 0, 1, 0, 1, -1});
  const auto run = [&](int64_t align) {
    return OneNode("AffineGrid", 20)
        .In(theta, {"n", 2, 3})
        .Fixed(Ints({1, 1, 1, 2}))
        .Attr("align_corners", align)
        .Result();
  };
  ExpectNear(run(0), {0, -1, 2, -1});
  ExpectNear(run(1), {-1, -1, 3, -1});
}

TEST(HandlersResizeTest, RoiAlignByVersion) {
  const Tensor x = Count(DType::kF32, {1, 1, 4, 4});
  const Tensor rois = Of(DType::kF32, {1, 4}, {0, 0, 2, 2});
  const auto run = [&](int64_t opset, int64_t ratio, bool known) {
    OneNode t("RoiAlign", opset);
    t.In(x, {"n", 1, "h", "w"});
    if (known) {
      t.Fixed(rois);
    } else {
      t.In(rois, {"r", 4});
    }
    t.In(Ints({0}), known ? std::vector<TestSize>{1} : std::vector<TestSize>{"r"});
    return t.Attr("sampling_ratio", ratio);
  };
  EXPECT_EQ(ValuesOf(run(10, 1, false).Result()), Values{5});    // at (1, 1)
  EXPECT_EQ(ValuesOf(run(16, 1, false).Result()), Values{2.5});  // at (0.5, 0.5)
  EXPECT_EQ(ValuesOf(run(16, 0, true).Result()), Values{2.5});   // four samples around it
  EXPECT_TRUE(Says(run(16, 0, false).Error(), "sampling_ratio 0"));
}

TEST(HandlersResizeTest, MaxRoiPool) {
  const Tensor x = Count(DType::kF32, {2, 1, 4, 4});
  const Tensor rois = Of(DType::kF32, {2, 5}, {0, 0, 0, 3, 3, 1, 2, 2, 9, 9});
  const Tensor y =
      OneNode("MaxRoiPool", 1).In(x).In(rois, {"r", 5}).Attr("pooled_shape", List{2, 2}).Result();
  EXPECT_EQ(ValuesOf(y), (Values{5, 7, 13, 15, 31, 0, 0, 0}));
}

TEST(HandlersResizeTest, AntialiasOverMoreThanAnyKernelIsRefused) {
  const Tensor x = Count(DType::kF32, {1, 1, 1, 4});
  const std::string refused = OneNode("Resize", 19)
                                  .In(x)
                                  .Omit()
                                  .Omit()
                                  .Fixed(Ints({1, 1, 1, 0}))
                                  .Attr("mode", std::string("linear"))
                                  .Attr("antialias", int64_t{1})
                                  .Error();
  EXPECT_NE(refused.find("inf elements are averaged"), std::string::npos) << refused;
}

TEST(HandlersResizeTest, PoliciesOfHugeSizesAreRefused) {
  const Tensor x = Count(DType::kF32, {1, 1, 1, 4});
  const std::string refused = OneNode("Resize", 18)
                                  .In(x)
                                  .Omit()
                                  .Omit()
                                  .Fixed(Ints({0x1p62, 1}))
                                  .Attr("axes", std::vector<int64_t>{2, 3})
                                  .Attr("keep_aspect_ratio_policy", std::string("not_smaller"))
                                  .Error();
  EXPECT_NE(refused.find("outside the supported range"), std::string::npos) << refused;
}

TEST(HandlersResizeTest, RegionsThatAreNoNumbersAreRefused) {
  const Tensor x = Count(DType::kF32, {1, 1, 4, 4});
  const std::string refused = OneNode("RoiAlign", 16)
                                  .In(x)
                                  .Fixed(Of(DType::kF32, {1, 4}, {NAN, 0, NAN, 2}))
                                  .Fixed(Ints({0}))
                                  .Attr("sampling_ratio", int64_t{0})
                                  .Error();
  EXPECT_NE(refused.find("nan samples"), std::string::npos) << refused;
}

}  // namespace
}  // namespace athanor::onnx
