// A thread on a stack of its own memory. In a forked process glibc gives the stacks of the parent's
// other threads, which it has allocated, to new threads or frees them. Data on a stack that it has
// not allocated stays: a thread that waits for an isolated process (isolated.h) needs one, unless
// it is the process's first.
//
//   absl::StatusOr<std::unique_ptr<OwnStackThread>> thread = OwnStackThread::Start([] { ... });
//   (*thread)->Join();
#ifndef ATHANOR_SERVER_TUNER_RUN_OWN_STACK_THREAD_H_
#define ATHANOR_SERVER_TUNER_RUN_OWN_STACK_THREAD_H_

#include <pthread.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace athanor {

class OwnStackThread {
 public:
  // UNAVAILABLE: there is no room for a thread.
  static absl::StatusOr<std::unique_ptr<OwnStackThread>> Start(std::function<void()> work);
  ~OwnStackThread() { Join(); }
  OwnStackThread(const OwnStackThread&) = delete;
  OwnStackThread& operator=(const OwnStackThread&) = delete;

  // Waits until `work` has returned. Called by one thread.
  void Join();
  pthread_t handle() const { return thread_; }  // valid before Join

 private:
  explicit OwnStackThread(std::function<void()> work) : work_(std::move(work)) {}

  const std::function<void()> work_;
  void* stack_ = nullptr;
  pthread_t thread_{};
  bool runs_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_OWN_STACK_THREAD_H_
