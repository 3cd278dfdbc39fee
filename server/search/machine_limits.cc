#include "server/search/machine_limits.h"

#include <algorithm>

#include "server/base/log.h"

namespace athanor {
namespace {

// More than the best of many rounds differs from the best of as many others.
constexpr double kNoise = 1.02;
constexpr std::chrono::seconds kLeastWait{2}, kRecalledWait{60}, kMostWait{600};

}  // namespace

bool Raised(const internal::MachineReply& before, const internal::MachineReply& after) {
  return after.read_bytes_per_second() > kNoise * before.read_bytes_per_second() ||
         after.cache_bytes_per_second() > kNoise * before.cache_bytes_per_second() ||
         after.near_bytes_per_second() > kNoise * before.near_bytes_per_second() ||
         after.f32_flops_per_second() > kNoise * before.f32_flops_per_second();
}

MachineLimits::Clock::time_point MachineLimits::Due() const {
  return last_ ? *last_ + wait_ : Clock::time_point::min();
}

void MachineLimits::Recall(const internal::MachineReply& known) {
  const MutexLock lock(mu_);
  if (best_.has_value()) return;
  best_ = known;
  last_ = now_();
  wait_ = kRecalledWait;
}

void MachineLimits::Fix(const internal::MachineReply& limits) {
  const MutexLock lock(mu_);
  best_ = limits;
  fixed_ = true;
}

std::optional<internal::MachineReply> MachineLimits::known() {
  const MutexLock lock(mu_);
  return best_;
}

void MachineLimits::Take(const internal::MachineReply& m) {
  const internal::MachineReply before = best_.value_or(internal::MachineReply());
  internal::MachineReply& b = best_.emplace(before);
  b.set_read_bytes_per_second(std::max(b.read_bytes_per_second(), m.read_bytes_per_second()));
  b.set_cache_bytes_per_second(std::max(b.cache_bytes_per_second(), m.cache_bytes_per_second()));
  b.set_near_bytes_per_second(std::max(b.near_bytes_per_second(), m.near_bytes_per_second()));
  b.set_f32_flops_per_second(std::max(b.f32_flops_per_second(), m.f32_flops_per_second()));
  wait_ = std::clamp(2 * wait_, kLeastWait, kMostWait);
  if (!Raised(before, b)) return;
  beaten_ = 1;
  LogInfo("machine", {{"read_gb_per_s", b.read_bytes_per_second() / 1e9},
                      {"cache_gb_per_s", b.cache_bytes_per_second() / 1e9},
                      {"near_gb_per_s", b.near_bytes_per_second() / 1e9},
                      {"f32_gflop_per_s", b.f32_flops_per_second() / 1e9}});
}

absl::StatusOr<internal::MachineReply> MachineLimits::Get(Measure measure, When when,
                                                          Clock::time_point until) {
  MutexLock lock(mu_);
  if (fixed_) return *best_;
  // Who may go on with what is known does not wait for another's measurement.
  bool waits = true;
  while (waits && measuring_ && (!best_ || when == When::kNow)) {
    waits = measured_.WaitUntil(lock, until);
  }
  if (measuring_ && !best_) {
    return absl::AbortedError("the machine is still being measured, and the search's time is up");
  }
  const bool due = !best_ || when == When::kNow || now_() >= Due();
  if (measuring_ || !due) return *best_;
  measuring_ = true;
  lock.Unlock();
  const absl::StatusOr<internal::MachineReply> measured = measure();
  lock.Lock();
  measuring_ = false;
  measured_.NotifyAll();
  last_ = now_();
  if (measured.ok()) {
    Take(*measured);
  } else if (!best_) {
    return measured.status();
  } else {
    wait_ = std::clamp(2 * wait_, kLeastWait, kMostWait);
    LogWarn("machine not measured again", {{"error", measured.status().ToString()}});
  }
  return *best_;
}

void MachineLimits::Beaten(double share) {
  MutexLock lock(mu_);
  if (share <= beaten_ * kNoise) return;
  beaten_ = share;
  wait_ = std::chrono::seconds(0);
}

}  // namespace athanor
