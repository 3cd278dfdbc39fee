#include "server/child/child_reaper.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

namespace athanor {

ChildReaper::ChildReaper(pid_t pid) : pid_(pid) {
  try {
    thread_ = std::thread([this] { Reap(); });
  } catch (const std::system_error&) {
  }
}

void ChildReaper::Reap() {
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  MutexLock lock(mu_);
  // A checked kernel's process is in the group.
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  // It is this process's own now where this is the first of a container.
  while (waitpid(-pid_, nullptr, 0) > 0 || errno == EINTR) {
  }
  reaped_ = true;
  ended_.NotifyAll();
}

void ChildReaper::Await(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mu_);
  while (!reaped_ && ended_.WaitUntil(lock, deadline)) {
  }
}

int ChildReaper::End() {
  bool waits = false;
  {
    MutexLock lock(mu_);
    if (!reaped_) {
      kill(-pid_, SIGKILL);
      kill(pid_, SIGKILL);
      waits = !thread_.joinable();
    }
  }
  if (waits) Reap();
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mu_);
  return status_;
}

}  // namespace athanor
