// Makes the locks of Debian's Abseil, and so gRPC's, visible to ThreadSanitizer. These definitions
// replace the library's: they tell the sanitizer what happens before what, then call the library's.
// Without them, data passed to gRPC on one thread and returned on another looks like a race. Empty
// in any other build.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)

#include <dlfcn.h>

#include "absl/synchronization/mutex.h"

extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);

namespace {

// Returns the library's own definition of the function with the given mangled name.
template <typename Function>
Function* Next(const char* mangled) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, mangled));
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

#define ATHANOR_NO_TSAN __attribute__((no_sanitize("thread")))

ATHANOR_NO_TSAN void Mutex::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  next(this);
  __tsan_acquire(this);
}

ATHANOR_NO_TSAN void Mutex::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  next(this);
}

ATHANOR_NO_TSAN bool Mutex::TryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const next = Next<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool held = next(this);
  if (held) __tsan_acquire(this);
  return held;
}

ATHANOR_NO_TSAN void CondVar::Wait(Mutex* mu) {
  static auto* const next =
      Next<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mu);
  next(this, mu);
  __tsan_acquire(mu);
}

ATHANOR_NO_TSAN bool CondVar::WaitWithTimeout(Mutex* mu, absl::Duration timeout) {
  static auto* const next = Next<bool(CondVar*, Mutex*, absl::Duration)>(
      "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mu);
  const bool timed_out = next(this, mu, timeout);
  __tsan_acquire(mu);
  return timed_out;
}

ATHANOR_NO_TSAN bool CondVar::WaitWithDeadline(Mutex* mu, absl::Time deadline) {
  static auto* const next = Next<bool(CondVar*, Mutex*, absl::Time)>(
      "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mu);
  const bool timed_out = next(this, mu, deadline);
  __tsan_acquire(mu);
  return timed_out;
}

#undef ATHANOR_NO_TSAN

ABSL_NAMESPACE_END
}  // namespace absl

#endif
#endif
