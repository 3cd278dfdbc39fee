// A box of a version's dims between two plans: its own, and that of the full range, which serves
// its sizes as well and may be faster there, once a search has found one of the two.
//
//   BoxContest contest(version, grid, bucket);
//   auto search = backend->NewSearch(graph, *contest.leader(), options);
//   if (contest.open()) ... search->CompareWith(*contest.rival()) ...
//   contest.Settle(comparison.low() > 1, registry);
//
// Used by one thread.
#ifndef ATHANOR_SERVER_JOBS_BOX_CONTEST_H_
#define ATHANOR_SERVER_JOBS_BOX_CONTEST_H_

#include <memory>
#include <string>

#include "proto/athanor/v1/search.pb.h"
#include "server/models/model_version.h"
#include "server/plans/bucket_grid.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

class BoxContest {
 public:
  using Plan = std::shared_ptr<const CompiledPlan>;

  // Without plans.
  BoxContest() = default;
  // Between the plans that serve now.
  BoxContest(const ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
             int bucket);

  // Returns the plan at which the box's search begins: its own, unless only the full range's was
  // found by a search. Null: the version was deleted.
  const Plan& leader() const { return own_leads_ ? own_ : full_; }
  // Returns the other plan; null if there is none.
  const Plan& rival() const { return own_leads_ ? full_ : own_; }
  bool open() const { return open_; }

  // Decides by `leader_by_rival`, as the search timed them at the box's sizes. A rival that is
  // surely faster leads from now on; returns true then. Sets `share`, if given, to the full range's
  // plan's time divided by that of the box's own.
  bool Settle(const v1::PlanComparison& leader_by_rival, double* share);
  // Serves the box by the leader. False: the version was deleted, or has other boxes.
  bool Serve(ModelVersion& version) const;

  const Plan& own() const { return own_; }
  const Plan& full() const { return full_; }

 private:
  std::shared_ptr<const BucketGrid> grid_;
  int bucket_ = 0;
  Plan own_, full_;
  bool own_leads_ = false;
  bool open_ = false;
  double share_ = 1;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_BOX_CONTEST_H_
