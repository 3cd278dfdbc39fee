// The tasks of a search, each distinct kernel once, and what their calls take.
//
//   TaskTable tasks(context, SearchMode::kBudget);
//   const int task = tasks.Find(graph, index, memory, kernel);   // equal kernels: the same task
//   tasks.at(task).Tell(schedule, seconds);
//   tasks.NoteBest(task);
//   tasks.TimeOf(Calls{{task, 6}});                              // of six layers, weighted
//
// Times are weighted seconds: shares of the baseline's time once SetWeights was called. Used by one
// thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_TASK_TABLE_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_TASK_TABLE_H_

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task_index.h"
#include "compiler/search/kernels/tuning.h"
#include "compiler/search/search/search_options.h"

namespace athanor {

using Calls = std::map<int, int>;  // number of calls by task

class TaskTable {
 public:
  TaskTable(TuningContext context, SearchMode mode);
  TaskTable(const TaskTable&) = delete;
  TaskTable& operator=(const TaskTable&) = delete;

  // Returns the task of one kernel of a graph, which is added if it is new. `nodes`: receives the
  // nodes that the kernel computes, as KernelTask::nodes.
  int Find(const Graph& graph, TaskIndex& index, const std::vector<bool>& memory,
           const KernelChoice& kernel, std::vector<NodeId>* nodes = nullptr);
  Tuning& at(int task) { return tasks_[task]; }
  const Tuning& at(int task) const { return tasks_[task]; }
  int size() const { return static_cast<int>(tasks_.size()); }

  const TuningContext& context() const { return context_; }
  // Makes the baseline's time 1: each size has the same share of the sum of `calls`.
  void SetWeights(const Calls& calls);
  // Computes rooflines and predictions again for a machine that reaches more.
  void RaiseLimits(const Machine& machine);

  // Returns the best time. For a task that is not measured: the least it may take, or in kFast the
  // prediction.
  double TimeOf(const Calls& calls);
  // As TimeOf, but a task that is not measured has its prediction, corrected by its kind's bias.
  double ExpectedOf(const Calls& calls);
  // Returns the least time that may be hoped for.
  double RooflineOf(const Tuning& t) const;
  // Lets rooflines learn from the task's best time. Call it when that time gets better.
  void NoteBest(int task);
  // Corrects later predictions by what measurements took, for each kind of kernel.
  void SettleBias();

 private:
  static constexpr size_t kKinds = static_cast<size_t>(KernelKind::kLoop) + 1;
  static constexpr size_t kMagnitudes = 4;  // of rooflines; caches are modelled only roughly

  static size_t Magnitude(double roofline);
  double TimeOf(Tuning& t) const;

  TuningContext context_;
  const SearchMode mode_;
  std::deque<Tuning> tasks_;                       // borrow context_
  absl::flat_hash_map<std::string, int> task_of_;  // by signature
  // By kind of kernel. slack_: least measured time as a share of the roofline, by magnitude. bias_:
  // measured time over predicted.
  std::array<std::array<double, kMagnitudes>, kKinds> slack_;
  std::array<double, kKinds> bias_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_TASK_TABLE_H_
