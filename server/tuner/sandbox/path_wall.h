// The files that a process may open, held to by Landlock where the kernel has it.
//
//   absl::StatusOr<int> version = WallPaths({"/usr/lib"});  // 0: there is no Landlock
//
// Walls add up: a file has to be within all that were built. What has no path is not held back:
// memory files, pipes, descriptors that are open.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

// The version of Landlock that this kernel has; 0: none, or it is switched off.
int LandlockVersion();

// The files of this process's shared libraries, without links.
std::vector<std::string> LoadedLibraries();

// Where the loader and the linker find libraries: the folders of those that were loaded at the
// first call, and the loader's index of them.
const std::vector<std::string>& LibraryPaths();

// From now on this thread, and what it starts, opens only files in or at `read`, those that exist,
// and only to read; from version 4 on it connects to no port, from 6 on it sends no signal to and
// finds no socket of a process outside. From the first version on it may look into no process
// outside. Returns LandlockVersion(). REQUIRES: PR_SET_NO_NEW_PRIVS.
absl::StatusOr<int> WallPaths(const std::vector<std::string>& read);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_PATH_WALL_H_
