// The plans that a stored version had when the server ended: the registry says which they are, the
// cache what they are.
//
//   absl::StatusOr<std::vector<KeptPlan>> had = FindRemembered(keeper, version);
//   if (had.ok() && ServingOf(*had, version)->whole()) Serve(ServingOf(*had, version));
#ifndef ATHANOR_SERVER_KEEPER_REMEMBERED_H_
#define ATHANOR_SERVER_KEEPER_REMEMBERED_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/model_version.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

// Returns all plans that are there, the latest last; kernels may be missing of the one to serve
// only. NOT_FOUND: the plan that served is not there, or none did. FAILED_PRECONDITION: the machine
// is not known yet.
absl::StatusOr<std::vector<KeptPlan>> FindRemembered(const PlanKeeper& keeper,
                                                     const ModelVersion& version);

// Returns the plan to serve of those FindRemembered found: the pinned one, otherwise the last that
// served.
std::shared_ptr<const CompiledPlan> ServingOf(absl::Span<const KeptPlan> remembered,
                                              const ModelVersion& version);

}  // namespace athanor

#endif  // ATHANOR_SERVER_KEEPER_REMEMBERED_H_
