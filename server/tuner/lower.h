// Lowers a graph in the child process: turns the server's request into the plan and the checks of
// its kernels.
//
//   absl::StatusOr<internal::LowerReply> lowered = LowerGraph(request, 64 << 20);
#ifndef ATHANOR_SERVER_TUNER_LOWER_H_
#define ATHANOR_SERVER_TUNER_LOWER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// Returns INTERNAL if the text is not a graph, RESOURCE_EXHAUSTED if the reply is larger than
// `max_bytes`, and otherwise the pipeline's errors.
absl::StatusOr<internal::LowerReply> LowerGraph(const internal::LowerRequest& request,
                                                int64_t max_bytes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_LOWER_H_
