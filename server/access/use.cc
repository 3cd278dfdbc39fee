#include "server/access/use.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using Clock = IdentityUse::Clock;

constexpr std::chrono::milliseconds kCallsAtOnceRetry{100};

Clock::duration TimeOf(int64_t amount, int64_t per_second) {
  constexpr double kHour = 3600;
  const double seconds =
      std::min(kHour, static_cast<double>(amount) / static_cast<double>(per_second));
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

absl::Status IdentityUse::BeginCall(absl::string_view name, const Quotas& quotas,
                                    Clock::time_point now) {
  MutexLock lock(mu_);
  if (quotas.concurrent_calls > 0 && calls_ >= quotas.concurrent_calls) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(name, " has ", calls_,
                                                  " calls in progress, the most it may have "
                                                  "(concurrent_calls in --auth's file)")),
        kCallsAtOnceRetry);
  }
  if (quotas.calls_per_second > 0) {
    const Clock::time_point paid = std::max(calls_paid_, now) + TimeOf(1, quotas.calls_per_second);
    const Clock::duration early = paid - now - std::chrono::seconds(1);
    if (early > Clock::duration::zero()) {
      return WithRetryAfter(
          absl::ResourceExhaustedError(absl::StrCat(name, " has made ", quotas.calls_per_second,
                                                    " calls in a second, the most it may make "
                                                    "(calls_per_second in --auth's file)")),
          early);
    }
    calls_paid_ = paid;
  }
  ++calls_;
  return absl::OkStatus();
}

void IdentityUse::EndCall() {
  MutexLock lock(mu_);
  --calls_;
}

Clock::duration IdentityUse::TakeUpload(int64_t bytes, const Quotas& quotas,
                                        Clock::time_point now) {
  if (quotas.upload_rate == 0) return {};
  MutexLock lock(mu_);
  const Clock::time_point paid = std::max(bytes_paid_, now) + TimeOf(bytes, quotas.upload_rate);
  bytes_paid_ = std::min(paid, now + std::chrono::hours(1));
  return bytes_paid_ - now;
}

int64_t IdentityUse::calls() const {
  MutexLock lock(mu_);
  return calls_;
}

}  // namespace athanor
