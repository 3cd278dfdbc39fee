// Measures the machine's current limits. Call it alternately with what is compared: on a shared
// machine limits change.
//
//   ArithmeticPeak peak(/*threads=*/2);
//   MemoryReader memory(/*threads=*/2);
//   double share = flops_per_second / peak.FlopsPerSecond();
#ifndef ATHANOR_TESTS_BENCH_MACHINE_LIMITS_H_
#define ATHANOR_TESTS_BENCH_MACHINE_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/cpu/module.h"
#include "runtime/cpu/thread_pool.h"

namespace athanor {

// Returns seconds of the clock for timing `threads` threads. For one thread it is processor time,
// which other processes do not stretch. For more it is wall time, since processor time would count
// their spinning.
double Now(int threads);

// Zeroed memory in pages of 2 MiB where the system gives them, like the server's own.
class HugeBuffer {
 public:
  explicit HugeBuffer(int64_t bytes);
  void* data() const { return memory_.get(); }
  float* floats() const { return static_cast<float*>(memory_.get()); }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  std::unique_ptr<void, void (*)(void*)> memory_;
};

// Computes f32 multiply-adds on 24 independent vectors of 64 bytes, which keeps all units busy. Its
// threads run at full clock speed before timing starts.
class ArithmeticPeak {
 public:
  explicit ArithmeticPeak(int threads);
  // Measures for about 10 ms.
  double FlopsPerSecond() const;

 private:
  using Run = void (*)(float*, long);
  const std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CpuModule> module_;
  Run run_;
};

// Sums more floats than any cache holds, in pieces of four stretches side by side; that is faster
// than one after the other if the memory keeps up. Threads as in ArithmeticPeak.
class MemoryReader {
 public:
  explicit MemoryReader(int threads);
  // Measures one pass over 512 MiB.
  double BytesPerSecond() const;

 private:
  using Sum = void (*)(const void*, long, float*);
  const std::unique_ptr<ThreadPool> pool_;
  HugeBuffer memory_;
  std::unique_ptr<CpuModule> module_;
  Sum sum_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_MACHINE_LIMITS_H_
