// Counts the system calls of this thread, and of the threads that it starts, by their numbers.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<CallWatch> watch, CallWatch::Start());
//   cuda.Init(0);
//   std::map<int, int64_t> calls = watch->Take();   // {SYS_openat: 12, ...}
#ifndef ATHANOR_TESTS_GPU_CALL_WATCH_H_
#define ATHANOR_TESTS_GPU_CALL_WATCH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"

namespace athanor {

// The watching thread lets each call go on (seccomp's user notification), so calls take longer and
// do the same. Watching does not end before the process does: a filter is final.
class CallWatch {
 public:
  // FAILED_PRECONDITION if this system cannot watch (Linux 5.5). REQUIRES: once in a process
  static absl::StatusOr<std::unique_ptr<CallWatch>> Start();

  // Returns the calls since the last Take(). Its own allocations may count.
  std::map<int, int64_t> Take();

 private:
  static constexpr int kNumbers = 1024;

  CallWatch() = default;
  void Watch();

  std::atomic<int> listener_{-1};
  // Not a container: the thread that counts must not wait for a lock of the allocator, whose owner
  // may be waiting for it.
  std::atomic<int64_t> counts_[kNumbers] = {};
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_CALL_WATCH_H_
