// Checks a plan's library call against the buffers that it uses.
//
//   ASSIGN_OR_RETURN(std::vector<LibraryCall> ways,
//                    CheckedCall(step.library_call(), /*most_rows=*/64, {{"f32", 4096}, ...}));
//   RETURN_IF_ERROR(CompleteCall(object, &ways));  // a v1::LibraryObject's bytes
#ifndef ATHANOR_RUNTIME_PROGRAM_CHECKED_CALL_H_
#define ATHANOR_RUNTIME_PROGRAM_CHECKED_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/library_call.h"

namespace athanor {

struct CallBuffer {
  std::string dtype;
  int64_t bytes = 0;  // that are its own at every size of the bucket
};

// Counts the bytes of a call's buffers that one way touches, in the order of the step's.
using TouchedBytes = std::vector<int64_t>;

inline constexpr int kMostWays = 8;
// Divides a workspace's offset in the arena, as cuBLASLt wants it (NVIDIA's reference of
// cublasLtMatmul).
inline constexpr int64_t kWorkspaceAlignment = 256;

// Returns the call in each of its ways, by ascending rows, without library and algorithm.
// `most_rows` is the most that is ever wanted; `buffers` are the step's, in order. INVALID_ARGUMENT
// names the field, and what it should be: nothing that the call reads or writes lies outside its
// buffers.
absl::StatusOr<std::vector<LibraryCall>> CheckedCall(const v1::LibraryCall& from, int64_t most_rows,
                                                     absl::Span<const CallBuffer> buffers);

// Gives a call's ways what the object of their kernel has: the library and their algorithms.
// INVALID_ARGUMENT says what is wrong with the object. Device::CheckCall() has the library look at
// them.
absl::Status CompleteCall(absl::string_view object, std::vector<LibraryCall>* ways);

// REQUIRES: the call is one of CheckedCall's
TouchedBytes TouchedBy(const LibraryCall& call);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_PROGRAM_CHECKED_CALL_H_
