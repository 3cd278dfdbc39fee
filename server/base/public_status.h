// Maps any status to the codes that the server may return (DESIGN §9).
//
//   PublicStatus(absl::OutOfRangeError("index 7"))    // INVALID_ARGUMENT: index 7
#ifndef ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_
#define ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_

#include "absl/status/status.h"

namespace athanor {

// Never returns UNKNOWN. INTERNAL means a defect of the server, never a bad request. Cuts the
// message to 2 KiB.
absl::Status PublicStatus(const absl::Status& status);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_PUBLIC_STATUS_H_
