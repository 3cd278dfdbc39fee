// Gives heap memory that models leave behind back to the system; the allocator would keep it for
// later. On a thread of its own: a trim walks the whole heap, which no request and no upload should
// wait for.
//
//   MemoryReturn memory({}, &TrimHeap);
//   memory.Freed(bytes);   // by whoever let go of a model's tensors, prepared weights, uploads
//
// Nothing happens before `least_bytes` were freed together, then once after `settle`, so that
// deletions in a row, and what goes a little after its reservation, are one trim. Thread-safe;
// Freed is one atomic addition but for the call that reaches the limit.
#ifndef ATHANOR_SERVER_MEMORY_MEMORY_RETURN_H_
#define ATHANOR_SERVER_MEMORY_MEMORY_RETURN_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

struct MemoryReturnOptions {
  int64_t least_bytes = int64_t{16} << 20;
  std::chrono::milliseconds settle{500};
};

class MemoryReturn {
 public:
  MemoryReturn(const MemoryReturnOptions& options, std::function<void()> trim);
  ~MemoryReturn();  // a trim under way is waited for
  MemoryReturn(const MemoryReturn&) = delete;
  MemoryReturn& operator=(const MemoryReturn&) = delete;

  void Freed(int64_t bytes);
  // How often `trim` was called.
  int64_t trims() const { return trims_.load(); }

 private:
  void Loop();

  const MemoryReturnOptions options_;
  const std::function<void()> trim_;
  std::atomic<int64_t> freed_{0};
  std::atomic<int64_t> trims_{0};
  Mutex mu_;
  CondVar cv_;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Free pages of this process's heap go back to the system.
void TrimHeap();
// Of this process, in memory now.
int64_t ResidentBytes();

}  // namespace athanor

#endif  // ATHANOR_SERVER_MEMORY_MEMORY_RETURN_H_
