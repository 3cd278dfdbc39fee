// The plans that a search proposed, and how far whole plans hold what the sums of their kernels
// promise.
//
//   ProposedPlans plans(options.least_gain);
//   if (plans.Promises(predicted, 0.02)) {
//     std::optional<int> id = plans.Add(std::move(plan));   // nullopt: proposed before
//     if (id) plans.Tell(*id, true, 0.93);
//   }
//
// Times are shares of the baseline's. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_PROPOSED_PLANS_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_PROPOSED_PLANS_H_

#include <deque>
#include <optional>
#include <set>
#include <string>

#include "compiler/search/search/search_options.h"

namespace athanor {

class ProposedPlans {
 public:
  // `least_gain`: least share of the whole time that makes a plan worth proposing.
  explicit ProposedPlans(double least_gain) : least_gain_(least_gain) {}

  // Reports whether a plan of this predicted time should gain that much over the serving one.
  bool Promises(double predicted, double gain) const { return predicted <= served_ * (1 - gain); }
  // Returns the plan's id; nullopt if an equal one was added or serves already.
  std::optional<int> Add(PlanCandidate plan);
  // Marks a plan as proposed because it serves already.
  void AddServing(int form, const ScheduledGraph& scheduled);
  // Records an outcome, as Search::TellPlan.
  void Tell(int id, bool taken, std::optional<double> ratio);

  const PlanCandidate& plan(int id) const { return plans_[id]; }
  int size() const { return static_cast<int>(plans_.size()); }
  // Returns the plan that was taken last; null if none was.
  const PlanCandidate* taken() const { return taken_ < 0 ? nullptr : &plans_[taken_]; }
  // Returns the time of the last plan over the sum of its kernels, at least 1.
  double unheld() const { return unheld_; }

 private:
  const double least_gain_;
  std::deque<PlanCandidate> plans_;
  std::set<std::string> texts_;  // of genomes proposed
  double served_ = 1;         // predicted share at which a plan would be as fast as the serving one
  double serving_share_ = 1;  // measured time of what serves, as a share of the baseline's
  double unheld_ = 1;
  int taken_ = -1;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_PROPOSED_PLANS_H_
