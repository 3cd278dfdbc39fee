#include "clients/cpp/client/retry_after.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/google/rpc/retry_details.pb.h"

namespace athanor::client {
namespace {

absl::Status Noted(const std::string& details) {
  absl::Status status = absl::ResourceExhaustedError("full");
  NoteRetryAfter(details, &status);
  return status;
}

TEST(RetryAfter, IsReadFromDetails) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(250'000'000);
  google::rpc::Status details;
  details.add_details()->PackFrom(google::rpc::Status());
  details.add_details()->PackFrom(retry);
  const absl::Status status = Noted(details.SerializeAsString());
  EXPECT_EQ(RetryAfter(status), absl::Milliseconds(1'250));
  EXPECT_EQ(status.message(), "full");
}

TEST(RetryAfter, OtherDetailsSayNothing) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(-1);
  google::rpc::Status details;
  details.add_details()->PackFrom(retry);
  for (const std::string& each :
       {std::string(), std::string("\xff\xff"), details.SerializeAsString()}) {
    EXPECT_EQ(RetryAfter(Noted(each)), absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace athanor::client
