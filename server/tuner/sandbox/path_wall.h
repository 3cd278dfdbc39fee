// Restricts the files that a process may open, by Landlock if the kernel has it.
//
//   absl::StatusOr<int> version = WallPaths({"/usr/lib"});  // 0: there is no Landlock
//
// Restrictions add up: a file must be permitted by every call so far. Objects without a path are
// not restricted: memory files, pipes, open descriptors.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// Returns the kernel's Landlock version; 0 if there is none or it is switched off.
int LandlockVersion();

// Returns the files of this process's shared libraries, with links resolved.
std::vector<std::string> LoadedLibraries();

// Returns the places where the loader and the linker find libraries: the folders of the libraries
// that were loaded at the first call, and the loader's index of them.
const std::vector<std::string>& LibraryPaths();

// Restricts this thread, and the processes and threads it starts, to opening files in or at `read`,
// read-only; paths that do not exist are skipped. Denies connecting to ports (Landlock version 4
// on), sending signals to and finding sockets of outside processes (version 6 on), and inspecting
// outside processes (version 1 on). Returns LandlockVersion(). REQUIRES: PR_SET_NO_NEW_PRIVS.
absl::StatusOr<int> WallPaths(const std::vector<std::string>& read);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_
