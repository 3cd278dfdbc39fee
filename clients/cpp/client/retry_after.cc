#include "clients/cpp/client/retry_after.h"

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/google/rpc/retry_details.pb.h"

namespace athanor::client {
namespace {

constexpr char kPayload[] = "athanor.client/retry_after_ms";

}  // namespace

absl::Duration RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int64_t milliseconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) return {};
  return absl::Milliseconds(milliseconds);
}

void NoteRetryAfter(const std::string& details, absl::Status* status) {
  google::rpc::Status told;
  google::rpc::RetryInfo retry;
  if (details.empty() || !told.ParseFromString(details)) return;
  for (const google::protobuf::Any& any : told.details()) {
    if (!any.Is<google::rpc::RetryInfo>() || !any.UnpackTo(&retry)) continue;
    const absl::Duration after = absl::Seconds(retry.retry_delay().seconds()) +
                                 absl::Nanoseconds(retry.retry_delay().nanos());
    if (after <= absl::ZeroDuration()) continue;
    const std::string text = absl::StrCat(absl::ToInt64Milliseconds(after));
    status->SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  }
}

}  // namespace athanor::client
