#include "server/base/call_log.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/log.h"
#include "server/base/log_limits.h"

namespace athanor {
namespace {

constexpr size_t kMaxRequestId = 128;

std::string NewRequestId() {
  static const uint32_t process = std::random_device()();
  static std::atomic<uint64_t> last{0};
  return absl::StrCat("r-", absl::Hex(process, absl::kZeroPad8), "-", ++last);
}

LogLimits& FailedLimits() {
  static auto* const limits = new LogLimits({});
  return *limits;
}

LogLimits& AuditLimits() {
  static auto* const limits = new LogLimits({});
  return *limits;
}

}  // namespace

std::string RequestIdFor(absl::string_view given) {
  const bool fit = !given.empty() && given.size() <= kMaxRequestId &&
                   std::all_of(given.begin(), given.end(),
                               [](unsigned char c) { return absl::ascii_isgraph(c); });
  return fit ? std::string(given) : NewRequestId();
}

void LogFailedCall(const CallLabels& call, const absl::Status& told) {
  const std::string code = absl::StatusCodeToString(told.code());
  const auto held_back = FailedLimits().Pass(absl::StrCat(code, " ", call.client));
  if (!held_back.has_value()) return;
  const bool left = told.code() == absl::StatusCode::kCancelled;
  LogInfo(left ? "call cancelled" : "call failed", {{"request", call.request},
                                                    {"method", call.method},
                                                    {"peer", call.peer},
                                                    {"client", call.client},
                                                    LogField::Optional("trace", call.trace),
                                                    {"code", code},
                                                    {"error", told.message()},
                                                    {"held_back", *held_back}});
}

void LogAuditedCall(const CallLabels& call, absl::string_view model, bool always) {
  const std::optional<int64_t> held_back = always ? 0 : AuditLimits().Pass(call.client);
  if (!held_back.has_value()) return;
  LogInfo("audit", {{"request", call.request},
                    {"method", call.method},
                    {"client", call.client},
                    {"peer", call.peer},
                    LogField::Optional("trace", call.trace),
                    {"model", model},
                    {"held_back", *held_back}});
}

void LogHeldBack() {
  for (const auto& [key, lines] : FailedLimits().TakeHeldBack()) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(key, absl::MaxSplits(' ', 1));
    LogInfo("calls failed", {{"client", parts.second}, {"code", parts.first}, {"lines", lines}});
  }
  for (const auto& [client, lines] : AuditLimits().TakeHeldBack()) {
    LogInfo("audits", {{"client", client}, {"lines", lines}});
  }
}

}  // namespace athanor
