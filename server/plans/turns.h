// Gives the turns of a device: threads that run plans wait here until TurnOrder lets them.
//
//   ASSIGN_OR_RETURN(Turns::Lease lease, turns.Begin(turn, deadline));
//   ...                                            // the run
//
// Thread-safe. Must outlive the leases.
#ifndef ATHANOR_SERVER_PLANS_TURNS_H_
#define ATHANOR_SERVER_PLANS_TURNS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <utility>

#include "absl/status/statusor.h"
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

  // Holds a turn that has begun, and ends it when destroyed. An empty one holds none.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : turns_(std::exchange(other.turns_, nullptr)), turn_(other.turn_) {}
    Lease& operator=(Lease&& other) noexcept {
      Lease before(std::move(other));
      std::swap(turns_, before.turns_);
      std::swap(turn_, before.turn_);
      return *this;
    }
    ~Lease() {
      if (turns_ != nullptr) turns_->End(turn_);
    }
    explicit operator bool() const { return turns_ != nullptr; }

   private:
    friend class Turns;
    Lease(Turns* turns, const Turn& turn) : turns_(turns), turn_(turn) {}

    Turns* turns_ = nullptr;
    Turn turn_;
  };

  // Waits until the turn may begin. DEADLINE_EXCEEDED: it never began. One that need not wait
  // begins, whatever the deadline.
  absl::StatusOr<Lease> Begin(const Turn& turn, TurnOrder::Clock::time_point deadline);
  // Begins a run, of Turn's usual time, if it need not wait; otherwise returns an empty lease.
  Lease TryRun(TurnOrder::Clock::duration usual = {});
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

  void End(const Turn& turn);
  // Lets those begin that may, and others know when to look again.
  void Grant(TurnOrder::Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Searches& searches_;
  mutable Mutex mu_;
  TurnOrder order_ ABSL_GUARDED_BY(mu_);
  std::list<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  TurnOrder::Clock::time_point next_look_ ABSL_GUARDED_BY(mu_) =
      TurnOrder::Clock::time_point::max();  // as the waiters know it
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_TURNS_H_
