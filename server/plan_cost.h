// What the steps of a plan's run cost at one size: operations and bytes as the plan counts them,
// and the least time the machine allows for them.
//
//   v1::PlanCost cost = CountCost(plan, {8, 64}, limits);
#ifndef ATHANOR_SERVER_PLAN_COST_H_
#define ATHANOR_SERVER_PLAN_COST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// What a machine reaches; 0: not known.
struct MachineLimits {
  double read_bytes_per_second = 0;   // beyond the caches
  double cache_bytes_per_second = 0;  // from the last-level cache
  double f32_flops_per_second = 0;
};

// `sizes` are values of plan.dims, in order. Seconds are left to the caller. A step whose bytes fit
// into the last-level cache is bounded by the cache's bandwidth: the step before may have left them
// there.
v1::PlanCost CountCost(const v1::Plan& plan, absl::Span<const int64_t> sizes,
                       const MachineLimits& limits = {});

// Bytes of the arena that a run at these sizes touches: what lies between the plan's steps.
int64_t ActivationBytes(const v1::Plan& plan, absl::Span<const int64_t> sizes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLAN_COST_H_
