#include "server/tuner/sandbox/privileges.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/tuner/sandbox/path_wall.h"

namespace athanor {
namespace {

// The layout of the capability system calls: low and high half.
struct Capabilities {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};

  bool Read() { return syscall(SYS_capget, &header, data) == 0; }
  bool Write() { return syscall(SYS_capset, &header, data) == 0; }
  bool has(int capability) const {
    return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
  }
  bool none() const {
    return std::all_of(data, data + 2, [](const auto& half) {
      return half.effective == 0 && half.permitted == 0 && half.inheritable == 0;
    });
  }
};

// Empties the set of capabilities that processes started by this one could have. Without
// CAP_SETPCAP this fails; then PR_SET_NO_NEW_PRIVS keeps them from gaining any.
void EmptyBoundingSet() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

// REQUIRES: kNobody is the effective user.
bool LibrariesAreReadable() {
  const std::vector<std::string> libraries = LoadedLibraries();
  return std::all_of(libraries.begin(), libraries.end(), [](const std::string& path) {
    return faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) == 0;
  });
}

// Returns an empty string if done, otherwise why this process keeps its user.
std::string BecomeNobody(const Capabilities& now) {
  if (!now.has(CAP_SETUID) || !now.has(CAP_SETGID)) return "CAP_SETUID and CAP_SETGID are missing";
  if (!now.has(CAP_KILL)) return "CAP_KILL is missing";
  if (setgroups(0, nullptr) != 0 || setegid(kNobody) != 0 || seteuid(kNobody) != 0) {
    const std::string why = absl::StrCat("user ", kNobody, ": ", std::strerror(errno));
    return setegid(getgid()) == 0 ? why : absl::StrCat(why, ", and its group");
  }
  const bool readable = LibrariesAreReadable();
  if (seteuid(0) != 0 || setegid(getgid()) != 0) return "its own user does not come back";
  if (!readable) return absl::StrCat("user ", kNobody, " cannot read this program's libraries");
  if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0) {
    return absl::StrCat("user ", kNobody, ": ", std::strerror(errno));
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> DropPrivileges(bool another_user) {
  Capabilities now;
  if (!now.Read()) return absl::FailedPreconditionError("capget fails");
  EmptyBoundingSet();
  std::string stays;
  if (another_user && geteuid() == 0) stays = BecomeNobody(now);
  Capabilities none;
  if (!none.Write() || !none.Read() || !none.none()) {
    return absl::FailedPreconditionError(
        absl::StrCat("giving up capabilities: ", std::strerror(errno)));
  }
  std::string who = absl::StrCat("user ", getuid(), " without capabilities");
  if (!stays.empty()) absl::StrAppend(&who, " (not another: ", stays, ")");
  return who;
}

}  // namespace athanor
