// A fixed number of threads that run functions by priority, then in order of submission.
//
//   WorkQueue disk("disk", 2);
//   disk.Submit([=] { ... });
//
// Thread-safe. Functions must not throw. The destructor runs all submitted functions, then joins.
#ifndef ATHANOR_SERVER_BASE_WORK_QUEUE_H_
#define ATHANOR_SERVER_BASE_WORK_QUEUE_H_

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class WorkQueue {
 public:
  // `name` is shown by system tools; 15 characters at most.
  WorkQueue(const std::string& name, int threads);
  ~WorkQueue();

  // Lower numbers run first.
  void Submit(absl::AnyInvocable<void()> work, int64_t priority = 0);

 private:
  void Loop();

  Mutex mu_;
  CondVar cv_;
  std::multimap<int64_t, absl::AnyInvocable<void()>> pending_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_WORK_QUEUE_H_
