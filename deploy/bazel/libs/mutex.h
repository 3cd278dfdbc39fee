// std::mutex with annotations for Clang's thread-safety analysis. libstdc++'s own mutex has none,
// and Abseil's is not instrumented for ThreadSanitizer. These three classes add nothing but the
// annotations.
//
//   class Queue {
//     void Push(int v) { MutexLock lock(mu_); items_.push_back(v);
//     cv_.NotifyOne(); } int Pop() {
//       MutexLock lock(mu_);
//       while (items_.empty()) cv_.Wait(lock);
//       ...
//     }
//     Mutex mu_;
//     CondVar cv_;
//     std::deque<int> items_ ABSL_GUARDED_BY(mu_);
//   };
#ifndef ATHANOR_DEPLOY_BAZEL_LIBS_MUTEX_H_
#define ATHANOR_DEPLOY_BAZEL_LIBS_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace athanor {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mu_;
};

// Holds a Mutex for a scope; may unlock and lock it again inside.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : lock_(mu.mu_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

// Wakes spuriously like any condition variable: wait in a loop. There is no overload with a
// predicate, because the analysis does not know that a lambda's caller holds the lock.
class CondVar {
 public:
  void Wait(MutexLock& lock) { cv_.wait(lock.lock_); }

  // Returns false if `deadline` passed before a notification.
  template <typename Clock, typename Duration>
  bool WaitUntil(MutexLock& lock, std::chrono::time_point<Clock, Duration> deadline) {
    return cv_.wait_until(lock.lock_, deadline) == std::cv_status::no_timeout;
  }

  template <typename Rep, typename Period>
  bool WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> timeout) {
    return WaitUntil(lock, std::chrono::steady_clock::now() + timeout);
  }

  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace athanor

#endif  // ATHANOR_DEPLOY_BAZEL_LIBS_MUTEX_H_
