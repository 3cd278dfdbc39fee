#include "server/http/body_limits.h"

#include <algorithm>
#include <utility>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLeastHeld = 4 << 10;  // however small the body

}  // namespace

Clock::time_point BodyDeadline(const HttpLimits& limits, Clock::time_point began, size_t bytes) {
  if (limits.least_rate == 0) return Clock::now() + limits.body;
  const double seconds = static_cast<double>(bytes) / static_cast<double>(limits.least_rate);
  return began + limits.body +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

absl::Status HoldBody(ServerLedger& ledger, size_t need, std::optional<uint64_t> announced,
                      std::string* body, ServerLedger::Reservation* memory) {
  if (std::cmp_less_equal(need, memory->bytes())) return absl::OkStatus();
  int64_t bytes = std::max<int64_t>({kLeastHeld, static_cast<int64_t>(need), 2 * memory->bytes()});
  // A string that grows by less than twice doubles all the same.
  if (announced.has_value() && std::cmp_less_equal(*announced, 2 * bytes)) {
    bytes = static_cast<int64_t>(*announced);
  }
  ASSIGN_OR_RETURN(*memory, ledger.Reserve(HeldKind::kRequests, bytes, "a request's body"));
  body->reserve(static_cast<size_t>(bytes));
  return absl::OkStatus();
}

}  // namespace athanor
