// The kernels that a search asks to be measured: which schedules of which tasks, within its budget.
//
//   KernelRequests requests(&options, &tasks, &turns);
//   std::vector<int> asked = requests.Tune(best.calls, 0.001);   // empty: nothing gains as much
//   for (int id : asked) requests.Tell(id, Measure(requests.kernel(id)));
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_KERNEL_REQUESTS_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_KERNEL_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/kernels/tuning.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/task_table.h"
#include "compiler/search/search/work_turns.h"

namespace athanor {

class KernelRequests {
 public:
  // Borrows all three.
  KernelRequests(const SearchOptions* options, TaskTable* tasks, WorkTurns* turns);

  // Reports whether the budget allows another kernel.
  bool MayAsk() const { return size() < options_.max_kernels; }
  // Adds the kernel's id to `asked`, unless it was asked for before or the budget is spent.
  void Ask(int task, size_t schedule, std::vector<int>* asked);
  // Asks for the schedules of these tasks that promise most: each more than `least`.
  std::vector<int> Tune(const Calls& calls, double least);
  // Tunes everything ever compared, for a search that exhausts its space.
  std::vector<int> TuneRest();
  // Records an outcome.
  void Tell(int id, const absl::StatusOr<Seconds>& outcome);

  // Returns the gain expected of another schedule of a task, in all its calls.
  double Gain(int task, int calls) const;
  // Returns the task's schedule that equals the best one of the task that got faster last among
  // those around the same contraction; nullopt if there is none.
  std::optional<size_t> Inherited(int task);

  const KernelCandidate& kernel(int id) const { return kernels_[id]; }
  int64_t size() const { return static_cast<int64_t>(kernels_.size()); }
  int64_t failed() const { return failed_; }

 private:
  const SearchOptions& options_;
  TaskTable& tasks_;
  WorkTurns& turns_;
  std::mt19937_64 random_;
  std::vector<KernelCandidate> kernels_;
  std::vector<size_t> schedule_of_;   // by kernel: index in its task's schedules
  std::map<std::string, int> tuned_;  // by anchor: the task that got faster last
  int64_t failed_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_KERNEL_REQUESTS_H_
