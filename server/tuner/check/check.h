// Checks compiled kernels: runs them as a plan on random inputs and compares what they write with
// the reference evaluator, element by element.
//
//   absl::StatusOr<internal::CheckReply> reply = CheckKernels(request, {.timeout = 5s}, &memory);
//   // reply->worst_error() 0.03: every compared element within 3 % of its tolerance
//
// For each size set of the request: inputs from seeds that follow from request.seed (two, one where
// the reference evaluator takes long, or sizes are sampled); the tolerance of an element is twice
// its bound in error_bound.h. The kernels run in a process of their own (isolated.h), on two
// threads, with every input, parameter and output ending at a page that cannot be touched, inputs
// write-protected, and outputs filled with noise beforehand.
//
// At sampled sizes inputs and parameters repeat their contents (repeated_bytes.h), so they may be
// of any size, and some elements of each output are compared (sampled_check.h). Outputs, and
// weights that a plan prepares, are real memory: beyond the limits' it is RESOURCE_EXHAUSTED.
#ifndef ATHANOR_SERVER_TUNER_CHECK_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/check/references.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Compares with references that `memory` has or makes (references.h).
// DATA_LOSS names output, element, values and sizes of the first difference. INVALID_ARGUMENT: the
// request does not fit together. Besides these, the runtime's errors and RunIsolated's.
absl::StatusOr<internal::CheckReply> CheckKernels(const internal::CheckRequest& request,
                                                  const IsolationLimits& limits,
                                                  ReferenceMemory* memory);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_CHECK_H_
