// Calls functions at given times on one thread, unless cancelled before.
//
//   Timer::Id id = timer.At(deadline, [=] { ... });
//   if (timer.Cancel(id)) { /* it will not run */ }
//
// Thread-safe. A function must be short and must not wait; it may call At and Cancel.
#ifndef ATHANOR_SERVER_BASE_TIMER_H_
#define ATHANOR_SERVER_BASE_TIMER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class Timer {
 public:
  using Clock = std::chrono::steady_clock;
  using Id = uint64_t;  // never 0

  Timer();
  ~Timer();  // functions not yet run never run

  Id At(Clock::time_point when, absl::AnyInvocable<void()> work);
  // Returns false if the function has run, is running or was cancelled.
  bool Cancel(Id id);

 private:
  void Loop();
  using Key = std::pair<Clock::time_point, Id>;

  Mutex mu_;
  CondVar cv_;
  std::map<Key, absl::AnyInvocable<void()>> pending_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Id, Clock::time_point> when_ ABSL_GUARDED_BY(mu_);
  Id last_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_TIMER_H_
