#include "server/repository/config_fit.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ModelTensor Tensor(const std::string& name, const std::string& dtype,
                       const std::vector<std::string>& shape) {
  v1::ModelTensor tensor;
  tensor.set_name(name);
  tensor.set_dtype(dtype);
  for (const std::string& size : shape) tensor.add_shape(size);
  return tensor;
}

// x f32[batch, 3, h], mask bool[batch, h] to y f32[batch, 10].
v1::Model Outline() {
  v1::Model model;
  *model.add_inputs() = Tensor("x", "f32", {"batch", "3", "h"});
  *model.add_inputs() = Tensor("mask", "bool", {"batch", "h"});
  *model.add_outputs() = Tensor("y", "f32", {"batch", "10"});
  return model;
}

absl::StatusOr<FittedConfig> FitText(const std::string& text, const v1::Model& outline = Outline(),
                                     const std::string& format = "onnx") {
  return FitConfig(ParseConfig(text, "m").value(), outline, format);
}

std::string ErrorOf(const std::string& text, const v1::Model& outline = Outline(),
                    const std::string& format = "onnx") {
  return std::string(FitText(text, outline, format).status().message());
}

std::vector<std::string> Texts(const google::protobuf::RepeatedPtrField<v1::DimGiven>& dims) {
  std::vector<std::string> texts;
  for (const v1::DimGiven& dim : dims) {
    texts.push_back(dim.equals().empty() ? absl::StrCat(dim.name(), "=", dim.min(), ":", dim.max())
                                         : absl::StrCat(dim.name(), "=", dim.equals()));
  }
  return texts;
}

constexpr char kH[] = "parameters { key: \"athanor.dims\" value { string_value: \"h=1:512\" } }";
constexpr char kInputs[] =
    "input [ { name: \"x\" data_type: TYPE_FP32 dims: [ 3, 224 ] },"
    "        { name: \"mask\" data_type: TYPE_BOOL dims: [ 224 ] } ]";

TEST(ConfigFitTest, SaysNothingWhereTheConfigurationDoes) {
  const auto fitted = FitText("", Outline(), "athanor");
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_THAT(fitted->dims, IsEmpty());
  EXPECT_EQ(fitted->batch_dim, "");
}

TEST(ConfigFitTest, MaxBatchSizeBoundsTheFirstAxis) {
  const auto fitted = FitText(absl::StrCat("max_batch_size: 8 ", kInputs));
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_THAT(Texts(fitted->dims), ElementsAre("batch=1:8", "h=224"));
  EXPECT_EQ(fitted->batch_dim, "");  // no dynamic_batching
  EXPECT_EQ(FitText(absl::StrCat("max_batch_size: 8 dynamic_batching { } ", kH))->batch_dim,
            "batch");
  EXPECT_EQ(FitText("dynamic_batching { }", Outline(), "athanor")->batch_dim, "");
  EXPECT_EQ(FitText("parameters { key: \"athanor.batch_dim\" value { string_value: \"h\" } }",
                    Outline(), "athanor")
                ->batch_dim,
            "h");
}

TEST(ConfigFitTest, WithoutItDimsAreWholeShapes) {
  const auto fitted = FitText(absl::StrCat(
      "input [ { name: \"x\" dims: [ 2, 3, -1 ] }, { name: \"mask\" dims: [ -1, -1 ] } ]", kH));
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_THAT(Texts(fitted->dims), ElementsAre("batch=2", "h=1:512"));
}

TEST(ConfigFitTest, WhatContradictsTheModelIsNamed) {
  EXPECT_THAT(ErrorOf("input { name: \"z\" dims: [ 1 ] }"),
              HasSubstr("input \"z\": the model has none of this name; it has \"x\", \"mask\""));
  EXPECT_THAT(ErrorOf("max_batch_size: 8 input { name: \"x\" dims: [ 3, -1 ] }"),
              HasSubstr("the model has \"mask\" too"));
  EXPECT_THAT(ErrorOf("input { name: \"x\" data_type: TYPE_FP16 dims: [ -1, 3, -1 ] }"),
              HasSubstr("input \"x\".data_type: TYPE_FP16, but the model has TYPE_FP32"));
  EXPECT_THAT(ErrorOf("input { name: \"x\" dims: [ 3, -1 ] }"),
              HasSubstr("input \"x\".dims: [3, -1], but the model has [batch, 3, h]"));
  EXPECT_THAT(ErrorOf("input { name: \"x\" dims: [ -1, 4, -1 ] }"), HasSubstr("[-1, 4, -1]"));
  EXPECT_THAT(ErrorOf("input { name: \"x\" dims: [ -1, -1, -1 ] }"),
              HasSubstr("axis 1 has one size, which -1 is not"));
  EXPECT_THAT(ErrorOf("input { name: \"x\" dims: [ -1, 3, -2 ] }"), HasSubstr("-1 or at least 0"));
  EXPECT_THAT(ErrorOf("max_batch_size: 8 input [ { name: \"x\" dims: [ 3, 5 ] },"
                      "{ name: \"mask\" dims: [ 6 ] } ]"),
              HasSubstr("input \"mask\".dims: dim \"h\" is given otherwise already"));
  EXPECT_THAT(ErrorOf("output { name: \"y\" data_type: TYPE_INT8 dims: [ -1, 10 ] }"),
              HasSubstr("output \"y\".data_type"));
  EXPECT_THAT(ErrorOf("output { name: \"y\" dims: [ -1, 11 ] }"), HasSubstr("output \"y\".dims"));
  EXPECT_TRUE(FitText("output { name: \"y\" dims: [ 5, -1 ] }", Outline(), "athanor").ok());
}

TEST(ConfigFitTest, SizesWithoutBoundsAreNamedWithWhatToWrite) {
  EXPECT_THAT(
      ErrorOf(""),
      testing::AllOf(HasSubstr("\"batch\" (input \"x\", axis 0), \"h\" (input \"x\", axis 2)"),
                     HasSubstr("string_value: \"batch=1:64, h=1:64\"")));
  v1::Model outline;
  *outline.add_inputs() = Tensor("x", "f32", {"3", "past + 1"});
  EXPECT_TRUE(FitText("", outline).ok());
}

TEST(ConfigFitTest, ABatchMustBeOpenAndOne) {
  v1::Model fixed = Outline();
  fixed.mutable_inputs(1)->set_shape(0, "1");
  EXPECT_THAT(ErrorOf("max_batch_size: 8", fixed),
              HasSubstr("input \"mask\" has shape [1, h]; its first size must be open"));
  v1::Model two = Outline();
  two.mutable_inputs(1)->set_shape(0, "rows");
  EXPECT_THAT(ErrorOf("max_batch_size: 8", two), HasSubstr("another's batch is \"batch\""));
  v1::Model scalar = Outline();
  scalar.mutable_inputs(0)->clear_shape();
  EXPECT_THAT(ErrorOf("max_batch_size: 8", scalar), HasSubstr("has shape []"));
}

TEST(ConfigFitTest, BundlesHaveTheirBounds) {
  v1::Model outline = Outline();
  v1::GraphDim* batch = outline.add_dims();
  batch->set_name("batch");
  batch->set_min(1);
  batch->set_max(16);
  EXPECT_EQ(FitText("max_batch_size: 16 dynamic_batching { }", outline, "athanor")->batch_dim,
            "batch");
  EXPECT_THAT(ErrorOf("max_batch_size: 17", outline, "athanor"),
              HasSubstr("the model's dim \"batch\" ends at 16"));
  EXPECT_THAT(ErrorOf(absl::StrCat("max_batch_size: 8 ", kInputs), outline, "athanor"),
              HasSubstr("only ONNX models take dims"));
}

TEST(ConfigFitTest, DimsAreWrittenAsOnTheCommandLine) {
  EXPECT_THAT(Texts(ParseDims(" batch=1:64, seq=:128 ,frames=300,total=past + seq ").value()),
              ElementsAre("batch=1:64", "seq=1:128", "frames=300", "total=past + seq"));
  EXPECT_THAT(ParseDims("").value(), IsEmpty());
  for (const char* bad : {"batch", "=1:2", "batch=", "batch=a:2", "batch=1:", "batch=1:64,"}) {
    EXPECT_THAT(std::string(ParseDims(bad).status().message()), HasSubstr("is no dim")) << bad;
  }
  EXPECT_THAT(ErrorOf("max_batch_size: 8 parameters { key: \"athanor.dims\" value { string_value: "
                      "\"batch=1:4\" } }"),
              HasSubstr("dim \"batch\" is given by parameters[\"athanor.dims\"] too"));
}

}  // namespace
}  // namespace athanor
