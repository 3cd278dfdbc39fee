// Shared parts of the cases of limits_test. Each case is a function, found by the flag it tests.
#ifndef ATHANOR_SERVER_LIMITS_TESTING_H_
#define ATHANOR_SERVER_LIMITS_TESTING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/options.h"
#include "server/testing/testing.h"

namespace athanor {

using LimitCases = std::map<std::string, void (*)()>;
// Cases about graphs.
const LimitCases& GraphLimitCases();
// Cases about how clients connect and send.
const LimitCases& ClientLimitCases();

inline constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
inline constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;

inline void ExpectRefused(const grpc::Status& status, grpc::StatusCode code,
                          const std::vector<std::string>& parts) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  for (const std::string& part : parts) {
    EXPECT_THAT(status.error_message(), testing::HasSubstr(part));
  }
}

// Uploads `good` and expects that `bad` is refused with the given code and message.
inline void ExpectBound(const ServerOptions& options, const TestModel& good, const TestModel& bad,
                        grpc::StatusCode code, const std::vector<std::string>& parts) {
  TestServer test(options);
  test.Upload("good", good);
  ExpectRefused(test.Send(UploadMessages("bad", bad)), code, parts);
}

inline std::unique_ptr<inference::GRPCInferenceService::Stub> OtherConnection(
    const TestServer& test) {
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", test.server->port()), grpc::InsecureChannelCredentials(), own));
}

inline TestModel Weights(size_t count) { return ScaleModel(std::vector<float>(count, 1)); }

}  // namespace athanor

#endif  // ATHANOR_SERVER_LIMITS_TESTING_H_
