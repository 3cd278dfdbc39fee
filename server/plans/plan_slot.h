// A slot in which a plan is expected: the job that makes it, the plan once it can run, and the
// calls that wait for it.
//
//   std::shared_ptr<const ServedPlan> plan = slot.plan();     // null: none yet
//   uint64_t id = slot.WhenReady([](absl::Status s) { ... });
//
// A model version has one slot for its full range's plan and one per set of taps. Thread-safe;
// waiters are called without locks.
#ifndef ATHANOR_SERVER_PLANS_PLAN_SLOT_H_
#define ATHANOR_SERVER_PLANS_PLAN_SLOT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/served_plan.h"

namespace athanor {

// A status that shares nothing with the one given. Threads that let go of a shared one meet in a
// counter inside Debian's Abseil, where ThreadSanitizer does not see it.
absl::Status OwnCopy(const absl::Status& status);

class PlanSlot {
 public:
  using Waiter = absl::AnyInvocable<void(absl::Status)>;

  struct View {
    std::shared_ptr<const ServedPlan> plan;
    absl::Status error;      // why the latest job left no plan, or why there will be none
    std::string job_id;      // id of the latest job
    bool compiling = false;  // that job has begun
    // Reports whether there is a plan, or a reason why there is none.
    bool settled() const { return plan != nullptr || !error.ok(); }
  };
  View view() const;
  std::shared_ptr<const ServedPlan> plan() const;

  // Calls `waiter` once: with OK when a plan is there, else with why none will be. At once if that
  // is known. The result is for StopWaiting; 0 if the waiter was called.
  uint64_t WhenReady(Waiter waiter);
  // True: the waiter will not be called.
  bool StopWaiting(uint64_t id);

  // A job is queued, or begins (`compiling`). A plan stays until the job has made another.
  void SetJob(const std::string& job_id, bool compiling);
  // False after Close; then the plan is dropped.
  bool Set(std::shared_ptr<const ServedPlan> plan);
  // Notes why the job made no plan, unless a plan is there.
  void Fail(const absl::Status& error);
  // Answers every waiter, later ones too, with `status` while there is no plan; leaves the rest.
  void Refuse(const absl::Status& status);
  // Drops the plan, and answers every waiter, later ones too, with `status` until another is there
  // or a job begins.
  void Withdraw(const absl::Status& status);
  // For good: drops the plan, and answers every waiter, later ones too, with `status`.
  void Close(const absl::Status& status);

 private:
  using Waiters = std::vector<std::pair<uint64_t, Waiter>>;
  // Returns what a waiter would be told now; nullopt while that is open.
  std::optional<absl::Status> Verdict() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Tell(Waiters waiters, const absl::Status& status);

  mutable Mutex mu_;
  View view_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_waiter_ ABSL_GUARDED_BY(mu_) = 0;
  Waiters waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_SLOT_H_
