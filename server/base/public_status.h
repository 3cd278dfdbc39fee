// The codes that leave the server: those of DESIGN §9, whatever a library underneath said.
//
//   PublicStatus(absl::OutOfRangeError("index 7"))    // INVALID_ARGUMENT: index 7
#ifndef ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_
#define ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_

#include "absl/status/status.h"

namespace athanor {

// UNKNOWN never comes out; INTERNAL is a defect of ours, never of a request. The message is cut to
// 2 KiB.
absl::Status PublicStatus(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_
