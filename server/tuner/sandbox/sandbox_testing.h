// Runs code in the sandboxes of a tuner process, of a kernel's process, and of one that runs
// kernels for a device worker.
//
//   const Confined result = RunConfined(kKernel, {.paths = false}, [] { return Try(SYS_fork); });
//   EXPECT_EQ(result.ended_by, SIGSYS);
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_TESTING_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_TESTING_H_

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {

enum Level { kTuner, kKernel, kWorker };
inline constexpr Level kAllLevels[] = {kTuner, kKernel, kWorker};

// The restrictions that a system may lack.
struct Walls {
  bool paths = true;
  bool user = true;
  bool driver = false;  // there is a GPU's driver, which has few
};
inline constexpr Walls kAllWalls[] = {{true, true}, {true, false}, {false, true}, {false, false}};

inline std::string ToString(Level level, Walls walls) {
  return std::string(level == kTuner    ? "tuner"
                     : level == kKernel ? "kernel"
                                        : "worker") +
         (walls.paths ? ", Landlock" : "") + (walls.user ? ", another user" : "");
}

// Returns 0, or the errno of a system call.
template <typename... Arguments>
int Try(long call, Arguments... arguments) {
  return syscall(call, arguments...) < 0 ? errno : 0;
}

struct Confined {
  int ended_by = 0;       // signal
  int value = -1;         // result of the code; -1: it did not finish
  char walls[1000] = {};  // description of the restrictions, or why they failed
};

// Runs `code` in the given sandbox. REQUIRES: this process has one thread.
inline Confined RunConfined(Level level, Walls walls, const std::function<int()>& code) {
  auto* shared = static_cast<Confined*>(
      mmap(nullptr, sizeof(Confined), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  *shared = Confined();
  const auto wait = [shared](pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) shared->ended_by = WTERMSIG(status);
  };
  const pid_t test = getpid();
  const pid_t tuner = fork();
  if (tuner == 0) {
    const absl::StatusOr<std::string> confined = ConfineTuner({.parent = test,
                                                               .wall_paths = walls.paths,
                                                               .another_user = walls.user,
                                                               .gpu_driver = walls.driver});
    const std::string words = confined.ok() ? *confined : confined.status().ToString();
    std::memcpy(shared->walls, words.data(), std::min(words.size(), sizeof(shared->walls) - 1));
    if (!confined.ok()) _exit(1);
    const pid_t self = getpid();
    if (level != kTuner) {
      const pid_t kernel = fork();
      if (kernel != 0) {
        wait(kernel);
        _exit(0);
      }
      absl::Status status = DieWith(self);
      if (status.ok())
        status = level == kKernel ? ConfineKernel(/*cpu_seconds=*/60) : ConfineWorker({});
      if (!status.ok()) _exit(1);
    }
    shared->value = code();
    _exit(0);
  }
  wait(tuner);
  const Confined result = *shared;
  munmap(shared, sizeof(Confined));
  return result;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_TESTING_H_
