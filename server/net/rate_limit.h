// Limits an amount per second: tells the caller how long to pause after each amount.
//
//   RateLimit limit(1 << 20);                           // 1 MiB a second
//   const auto pause = limit.Take(64 << 10, Clock::now());
//
// All callers share the limit: a pause lasts until everything taken so far would have passed at
// that rate. Thread-safe.
#ifndef ATHANOR_SERVER_NET_RATE_LIMIT_H_
#define ATHANOR_SERVER_NET_RATE_LIMIT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(int64_t per_second) : per_second_(per_second) {}  // 0: no limit

  // Returns the pause; never negative, an hour at most.
  Clock::duration Take(int64_t amount, Clock::time_point now) {
    if (per_second_ == 0) return {};
    constexpr double kHour = 3600;
    const double seconds =
        std::min(kHour, static_cast<double>(amount) / static_cast<double>(per_second_));
    const auto takes =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    MutexLock lock(mu_);
    paid_ = std::min(std::max(paid_, now) + takes, now + std::chrono::hours(1));
    return paid_ - now;
  }

 private:
  const int64_t per_second_;
  Mutex mu_;
  // When everything taken so far has passed.
  Clock::time_point paid_ ABSL_GUARDED_BY(mu_) = Clock::time_point::min();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_RATE_LIMIT_H_
