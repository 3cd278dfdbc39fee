// What this machine reaches: of each limit the best of several short measurements, spread over
// time, since one beside a build or beside requests sees half of it.
//
//   MachineLimits limits;
//   internal::MachineReply known = limits.Get(measure).value();   // measures where that is due
//   if (ReachedShare(plan, sizes, seconds, known) > 1) limits.Beaten(share);
//
// They only rise. Measured again after two seconds, and after twice as long each time; at once
// where a search is about to end for them, and when a kernel was faster than they allow.
#ifndef ATHANOR_SERVER_SEARCH_MACHINE_LIMITS_H_
#define ATHANOR_SERVER_SEARCH_MACHINE_LIMITS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// A limit of `after` is above that of `before` by more than measurements of one machine differ.
bool Raised(const internal::MachineReply& before, const internal::MachineReply& after);

// Thread-safe. One caller measures at a time: two would halve each other's cores.
class MachineLimits {
 public:
  using Clock = std::chrono::steady_clock;
  // One measurement (server/tuner/measure/machine.h).
  using Measure = absl::FunctionRef<absl::StatusOr<internal::MachineReply>()>;
  enum class When : uint8_t { kDue, kNow };

  // `now` is the clock.
  explicit MachineLimits(std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)) {}
  // Known from elsewhere; measured again when it is due.
  explicit MachineLimits(const internal::MachineReply& known) : MachineLimits() { best_ = known; }

  // Takes over limits that an earlier server measured, unless some are known. They are measured
  // again after a minute.
  void Recall(const internal::MachineReply& known);

  // Takes limits that are not measured: Get returns them from now on.
  void Fix(const internal::MachineReply& limits);
  // The best so far; nullopt: nothing is known yet.
  std::optional<internal::MachineReply> known();

  // The best so far, measured again before where that is due, or kNow. `measure`'s error where
  // nothing is known; otherwise what is known stays.
  // Who waits for another's measurement waits no longer than `until`: ABORTED where nothing is
  // known then.
  absl::StatusOr<internal::MachineReply> Get(Measure measure, When when = When::kDue,
                                             Clock::time_point until = Clock::time_point::max());

  // A kernel reached `share` of a limit, more than 1. Nothing more happens when that was seen
  // before: some kernels take less than their bytes and operations as counted.
  void Beaten(double share);

 private:
  Clock::time_point Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Take(const internal::MachineReply& measured) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<Clock::time_point()> now_;
  Mutex mu_;
  CondVar measured_;
  bool measuring_ ABSL_GUARDED_BY(mu_) = false;
  bool fixed_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<internal::MachineReply> best_ ABSL_GUARDED_BY(mu_);
  std::optional<Clock::time_point> last_ ABSL_GUARDED_BY(mu_);  // measured then
  std::chrono::seconds wait_ ABSL_GUARDED_BY(mu_){};            // from then to the next
  double beaten_ ABSL_GUARDED_BY(mu_) = 1;                      // the largest share of these limits
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_MACHINE_LIMITS_H_
