#include "server/rpc/parse_request.h"

#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr int kMany = 20'000;
constexpr int64_t kNoEnd = int64_t{1} << 40;

int64_t ParsedBytesOf(const google::protobuf::Message& type, const std::string& bytes,
                      int64_t most = kNoEnd) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  return ParsedBytes(&stream, *type.GetDescriptor(), most);
}

// Expects that ParsedBytes is at least the memory used, and not much more.
void ExpectSized(const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  std::unique_ptr<google::protobuf::Message> parsed(message.New());
  ASSERT_TRUE(parsed->ParseFromString(bytes));
  const auto taken = static_cast<int64_t>(parsed->SpaceUsedLong());
  EXPECT_GE(ParsedBytesOf(message, bytes), taken) << message.GetTypeName();
  EXPECT_LE(ParsedBytesOf(message, bytes), 8 * taken + 1024) << message.GetTypeName();
}

TEST(ParsedBytesTest, NoLessThanIsTaken) {
  inference::ModelInferRequest inputs, numbers, raw, parameters;
  for (int i = 0; i < kMany; ++i) {
    inputs.add_inputs();
    auto* tensor = i == 0 ? numbers.add_inputs() : numbers.mutable_inputs(0);
    tensor->add_shape(i);
    auto* contents = tensor->mutable_contents();
    contents->add_bool_contents(true);
    contents->add_int_contents(i % 3);
    contents->add_int64_contents(i % 3);
    contents->add_fp32_contents(1);
    contents->add_fp64_contents(1);
    contents->add_bytes_contents("");
    (*parameters.mutable_parameters())[std::to_string(i)].set_int64_param(1);
  }
  raw.add_raw_input_contents(std::string(1 << 20, 'x'));
  for (const auto* message : {&inputs, &numbers, &raw, &parameters}) ExpectSized(*message);

  v1::MissingTensorsRequest hashes;
  for (int i = 0; i < kMany; ++i) hashes.add_hashes("");
  ExpectSized(hashes);
}

TEST(ParsedBytesTest, StopsAtWhatIsTooMuch) {
  inference::ModelInferRequest inputs;
  for (int i = 0; i < kMany; ++i) inputs.add_inputs();
  const int64_t bytes = ParsedBytesOf(inputs, inputs.SerializeAsString(), 10'000);
  EXPECT_GT(bytes, 10'000);
  EXPECT_LT(bytes, 20'000);
}

TEST(ParsedBytesTest, WhatIsBrokenOrDeepHasAnEnd) {
  const inference::ModelInferRequest type;
  EXPECT_GT(ParsedBytesOf(type, "\x2a\xff\xff\xff\xff\x0f"), 0);
  EXPECT_GT(ParsedBytesOf(type, std::string(100'000, '\x53')), 0);  // groups in groups
}

// A message of 600 kB that would take some 60 MB when parsed.
TEST(ParseRequestTest, ManySmallPartsAreInTheLedger) {
  TestServer test({.memory_limit = 16 << 20});
  inference::ModelInferRequest request;
  request.set_model_name("m");
  for (int i = 0; i < 15 * kMany; ++i) request.add_inputs();
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("inference.ModelInferRequest"));
  EXPECT_THAT(status.error_message(), HasSubstr("--memory_limit"));
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  EXPECT_EQ(test.server->core().ledger().used(), 0);
}

}  // namespace
}  // namespace athanor
