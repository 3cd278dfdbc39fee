// Returns freed heap memory of models to the system; the allocator would keep it for later. Runs on
// its own thread: a trim walks the whole heap, and no request or upload should wait for that.
//
//   MemoryReturn memory({}, &TrimHeap);
//   memory.Freed(bytes);   // after freeing a model's tensors, prepared weights, uploads
//
// Trims once `least_bytes` have been freed in total, after a delay of `settle`, so that consecutive
// deletions, and memory freed a little after its reservation, cause one trim. Thread-safe; Freed is
// one atomic addition, except for the call that reaches the limit.
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
  ~MemoryReturn();  // waits for a running trim
  MemoryReturn(const MemoryReturn&) = delete;
  MemoryReturn& operator=(const MemoryReturn&) = delete;

  void Freed(int64_t bytes);
  // Number of calls of `trim`.
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

// Returns free pages of this process's heap to the system.
void TrimHeap();
// Returns the resident memory of this process in bytes.
int64_t ResidentBytes();

}  // namespace athanor

#endif  // ATHANOR_SERVER_MEMORY_MEMORY_RETURN_H_
