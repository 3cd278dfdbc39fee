// Questions about a kernel that a search asks for, which both ends of the tuner's socket have.
#ifndef ATHANOR_SERVER_CHILD_SEARCH_KERNEL_H_
#define ATHANOR_SERVER_CHILD_SEARCH_KERNEL_H_

#include "absl/types/span.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

// Returns what these times count in the sum over the sizes.
double WeightedSeconds(absl::Span<const double> seconds, const internal::SearchKernel& kernel);

// Reports whether these times are less than those of the best kernel of the task so far, in the
// weighted sum over the sizes. REQUIRES: there is one.
bool FasterThanBest(absl::Span<const double> seconds, const internal::SearchKernel& kernel);

// Returns the task's own kernel, the last of the plan that it is checked in: kernels that pack its
// weights come before.
const v1::Kernel& OwnKernel(const v1::Plan& plan);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_SEARCH_KERNEL_H_
