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

  // Of none.
  BoxContest() = default;
  // Between what is there now.
  BoxContest(const ModelVersion& version, const std::shared_ptr<const BucketGrid>& grid,
             int bucket);

  // Where the box's search begins: its own plan, but the full range's where that was found by a
  // search and this was not. Null: the version was deleted.
  const Plan& leader() const { return own_leads_ ? own_ : full_; }
  // The other; null where there is none, or once it is settled.
  const Plan& rival() const { return own_leads_ ? full_ : own_; }
  bool open() const { return open_; }

  // `leader_by_rival` as the search has timed them at the box's sizes. A rival that is surely
  // faster is the leader from now on; true if so. `share`, if given, is set to what the full
  // range's plan takes there of the box's own plan's time.
  bool Settle(const v1::PlanComparison& leader_by_rival, double* share);
  // Has the version serve the box by the leader. False: it was deleted, or has other boxes.
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
