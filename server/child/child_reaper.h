// Waits for a child process from a thread of its own: it is no zombie for as long as nobody asks
// what became of it.
//
//   ChildReaper child(pid);
//   ...
//   const int status = child.End();
#ifndef ATHANOR_SERVER_CHILD_CHILD_REAPER_H_
#define ATHANOR_SERVER_CHILD_CHILD_REAPER_H_

#include <sys/types.h>

#include <chrono>
#include <thread>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

// Used by one thread, besides its own.
class ChildReaper {
 public:
  // `pid` leads a process group, which ends with it, and nobody else waits for it. Where there is
  // no room for a thread, End waits.
  explicit ChildReaper(pid_t pid);
  ~ChildReaper() { End(); }
  ChildReaper(const ChildReaper&) = delete;
  ChildReaper& operator=(const ChildReaper&) = delete;

  // Waits so long for an end of its own accord.
  void Await(std::chrono::milliseconds timeout);
  // Kills what still runs of the group. Returns the wait status.
  int End();

 private:
  void Reap();

  const pid_t pid_;
  Mutex mu_;
  CondVar ended_;
  bool reaped_ ABSL_GUARDED_BY(mu_) = false;  // the number may be another process's
  int status_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CHILD_CHILD_REAPER_H_
