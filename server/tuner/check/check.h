// Checks compiled kernels: runs them as a plan on random inputs and compares their outputs with the
// reference evaluator's, element by element.
//
//   absl::StatusOr<internal::CheckReply> reply = CheckKernels(request, {.timeout = 5s}, &memory);
//   // reply->worst_error() 0.03: every compared element within 3 % of its tolerance
//
// For each size set of the request, draws inputs from seeds derived from request.seed (two seeds,
// or one if the reference evaluator takes long or sizes are sampled). The tolerance of an element
// is twice its bound in error_bound.h. The kernels run in their own process (isolated.h), on two
// threads, with every input, parameter and output ending at an inaccessible page, inputs
// write-protected, and outputs filled with noise beforehand.
//
// At sampled sizes inputs and parameters repeat their contents (repeated_bytes.h), so they may have
// any size, and only some elements of each output are compared (sampled_check.h). Outputs, and
// weights that a plan prepares, are real memory: above the limits they are RESOURCE_EXHAUSTED.
#ifndef ATHANOR_SERVER_TUNER_CHECK_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_CHECK_H_

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "server/tuner/check/references.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Compares with the references that `memory` holds or makes (references.h). Returns DATA_LOSS
// naming output, element, values and sizes of the first difference, INVALID_ARGUMENT if the request
// is inconsistent, and otherwise the runtime's errors and RunIsolated's.
absl::StatusOr<internal::CheckReply> CheckKernels(const internal::CheckRequest& request,
                                                  const IsolationLimits& limits,
                                                  ReferenceMemory* memory);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_CHECK_H_
