#include "server/rest/tensor_json.h"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> Read(const char* datatype, const std::string& data, int64_t elements) {
  std::string raw;
  const absl::Status status =
      ReadElements(*FindDatatype(datatype), Json::parse(data), elements, &raw);
  if (!status.ok()) return status;
  return raw;
}
std::string Write(const char* datatype, const std::string& raw) {
  std::string text;
  WriteElements(*FindDatatype(datatype), raw, &text);
  EXPECT_LE(static_cast<int64_t>(text.size()),
            MostElementBytes(*FindDatatype(datatype),
                             raw.size() / DTypeBytes(FindDatatype(datatype)->dtype)));
  return text;
}
void ExpectWrong(const char* datatype, const std::string& data, int64_t elements,
                 const std::string& text) {
  const auto read = Read(datatype, data, elements);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << data;
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(text));
}

TEST(TensorJsonTest, ExtremesGoThroughUnchanged) {
  for (const auto& [datatype, text] : std::vector<std::pair<const char*, std::string>>{
           {"BOOL", "[true,false]"},
           {"INT8", "[-128,127]"},
           {"INT16", "[-32768,32767]"},
           {"INT32", "[-2147483648,2147483647]"},
           {"INT64", "[-9223372036854775808,9223372036854775807]"},
           {"UINT8", "[0,255]"},
           {"UINT16", "[0,65535]"},
           {"UINT32", "[0,4294967295]"},
           {"UINT64", "[0,18446744073709551615]"},
           {"FP32", "[-3.4028235e+38,1e-45]"},
           {"FP32", "[3.4028235e+38,-1e-45]"},
           {"FP32", "[-1.1754944e-38,0.1]"},
           {"FP64", "[-2.2250738585072014e-308,1.7976931348623157e+308]"},
       }) {
    const auto raw = Read(datatype, text, 2);
    ASSERT_TRUE(raw.ok()) << datatype << raw.status();
    EXPECT_EQ(Write(datatype, *raw), text) << datatype;
  }
  EXPECT_EQ(Write("INT8", ""), "[]");
}

TEST(TensorJsonTest, NestingDoesNotMatter) {
  const auto flat = Read("INT32", "[1,2,3,4]", 4);
  EXPECT_EQ(*Read("INT32", "[[1,2],[3,4]]", 4), *flat);
  EXPECT_EQ(*Read("INT32", "[[[1],[]],[[2,3]],4]", 4), *flat);
  EXPECT_EQ(*Read("INT32", "[]", 0), "");
  EXPECT_EQ(*Read("INT32", "[[],[]]", 0), "");
}

TEST(TensorJsonTest, WrongElementsAreNamed) {
  ExpectWrong("INT8", "[1,128]", 2, "element 1 is 128; INT8 has integers from -128 to 127");
  ExpectWrong("INT8", "[-129]", 1, "element 0 is -129");
  ExpectWrong("UINT8", "[-1]", 1, "element 0 is -1; UINT8 has integers from 0 to 255");
  ExpectWrong("UINT64", "[-1]", 1, "element 0 is -1");
  ExpectWrong("INT64", "[9223372036854775808]", 1, "element 0 is 9223372036854775808");
  ExpectWrong("UINT64", "[18446744073709551616]", 1, "element 0 is 1.8446744073709552e+19");
  ExpectWrong("INT32", "[1.0]", 1, "element 0 is 1.0");
  ExpectWrong("INT32", "[[1],[null]]", 2, "element 1 is null");
  ExpectWrong("INT32", "[\"1\"]", 1, "element 0 is \"1\"");
  ExpectWrong("INT32", "[{}]", 1, "element 0 is an object");
  ExpectWrong("INT32", "[true]", 1, "element 0 is true");
  ExpectWrong("FP32", "[true]", 1, "element 0 is true; FP32 has numbers");
  ExpectWrong("FP32", "[1e39]", 1, "which is beyond all of FP32");
  ExpectWrong("FP32", "[3.4028236e38]", 1, "which is beyond all of FP32");
  ExpectWrong("BOOL", "[2]", 1, "element 0 is 2; BOOL has true and false");
  EXPECT_EQ(*Read("BOOL", "[0,1]", 2), std::string("\0\1", 2));
}

TEST(TensorJsonTest, CountsAreTold) {
  ExpectWrong("INT32", "[1,2,3]", 2, "data has more elements; its shape has 2 elements");
  ExpectWrong("INT32", "[1]", 2, "data has 1 element; its shape has 2 elements");
  ExpectWrong("INT32", "7", 1, "data is 7; it has to be a list");
  ExpectWrong("INT32", "[]", 1, "data has 0 elements; its shape has 1 element");
}

TEST(TensorJsonTest, WhatIsNoNumberIsAsTritonHasIt) {
  const float values[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), -0.0f};
  EXPECT_EQ(Write("FP32", std::string(reinterpret_cast<const char*>(values), sizeof(values))),
            "[NaN,Infinity,-Infinity,-0]");
}

TEST(TensorJsonTest, HalvesHaveNoJsonForm) {
  for (const DatatypeRow& row : kDatatypes) {
    EXPECT_EQ(HasJsonForm(row), row.name != "FP16" && row.name != "BF16") << row.name;
  }
}

}  // namespace
}  // namespace athanor
