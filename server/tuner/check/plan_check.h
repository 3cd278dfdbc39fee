// Checks a whole plan before it serves. Its kernels are already checked, but each only against its
// own part of the graph, and a search may have rewritten the graph.
//
//   internal::PlanCheckReply reply = CheckPlan(request, {.timeout = 15s}).value();
//   // reply.compared_with() "f64 plan", reply.worst_error() 0.4 of the tolerance
//
// At every size of the request, the candidate, the baseline and the graph's twin in f64 run on the
// same inputs and weights (plan_runs.h). The twin (compiler/ir/sample/widen.h) is a plan of checked
// kernels, like the baseline. The candidate's errors may be twice the baseline's (plan_errors.h).
// If there is no twin, or it exceeds memory or time, the reference evaluator computes some elements
// in f64 (compiler/ir/sample/evaluate_at.h). If that takes too long too, the baseline replaces f64,
// and the tolerance is three times the floors of plan_errors.h. The reply names the reference used.
//
// Baseline and twin run first, in their own process (isolated.h), then the candidate in another: a
// candidate that corrupts memory harms only itself. A device worker runs both: what baseline and
// twin gave is taken out of its memory before the candidate runs.
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Returns DATA_LOSS naming output, sizes, error and tolerance; INVALID_ARGUMENT if the request is
// inconsistent; FAILED_PRECONDITION if the baseline itself could not be run, so nothing is known
// about the candidate; UNAVAILABLE if a process was lost or a GPU's memory short, which says
// nothing of any of them; otherwise the runtime's errors and RunIsolated's, which are the
// candidate's. `limits` apply to each of the two processes.
absl::StatusOr<internal::PlanCheckReply> CheckPlan(const internal::PlanCheckRequest& request,
                                                   const IsolationLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_
