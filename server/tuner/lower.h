// Lowers a graph in the child process: from the server's request to the plan and the checks of its
// kernels.
//
//   absl::StatusOr<internal::LowerReply> lowered = LowerGraph(request, 64 << 20);
#ifndef ATHANOR_SERVER_TUNER_LOWER_H_
#define ATHANOR_SERVER_TUNER_LOWER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// INTERNAL: the text is no graph. RESOURCE_EXHAUSTED: the reply has more than `max_bytes`. Besides
// these, the pipeline's errors.
absl::StatusOr<internal::LowerReply> LowerGraph(const internal::LowerRequest& request,
                                                int64_t max_bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_LOWER_H_
