#include "server/rpc/status.h"

#include <chrono>
#include <string>

#include "proto/google/rpc/retry_details.pb.h"
#include "server/base/public_status.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

constexpr int64_t kNanosPerMilli = 1'000'000;

// Returns a google.rpc.Status with a RetryInfo, as clients' libraries read it.
std::string RetryDetails(const absl::Status& sent, std::chrono::milliseconds after) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(after.count() / 1'000);
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(after.count() % 1'000 * kNanosPerMilli));
  google::rpc::Status status;
  status.set_code(static_cast<int>(sent.code()));
  status.set_message(std::string(sent.message()));
  status.add_details()->PackFrom(retry);
  return status.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::Status sent = PublicStatus(status);
  const std::chrono::milliseconds after = RetryAfter(status);
  // Both use the numbers of google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(sent.code()), std::string(sent.message()),
                      after.count() > 0 ? RetryDetails(sent, after) : "");
}

}  // namespace athanor
