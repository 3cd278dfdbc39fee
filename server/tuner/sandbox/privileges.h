// Gives up what a process of root, or of a user with capabilities, may do.
//
//   std::string user = DropPrivileges(/*another_user=*/true);  // "user 65534, no capabilities"
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// The user that root's process becomes: "nobody".
inline constexpr int kNobody = 65534;

// From now on this process has no capability, and starts nobody who has one. One of root becomes
// kNobody with `another_user`, if it may, if its parent may still end it then (CAP_KILL) and if
// kNobody can read the libraries that are loaded. Says in words who it is, for the log.
// FAILED_PRECONDITION: a capability stays.
absl::StatusOr<std::string> DropPrivileges(bool another_user);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_
