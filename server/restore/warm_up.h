// Pays the extra cost of a plan's first run before any caller waits: page faults for weights and
// arena, instruction cache misses, the first wake-up of threads.
#ifndef ATHANOR_SERVER_RESTORE_WARM_UP_H_
#define ATHANOR_SERVER_RESTORE_WARM_UP_H_

#include "absl/status/status.h"
#include "server/models/model_version.h"
#include "server/plans/served_plan.h"

namespace athanor {

// Runs the plan once on zeros, which are always valid inputs. Uses the largest sizes if that takes
// only some milliseconds, otherwise the smallest, or skips the run. Measures and counts nothing.
absl::Status WarmUp(const ModelVersion& version, const ServedPlan& plan);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RESTORE_WARM_UP_H_
