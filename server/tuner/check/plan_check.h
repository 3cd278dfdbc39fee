// Checks a whole plan before it serves: its kernels are checked already, but each against the part
// of the graph it stands for, and a search may have rewritten the graph.
//
//   internal::PlanCheckReply reply = CheckPlan(request, {.timeout = 15s}).value();
//   // reply.compared_with() "f64 plan", reply.worst_error() 0.4: of what is allowed
//
// The candidate, the baseline and the graph's twin in f64 (compiler/ir/sample/widen.h; a plan of
// checked kernels like the baseline) run on the same inputs and weights (plan_runs.h) at every size
// of the request, and the candidate's errors may be twice the baseline's (plan_errors.h). Where
// there is no twin, or it does not fit into memory and time, the reference evaluator computes some
// elements in f64 (compiler/ir/sample/evaluate_at.h); where that takes too long as well, the
// baseline stands for f64 and the floors of plan_errors.h, three times, are what it may be off. The
// reply says which.
//
// Baseline and twin run first, in a process of their own (isolated.h), then the candidate in
// another: what it does to memory costs itself alone.
#ifndef ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// DATA_LOSS names output, sizes, error and what is allowed. INVALID_ARGUMENT: the request does not
// fit together. FAILED_PRECONDITION: the baseline itself could not be run, so nothing is known of
// the candidate. Besides these, the runtime's errors and RunIsolated's, which are the candidate's.
// `limits` hold for each of the two processes.
absl::StatusOr<internal::PlanCheckReply> CheckPlan(const internal::PlanCheckRequest& request,
                                                   const IsolationLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_PLAN_CHECK_H_
