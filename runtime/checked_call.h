// Checks a plan's library call against the buffers that it uses.
//
//   ASSIGN_OR_RETURN(LibraryCall call, CheckedCall(step.library_call(), {{"f32", 4096}, ...}));
#ifndef ATHANOR_RUNTIME_CHECKED_CALL_H_
#define ATHANOR_RUNTIME_CHECKED_CALL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/library_call.h"

namespace athanor {

struct CallBuffer {
  std::string dtype;
  int64_t bytes = 0;  // at any size of the bucket, at least
};

// Returns the call. `buffers` are its step's, in order. INVALID_ARGUMENT names the field, and what
// it should be: nothing that the call reads or writes lies outside its buffers.
absl::StatusOr<LibraryCall> CheckedCall(const v1::LibraryCall& from,
                                        absl::Span<const CallBuffer> buffers);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CHECKED_CALL_H_
