// Checks compiled kernels: runs them as a plan on random inputs and compares what they write with
// the reference evaluator, element by element.
//
//   absl::StatusOr<double> worst = CheckKernels(request, {.timeout = 5s});
//   // 0.03: every element within 3 % of its tolerance
//
// For each size set of the request: inputs from seeds that follow from request.seed (two, one where
// the reference evaluator takes long); the tolerance of an element is twice its bound in
// error_bound.h. The kernels run in a process of their own (isolated.h), on two threads, with every
// input, parameter and output ending at a page that cannot be touched, inputs write-protected, and
// outputs filled with noise beforehand.
#ifndef ATHANOR_SERVER_TUNER_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/isolated.h"

namespace athanor {

// The largest error in units of the tolerance, at most 1. DATA_LOSS names output, element, values
// and sizes of the first difference. INVALID_ARGUMENT: the request does not fit together. Besides
// these, the runtime's errors and RunIsolated's.
absl::StatusOr<double> CheckKernels(const internal::CheckRequest& request,
                                    const IsolationLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_H_
