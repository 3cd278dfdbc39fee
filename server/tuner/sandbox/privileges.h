// Drops the privileges of a process of root or of a user with capabilities.
//
//   std::string user = DropPrivileges(/*another_user=*/true);  // "user 65534, no capabilities"
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// The user id that a process of root changes to: "nobody".
inline constexpr int kNobody = 65534;

// Drops all capabilities of this process, and keeps processes it starts from having any. A process
// of root changes to kNobody if `another_user` is set, it is permitted to, its parent may still
// kill it afterwards (CAP_KILL), and kNobody can read the loaded libraries. Returns a description
// of the resulting user for the log. Returns FAILED_PRECONDITION if a capability remains.
absl::StatusOr<std::string> DropPrivileges(bool another_user);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_PRIVILEGES_H_
