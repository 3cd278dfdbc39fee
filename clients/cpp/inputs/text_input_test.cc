#include "clients/cpp/inputs/text_input.h"

#include "clients/cpp/client/npy.h"
#include "clients/cpp/commands/commands.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

void AddInput(const std::string& name, const std::string& dtype,
              const std::vector<std::string>& shape, v1::Model* model) {
  v1::ModelTensor* input = model->add_inputs();
  input->set_name(name);
  input->set_dtype(dtype);
  for (const std::string& size : shape) input->add_shape(size);
}

v1::Model TestModel() {
  v1::Model model;
  model.set_name("m");
  AddInput("x", "f32", {"b", "3"}, &model);
  AddInput("pair", "i64", {"b", "s"}, &model);
  AddInput("one", "f16", {}, &model);
  AddInput("odd[0]", "u8", {"2"}, &model);
  return model;
}

std::string Parsed(const std::string& text) {
  auto input = ParseInput(text, TestModel());
  if (!input.ok()) return std::string(input.status().message());
  std::string result =
      input->first + " " + TensorTypeText(input->second.dtype, input->second.shape);
  for (int64_t i = 0; i < *ElementCount(input->second.shape); ++i) {
    result += " " + ElementText(input->second, i);
  }
  return result;
}

TEST(TextInput, SizesFollowFromTheCount) {
  EXPECT_EQ(Parsed("x=1,2,3"), "x f32[1, 3] 1 2 3");
  EXPECT_EQ(Parsed("x= 1, 2,3 ,4,5,nan"), "x f32[2, 3] 1 2 3 4 5 nan");
  EXPECT_EQ(Parsed("one=0.5"), "one f16[] 0.5");
  EXPECT_EQ(Parsed("x="), "x f32[0, 3]");
  EXPECT_EQ(Parsed("odd[0]=1,2"), "odd[0] u8[2] 1 2");
}

TEST(TextInput, SizesMayBeSaid) {
  EXPECT_EQ(Parsed("pair[2,1]=7,-8"), "pair i64[2, 1] 7 -8");
  EXPECT_EQ(Parsed("odd[0][1]=1"), "odd[0] u8[1] 1");  // the server says that it must be 2
  EXPECT_NE(Parsed("pair=1,2").find("pair[2,3]="), std::string::npos);
  EXPECT_NE(Parsed("pair[2,2]=1").find("needs 4 elements"), std::string::npos);
  EXPECT_NE(Parsed("pair[2,x]=1").find("size \"x\""), std::string::npos);
}

TEST(TextInput, RefusalsNameTheInput) {
  EXPECT_NE(Parsed("y=1").find("it takes x f32[b, 3], pair i64[b, s]"), std::string::npos);
  EXPECT_NE(Parsed("x=1,2").find("a multiple of 3"), std::string::npos);
  EXPECT_NE(Parsed("x=1,2,z").find("element 2"), std::string::npos);
  EXPECT_NE(Parsed("x").find("NAME=@FILE.npy"), std::string::npos);
  EXPECT_NE(Parsed("x=@/no/such/file").find("/no/such/file"), std::string::npos);
  EXPECT_NE(Parsed("one=").find("it needs 1"), std::string::npos);
}

TEST(TextInput, ReadsFiles) {
  const std::string path = testing::TempDir() + "/x.npy";
  ASSERT_TRUE(WriteFile(path, FormatNpy({"f32", {1, 3}, std::string(12, '\0')})).ok());
  EXPECT_EQ(Parsed("x=@" + path), "x f32[1, 3] 0 0 0");
  EXPECT_NE(Parsed("pair=@" + path).find("astype"), std::string::npos);
  EXPECT_NE(Parsed("x[1,3]=@" + path).find("leave out"), std::string::npos);
  EXPECT_FALSE(WriteFile("/no/such/dir/file", "x").ok());
  EXPECT_FALSE(ReadFile(testing::TempDir()).ok());  // a directory
}

TEST(Commands, ModelNamesAndBuckets) {
  EXPECT_EQ(ParseModelName("digits").version, "");
  EXPECT_EQ(ParseModelName("a/b/2").name, "a/b");
  EXPECT_EQ(ParseModelName("a/b/2").version, "2");
  for (const char* name : {"a/b", "a/", "a/2b", "a/-1"}) {
    EXPECT_EQ(ParseModelName(name).name, name);
    EXPECT_EQ(ParseModelName(name).version, "") << name;
  }
  auto buckets = ParseBuckets("b=1-1,2-64");
  ASSERT_TRUE(buckets.ok());
  EXPECT_EQ(buckets->dim(), "b");
  EXPECT_EQ(buckets->ranges(1).max(), 64);
  for (const char* text : {"b", "b=", "b=1", "b=1-x", "b=1-2,"}) {
    EXPECT_FALSE(ParseBuckets(text).ok()) << text;
  }
}

}  // namespace
}  // namespace athanor::client
