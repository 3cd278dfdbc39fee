#include "server/rest/infer_message.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kX[] = R"("name":"x","shape":[2],"datatype":"INT8")";

class InferMessageTest : public ::testing::Test {
 protected:
  absl::StatusOr<RestRequest> Read(const std::string& json, const std::string& binary = "",
                                   std::string header = "") {
    HttpRequest http{.body = json + binary};
    if (header.empty() && !binary.empty()) header = absl::StrCat(json.size());
    if (!header.empty()) http.headers.emplace_back("inference-header-content-length", header);
    return ReadInferRequest(&http, &ledger_);
  }
  void ExpectWrong(const std::string& json, const std::string& text,
                   absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto read = Read(json);
    EXPECT_EQ(read.status().code(), code) << json << read.status();
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(text));
  }
  static std::string Inputs(const std::string& fields) {
    return absl::StrCat(R"({"inputs":[{)", fields, "}]}");
  }
  void TearDown() override { EXPECT_EQ(ledger_.used(HeldKind::kRequests), 0); }

  ServerLedger ledger_{int64_t{1} << 30};
};

TEST_F(InferMessageTest, ReadsAllFields) {
  const auto read = Read(R"({"id":"7","parameters":{"priority":3,"timeout":5,"wait":"none",)"
                         R"("a":true,"b":1.5,"c":18446744073709551615},)"
                         R"("inputs":[{"name":"x","shape":[2,1],"datatype":"INT16",)"
                         R"("data":[[1],[-2]],"parameters":{"k":"v"}}],)"
                         R"("outputs":[{"name":"y"},{"name":"z","parameters":{)"
                         R"("binary_data":true,"classification":0}}]})");
  ASSERT_TRUE(read.ok()) << read.status();
  const inference::ModelInferRequest& message = read->message;
  EXPECT_EQ(message.id(), "7");
  EXPECT_EQ(message.parameters().at("priority").int64_param(), 3);
  EXPECT_EQ(message.parameters().at("timeout").int64_param(), 5);
  EXPECT_EQ(message.parameters().at("wait").string_param(), "none");
  EXPECT_TRUE(message.parameters().at("a").bool_param());
  EXPECT_EQ(message.parameters().at("b").double_param(), 1.5);
  EXPECT_EQ(message.parameters().at("c").uint64_param(), 18446744073709551615u);
  ASSERT_EQ(message.inputs_size(), 1);
  EXPECT_EQ(message.inputs(0).datatype(), "INT16");
  EXPECT_THAT(message.inputs(0).shape(), ElementsAre(2, 1));
  EXPECT_EQ(message.inputs(0).parameters().at("k").string_param(), "v");
  EXPECT_EQ(message.raw_input_contents(0), std::string("\1\0\xfe\xff", 4));
  EXPECT_FALSE(read->WantsBytes("y"));
  EXPECT_TRUE(read->WantsBytes("z"));
  EXPECT_TRUE(message.outputs(1).parameters().empty());
}

TEST_F(InferMessageTest, BinaryTensorsFollowTheJson) {
  const auto read =
      Read(R"({"parameters":{"binary_data_output":true},"outputs":[{"name":"j",)"
           R"("parameters":{"binary_data":false}}],"inputs":[)"
           R"({"name":"x","shape":[2],"datatype":"INT8","parameters":{"binary_data_size":2}},)"
           R"({"name":"y","shape":[1],"datatype":"INT8","data":[7]},)"
           R"({"name":"z","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}}]})",
           "abcd");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->message.raw_input_contents(), ElementsAre("ab", "\7", "cd"));
  EXPECT_TRUE(read->message.inputs(0).parameters().empty());
  EXPECT_TRUE(read->WantsBytes("any"));
  EXPECT_FALSE(read->WantsBytes("j"));
}

TEST_F(InferMessageTest, EachBinaryTensorHasItsOwnBytes) {
  std::vector<size_t> sizes = {0, 1, 2, 40};
  do {
    std::string json = R"({"inputs":[)", binary;
    std::vector<std::string> expected;
    for (const size_t size : sizes) {
      absl::StrAppend(&json, expected.empty() ? "" : ",", R"({"name":"x","shape":[)", size,
                      R"(],"datatype":"INT8","parameters":{"binary_data_size":)", size, "}}");
      expected.push_back(std::string(size, static_cast<char>('a' + expected.size())));
      binary += expected.back();
    }
    const auto read = Read(json + "]}", binary);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(read->message.raw_input_contents(), testing::ElementsAreArray(expected));
  } while (std::next_permutation(sizes.begin(), sizes.end()));
}

TEST_F(InferMessageTest, ATensorTakesTheMemoryOfABodyThatItMostlyIs) {
  for (const bool mostly : {false, true}) {
    const size_t size = mostly ? 100'000 : 2, pad = mostly ? 2 : 100'000;
    const std::string json = absl::StrCat(
        R"({"parameters":{"pad":")", std::string(pad, 'p'), R"("},"inputs":[{"name":"x","shape":[)",
        size, R"(],"datatype":"INT8","parameters":{"binary_data_size":)", size, "}}]}");
    HttpRequest http{.body = json + std::string(size, 'b')};
    http.headers.emplace_back("inference-header-content-length", absl::StrCat(json.size()));
    const char* const memory = http.body.data();
    const size_t capacity = http.body.capacity();
    const auto read = ReadInferRequest(&http, &ledger_);
    ASSERT_TRUE(read.ok()) << read.status();
    const std::string& raw = read->message.raw_input_contents(0);
    EXPECT_EQ(raw, std::string(size, 'b'));
    EXPECT_EQ(raw.data() == memory, mostly);
    EXPECT_EQ(raw.capacity() < capacity, !mostly);
  }
}

TEST_F(InferMessageTest, LyingLengthsAreRefused) {
  const std::string json = Inputs(std::string(kX) + R"(,"parameters":{"binary_data_size":2})");
  EXPECT_TRUE(Read(json, "ab").ok());
  EXPECT_THAT(std::string(Read(json, "a").status().message()),
              HasSubstr("binary_data_size is 2, and the body has 1 bytes left"));
  EXPECT_THAT(std::string(Read(json, "abc").status().message()),
              HasSubstr("the body has 1 bytes behind the tensors"));
  for (const std::string header : {"x", "-1", "1000", "18446744073709551616", "+3"}) {
    EXPECT_THAT(std::string(Read(json, "ab", header).status().message()),
                HasSubstr("the header Inference-Header-Content-Length is"))
        << header;
  }
  EXPECT_EQ(Read(json, "ab", "0").status().code(), absl::StatusCode::kUnimplemented);
  ExpectWrong(json, "binary_data_size is 2, and the body has 0 bytes left");
  ExpectWrong(Inputs(std::string(kX) + R"(,"parameters":{"binary_data_size":-1})"),
              "inputs[0].parameters.binary_data_size is -1; it has to be a number of bytes");
  ExpectWrong(Inputs(std::string(kX) + R"(,"parameters":{"binary_data_size":1e30})"),
              "it has to be a number of bytes");
  ExpectWrong(
      Inputs(std::string(kX) + R"(,"parameters":{"binary_data_size":18446744073709551615})"),
      "and the body has 0 bytes left");
}

TEST_F(InferMessageTest, WrongFieldsAreNamed) {
  ExpectWrong("", "no valid JSON");
  ExpectWrong("[]", "the request is a list; it has to be an object");
  ExpectWrong("{}", "inputs is missing");
  ExpectWrong(R"({"inputs":[],"model":"m"})", "the request has the field \"model\"");
  ExpectWrong(R"({"inputs":{}})", "inputs is an object; it has to be a list");
  ExpectWrong(R"({"inputs":[1]})", "inputs[0] is 1; it has to be an object");
  ExpectWrong(Inputs(R"("shape":[1],"datatype":"INT8")"), "inputs[0].name is missing");
  ExpectWrong(Inputs(R"("name":"x","datatype":"INT8")"), "inputs[0].shape is missing");
  ExpectWrong(Inputs(R"("name":"x","shape":[1])"), "inputs[0].datatype is missing");
  ExpectWrong(Inputs(R"("name":"x","shape":[-1],"datatype":"INT8")"),
              "inputs[0].shape[0] is -1; it has to be a size");
  ExpectWrong(Inputs(R"("name":7)"), "inputs[0].name is 7; it has to be a text");
  ExpectWrong(Inputs(R"("names":"x")"), "inputs[0] has the field \"names\"");
  ExpectWrong(Inputs(kX), "input \"x\": it has neither data nor");
  ExpectWrong(Inputs(std::string(kX) + R"(,"data":[1,2],"parameters":{"binary_data_size":0})"),
              "it has data and binary_data_size");
  ExpectWrong(Inputs(std::string(kX) + R"(,"data":[1])"),
              "input \"x\": data has 1 element; its shape has 2 elements");
  ExpectWrong(Inputs(R"("name":"h","shape":[1],"datatype":"BF16","data":[1])"),
              "sending BF16 as JSON is not supported; use the binary data format");
  ExpectWrong(Inputs(R"("name":"h","shape":[4294967296,4294967296],"datatype":"INT8","data":[])"),
              "more elements than fit 64 bits");
  ExpectWrong(R"({"inputs":[],"parameters":{"a":null}})", "parameters.a is null");
  ExpectWrong(R"({"inputs":[],"outputs":[{}]})", "outputs[0].name is missing");
  ExpectWrong(R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]})",
              "outputs[0].parameters.binary_data is 1; it has to be true or false");
  ExpectWrong(std::string(100'000, '['), "deeper than 64");
}

TEST_F(InferMessageTest, InputsInSharedMemoryHaveNoElements) {
  const auto read = Read(
      Inputs(R"("name":"x","shape":[2],"datatype":"FP32","parameters":{"shared_memory_region":"r",)"
             R"("shared_memory_byte_size":8,"shared_memory_offset":0})"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->message.raw_input_contents_size(), 0);
  EXPECT_EQ(read->message.inputs(0).parameters().at("shared_memory_byte_size").int64_param(), 8);
  ExpectWrong(
      Inputs(std::string(kX) + R"(,"data":[1,2],"parameters":{"shared_memory_region":"r"})"),
      "input \"x\": it lies in shared memory, and has data too");
}

}  // namespace
}  // namespace athanor
