// A kernel task in a search: the schedules it may have and what was measured of them.
//
//   Tuning t(task, &context);
//   while (auto schedule = t.Pick(random)) t.Tell(t.Ask(*schedule),
//   Measure(t.schedule(*schedule))); t.best_schedule();
//
// Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_KERNELS_TUNING_H_
#define ATHANOR_COMPILER_SEARCH_KERNELS_TUNING_H_

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/search/kernels/cost.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Seconds of one call at each of the sizes of a search.
using Seconds = std::vector<double>;

// What all tasks of a search share.
struct TuningContext {
  v1::Target target;
  Machine machine;
  std::vector<SizePoint> sizes;
  // What a second counts at each size; empty until the baseline's times are known, and no schedule
  // but the one a task starts with is looked at until then.
  Seconds weights;

  double Weighted(const Seconds& seconds) const;
};

class Tuning {
 public:
  // Borrows the context.
  Tuning(KernelTask task, const TuningContext* context);

  const KernelTask& task() const { return task_; }
  const Seconds& roofline() const { return roofline_; }
  const Seconds& start() const { return start_; }  // predicted, of the schedule it starts with
  const Seconds& first() const { return first_; }  // of the first that was measured
  const Seconds& best() const { return best_; }    // empty: nothing measured
  int measured() const { return measured_; }       // failed ones included
  int failed() const { return failed_; }
  int since_better() const { return since_better_; }
  bool Failed() const { return measured_ > 0 && best_.empty(); }

  // The first is the one the task starts with, the others come by prediction.
  const KernelChoice& schedule(size_t index) const { return schedules_[index]; }
  bool asked(size_t index) const { return asked_[index]; }
  int best_schedule() const { return best_schedule_; }  // -1: nothing measured

  // What the roofline, the start's and the best predicted schedule weigh.
  double WeightedRoofline() const { return context_.Weighted(roofline_); }
  double PredictedStart() const { return context_.Weighted(start_); }
  double PredictedBest();
  // That one; of all schedules, the start included.
  size_t BestPredicted();

  // Predictions and rooflines as the context's machine has them now. The order of the schedules
  // stays.
  void Reprice();

  // No schedule is left that was not asked for.
  bool Exhausted();
  // The next schedule worth measuring; none: nothing left.
  std::optional<size_t> Pick(std::mt19937_64& random);
  // The schedule of another task's choice, if it is one of this one's.
  std::optional<size_t> Find(const KernelChoice& like);
  // To be answered by Tell.
  void Ask(size_t schedule);
  // True: it is the best so far.
  bool Tell(size_t schedule, const absl::StatusOr<Seconds>& outcome);

 private:
  void Rank();
  std::vector<TaskCost> Costs() const;  // by size
  // By `costs`, weighted.
  double Predicted(const std::vector<TaskCost>& costs, const KernelChoice& choice) const;
  std::optional<size_t> OpenNeighbour();

  const TuningContext& context_;
  const KernelTask task_;
  Seconds roofline_, start_;
  std::vector<KernelChoice> schedules_;
  std::vector<double> predicted_;  // by schedule, weighted
  std::vector<bool> asked_;
  absl::flat_hash_map<std::string, size_t> by_text_;  // of the first `named_`
  size_t named_ = 0;
  bool ranked_ = false;
  size_t next_unasked_ = 0;
  int asked_count_ = 0;

  Seconds first_, best_;
  int best_schedule_ = -1;
  std::vector<size_t> near_;  // neighbours of the schedule near_to_
  int near_to_ = -1;
  int measured_ = 0, failed_ = 0;
  int since_better_ = 0;  // measured since the best was found
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_TUNING_H_
