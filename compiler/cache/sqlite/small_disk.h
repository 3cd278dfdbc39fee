// A disk of 1 MiB, for tests of full disks.
//
//   EXPECT_EQ(OnASmallDisk(folder, [&]() -> std::string { ...; return ""; }), "");
#ifndef ATHANOR_COMPILER_CACHE_SQLITE_SMALL_DISK_H_
#define ATHANOR_COMPILER_CACHE_SQLITE_SMALL_DISK_H_

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace athanor {

// Runs `body` in a process of its own with a disk of 1 MiB mounted at `folder`. Returns the fault
// that `body` returns, or says why no such disk can be mounted; empty: no fault.
inline std::string OnASmallDisk(const std::string& folder,
                                const std::function<std::string()>& body) {
  const auto mounted = [&]() -> std::string {
    const std::string ids = absl::StrCat("0 ", getuid(), " 1");
    if (unshare(CLONE_NEWNS) != 0) {
      if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no mount namespace is permitted";
      std::ofstream("/proc/self/uid_map") << ids;
    }
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mounts are shared";
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") != 0) return "tmpfs is not permitted";
    return "";
  };
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    std::string wrong = mounted();
    if (wrong.empty()) wrong = body();
    const ssize_t written = write(ends[1], wrong.data(), wrong.size());
    _exit(written == static_cast<ssize_t>(wrong.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string wrong(4096, '\0');
  wrong.resize(
      static_cast<size_t>(std::max<ssize_t>(0, read(ends[0], wrong.data(), wrong.size()))));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) wrong += absl::StrCat(" (the process ended with ", status, ")");
  return wrong;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_SQLITE_SMALL_DISK_H_
