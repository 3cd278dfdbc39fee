// The kernels of a lowered plan, compiled and checked by all workers that have time.
//
//   KernelWork work(std::move(lowered), {.stopped = ..., .compiled = ..., .changed = ...});
//   absl::Status made = work.Finish(backend);       // the worker that builds the plan
//   while (work.HasTask()) work.DoTask(other);      // one that has nothing better to do
//   std::vector<KernelObject> objects = work.TakeObjects();
//
// Each kernel is compiled once, the longest source first, so that no worker is left alone with it
// at the end. A check begins when the kernels that it runs are compiled. What fails at a helper is
// done again by the owner, whose verdict counts: the helper may have been interrupted, or have lost
// its child. After the owner's error no task begins. Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_KERNEL_WORK_H_
#define ATHANOR_SERVER_JOBS_KERNEL_WORK_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/plans/compile_backend.h"

namespace athanor {

class KernelWork {
 public:
  // Called by any worker, without a lock.
  struct Calls {
    // Asked before each task; an error ends the work.
    std::function<absl::Status()> stopped;
    // A kernel was compiled or found.
    std::function<void(int kernel, const KernelObject& object)> compiled;
    // Others may have a task to begin, or none any more.
    std::function<void()> changed;
    std::string device = "";  // that the kernels are for (CompileBackend::Use)
  };

  KernelWork(internal::LowerReply lowered, Calls calls);

  // Does tasks until all are done, others' included. Returns the error of the first that failed
  // here.
  absl::Status Finish(CompileBackend& backend);

  // Reports whether a helper could begin a task.
  bool HasTask() const;
  // Does a task, as a helper, if one can begin.
  void DoTask(CompileBackend& backend);

  const v1::Plan& plan() const { return lowered_.plan(); }
  const std::string& device() const { return calls_.device; }
  // REQUIRES: Finish returned OK; only once. By plan.kernels.
  std::vector<KernelObject> TakeObjects();
  // Returns when the last kernel was compiled. REQUIRES: Finish returned OK.
  std::chrono::steady_clock::time_point compiled() const;

 private:
  // To compile a kernel of the plan, or to do a check.
  struct Task {
    bool check = false;
    int index = 0;
    bool failed = false;  // at a helper; the owner does it
  };

  bool IsReady(const Task& task) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the task that the owner or a helper would begin next; the end of waiting_: none can.
  std::vector<Task>::const_iterator Next(bool owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Task> Take(bool owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does a task that was taken.
  absl::Status Do(const Task& task, CompileBackend& backend);
  // Ends a task that was taken: it is done, or is given back.
  void End(const Task& task, bool done);
  absl::Status Compile(int kernel, CompileBackend& backend);

  const internal::LowerReply lowered_;
  const Calls calls_;
  std::vector<std::vector<int>> runs_;  // by check: the kernels of the plan that it runs
  mutable Mutex mu_;
  CondVar done_;
  std::vector<Task> waiting_ ABSL_GUARDED_BY(mu_);  // in the order they begin
  std::vector<bool> is_compiled_ ABSL_GUARDED_BY(mu_);
  // Written once each, by the worker that compiles it; read by tasks that begin after.
  std::vector<KernelObject> objects_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  std::chrono::steady_clock::time_point last_compiled_ ABSL_GUARDED_BY(mu_) =
      std::chrono::steady_clock::now();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_KERNEL_WORK_H_
