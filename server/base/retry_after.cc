#include "server/base/retry_after.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

constexpr char kRetryAfter[] = "athanor.v1/retry_after_ms";
constexpr milliseconds kShortest{1}, kLongest{60'000};

}  // namespace

absl::Status WithRetryAfter(absl::Status status, std::chrono::nanoseconds after) {
  const bool measured = after > std::chrono::nanoseconds::zero();
  const milliseconds told =
      measured ? std::clamp(std::chrono::ceil<milliseconds>(after), kShortest, kLongest)
               : kUnmeasuredRetry;
  const std::string text = absl::StrCat(told.count());
  status.SetPayload(kRetryAfter, absl::Cord(absl::string_view(text)));
  return status;
}

milliseconds RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfter);
  int64_t after = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &after)) return {};
  return milliseconds(after);
}

std::string RetryAfterSeconds(const absl::Status& status) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(RetryAfter(status));
  return absl::StrCat(std::max<int64_t>(1, seconds.count()));
}

}  // namespace athanor
