#include "server/base/call_log.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace athanor {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr int kStatusCodes = 17;

std::string NewRequestId() {
  static const uint32_t process = std::random_device()();
  static std::atomic<uint64_t> last{0};
  return absl::StrCat("r-", absl::Hex(process, absl::kZeroPad8), "-", ++last);
}

}  // namespace

std::string RequestIdFor(absl::string_view given) {
  const bool fit = !given.empty() && given.size() <= kMaxRequestId &&
                   std::all_of(given.begin(), given.end(),
                               [](unsigned char c) { return absl::ascii_isgraph(c); });
  return fit ? std::string(given) : NewRequestId();
}

void LogFailedCall(const CallLabels& call, const absl::Status& told) {
  static LogLimit limits[kStatusCodes];
  const auto held_back = limits[static_cast<int>(told.code()) % kStatusCodes].Pass();
  if (!held_back.has_value()) return;
  LogInfo("call failed", {{"request", call.request},
                          {"method", call.method},
                          {"peer", call.peer},
                          {"client", call.client},
                          LogField::Optional("trace", call.trace),
                          {"code", absl::StatusCodeToString(told.code())},
                          {"error", told.message()},
                          {"held_back", *held_back}});
}

}  // namespace athanor
