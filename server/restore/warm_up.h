// What the first run of a plan pays, paid before anybody waits for it: pages of weights and of the
// arena, instructions, the threads' first wake.
#ifndef ATHANOR_SERVER_RESTORE_WARM_UP_H_
#define ATHANOR_SERVER_RESTORE_WARM_UP_H_

#include "absl/status/status.h"
#include "server/models/model_version.h"
#include "server/plans/served_plan.h"

namespace athanor {

// Runs it once on zeros, which are valid inputs everywhere, at the largest sizes if that takes some
// milliseconds only, else at the smallest, else not at all. Nothing is measured or counted.
absl::Status WarmUp(const ModelVersion& version, const ServedPlan& plan);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RESTORE_WARM_UP_H_
