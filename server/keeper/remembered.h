// The plans that a stored version had when the server ended. The registry has their ids, the cache
// their contents.
//
//   absl::StatusOr<Remembered> had = FindRemembered(keeper, version);
//   if (had.ok() && had->missing.empty()) Serve(had->serving);
#ifndef ATHANOR_SERVER_KEEPER_REMEMBERED_H_
#define ATHANOR_SERVER_KEEPER_REMEMBERED_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/model_version.h"
#include "server/plans/kept_plans.h"

namespace athanor {

struct Remembered {
  std::shared_ptr<PlanSearch::Found> serving;  // the pinned plan, else the last one that served
  std::vector<int> missing;                    // indices of its kernels without objects
  // All available plans, `serving` among them, the latest last.
  std::vector<KeptPlans::Kept> kept;
};

// Returns NOT_FOUND if the plan that served is missing or none served, FAILED_PRECONDITION if the
// machine is not known yet.
absl::StatusOr<Remembered> FindRemembered(const PlanKeeper& keeper, const ModelVersion& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_REMEMBERED_H_
