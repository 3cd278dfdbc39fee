// Gives the turns of a device: threads that run plans wait here until TurnOrder lets them.
//
//   RETURN_IF_ERROR(turns.Begin(turn, deadline));
//   ...                                            // the run
//   turns.End(turn);
//
// Thread-safe. Must outlive the turns.
#ifndef ATHANOR_SERVER_PLANS_TURNS_H_
#define ATHANOR_SERVER_PLANS_TURNS_H_

#include <atomic>
#include <cstdint>
#include <list>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/turn_order.h"

namespace athanor {

// Counts what searches measure; turns leave gaps while it is above 0.
class Searches {
 public:
  // Counts a piece of a search's work while it lives, unless `searches` is null.
  class Work {
   public:
    explicit Work(Searches* searches) : searches_(searches) { Add(1); }
    ~Work() { Add(-1); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    void Add(int change) {
      if (searches_ != nullptr) searches_->count_ += change;
    }
    Searches* const searches_;
  };

  bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<int> count_{0};
};

class Turns {
 public:
  using Kind = TurnOrder::Kind;
  using Turn = TurnOrder::Turn;

  // `threads` are the device's, at least 1. `searches` outlives this.
  Turns(int threads, const Searches* searches) : searches_(*searches), order_(threads) {}

  // Waits until the turn may begin. DEADLINE_EXCEEDED: it never began. One that need not wait
  // begins, whatever the deadline.
  absl::Status Begin(const Turn& turn, TurnOrder::Clock::time_point deadline);
  // Ends a turn that has begun.
  void End(const Turn& turn);
  // Reports whether a run that begins now would not wait.
  bool RunsAtOnce() const {
    MutexLock lock(mu_);
    return order_.RunsAtOnce();
  }
  // Number of turns that wait.
  int64_t waiting() const {
    MutexLock lock(mu_);
    return static_cast<int64_t>(waiters_.size());
  }

 private:
  struct Waiter {
    Turn turn;
    bool begins = false;
    CondVar told;
  };

  // Lets those begin that may, and others know of the end of a rest.
  void Grant(TurnOrder::Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Searches& searches_;
  mutable Mutex mu_;
  TurnOrder order_ ABSL_GUARDED_BY(mu_);
  std::list<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  TurnOrder::Clock::time_point rest_end_ ABSL_GUARDED_BY(mu_) =
      TurnOrder::Clock::time_point::max();  // as the waiters know it
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_TURNS_H_
