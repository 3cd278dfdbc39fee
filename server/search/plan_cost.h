// What the steps of a plan's run cost at one size: operations and bytes as the plan counts them,
// and the least time the machine allows for them.
//
//   v1::PlanCost cost = CountCost(plan, {8, 64}, limits);
#ifndef ATHANOR_SERVER_SEARCH_PLAN_COST_H_
#define ATHANOR_SERVER_SEARCH_PLAN_COST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// `sizes` are values of plan.dims, in order. Seconds are left to the caller. A step whose bytes fit
// into the last-level cache is bounded by the cache's bandwidth: the step before may have left them
// there. Of `limits` 0 is not known.
v1::PlanCost CountCost(const v1::Plan& plan, absl::Span<const int64_t> sizes,
                       const internal::MachineReply& limits = {});

// The largest share of a limit that a run of `seconds` reached: of the arithmetic peak, and of
// memory's bandwidth if its steps move more than the caches hold. Above 1 the limit was measured
// too low.
double ReachedShare(const v1::Plan& plan, absl::Span<const int64_t> sizes, double seconds,
                    const internal::MachineReply& limits);

// Bytes of the arena that a run at these sizes touches: what lies between the plan's steps.
int64_t ActivationBytes(const v1::Plan& plan, absl::Span<const int64_t> sizes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_SEARCH_PLAN_COST_H_
