// The plans that a stored version had when the server ended: which they are, the registry says;
// what they are, the cache.
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
  std::shared_ptr<PlanSearch::Found> serving;  // the pinned one, else the last that served
  std::vector<int> missing;                    // its kernels without objects
  // All that are there, `serving` among them, the latest last.
  std::vector<KeptPlans::Kept> kept;
};

// NOT_FOUND: what served is not there, or nothing did. FAILED_PRECONDITION: the machine is not
// known yet.
absl::StatusOr<Remembered> FindRemembered(const PlanKeeper& keeper, const ModelVersion& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_REMEMBERED_H_
