// A kernel task in a search: the schedules it may have and the times measured so far.
//
//   Tuning t(task, &context);
//   while (auto s = t.Pick(random)) {
//     t.Ask(*s);
//     t.Tell(*s, Measure(t.schedule(*s)));
//   }
//   t.best_schedule();
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

// Seconds of one call at each of the search's sizes.
using Seconds = std::vector<double>;

// Data that all tasks of a search share.
struct TuningContext {
  v1::Target target;
  Machine machine;
  std::vector<SizePoint> sizes;
  // Weight of a second at each size. Empty until the baseline's times are known; until then a task
  // looks at no schedule but the one it starts with.
  Seconds weights;
  // Schedules compute in the orders of the one that a task starts with (signature.h).
  bool fixed_sums = false;

  double Weighted(const Seconds& seconds) const;
};

class Tuning {
 public:
  // Borrows the context.
  Tuning(KernelTask task, const TuningContext* context);

  const KernelTask& task() const { return task_; }
  const Seconds& roofline() const { return roofline_; }
  const Seconds& start() const { return start_; }  // predicted for the schedule it starts with
  const Seconds& first() const { return first_; }  // of the first schedule that was measured
  const Seconds& best() const { return best_; }    // empty: nothing measured
  int measured() const { return measured_; }       // failed ones included
  int failed() const { return failed_; }
  int since_better() const { return since_better_; }
  bool Failed() const { return measured_ > 0 && best_.empty(); }

  // Index 0 is the schedule the task starts with; the others are ordered by prediction.
  const KernelChoice& schedule(size_t index) const { return schedules_[index]; }
  bool asked(size_t index) const { return asked_[index]; }
  int best_schedule() const { return best_schedule_; }  // -1: nothing measured

  // Weighted seconds of the roofline, of the starting schedule and of the best predicted one.
  double WeightedRoofline() const { return context_.Weighted(roofline_); }
  double PredictedStart() const { return context_.Weighted(start_); }
  double PredictedBest();
  // Returns the index of the schedule with the best prediction, the starting one included.
  size_t BestPredicted();

  // Computes predictions and rooflines again for the context's present machine. The order of the
  // schedules stays.
  void Reprice();

  // Reports whether every schedule was asked for.
  bool Exhausted();
  // Returns the next schedule worth measuring; nullopt if none is left.
  std::optional<size_t> Pick(std::mt19937_64& random);
  // Returns the schedule that equals another task's choice; nullopt if there is none.
  std::optional<size_t> Find(const KernelChoice& like);
  // Marks the schedule as asked for; Tell answers it.
  void Ask(size_t schedule);
  // Records an outcome. Returns true if it is the best so far. OUT_OF_RANGE: the library has no
  // such proposal for a call, and so none of the later ones, which are not asked for.
  bool Tell(size_t schedule, const absl::StatusOr<Seconds>& outcome);

 private:
  void Rank();
  std::vector<TaskCost> Costs() const;  // by size
  // Returns the prediction by `costs`, weighted.
  double Predicted(const std::vector<TaskCost>& costs, const KernelChoice& choice) const;
  std::optional<size_t> OpenNeighbour();
  void LeaveOutProposalsBehind(size_t schedule);

  const TuningContext& context_;
  const KernelTask task_;
  Seconds roofline_, start_;
  std::vector<KernelChoice> schedules_;
  std::vector<double> predicted_;  // by schedule, weighted
  std::vector<bool> asked_;
  // index by ScheduleText; holds the first `named_`
  absl::flat_hash_map<std::string, size_t> by_text_;
  size_t named_ = 0;
  bool ranked_ = false;
  size_t next_unasked_ = 0;
  int asked_count_ = 0;

  Seconds first_, best_;
  int best_schedule_ = -1;
  std::vector<size_t> near_;  // neighbours of the schedule near_to_
  int near_to_ = -1;
  int measured_ = 0, failed_ = 0;
  int since_better_ = 0;  // measurements since the best was found
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_KERNELS_TUNING_H_
