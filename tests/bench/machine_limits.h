// What the machine reaches at the moment: measured in turn with what is held against it, since on a
// shared machine it changes.
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

// Seconds of the clock that so many threads are timed by. One thread's is its processor time, which
// others on the machine do not stretch; of more it would count their spinning, so theirs is the
// wall's.
double Now(int threads);

// Pages of 2 MiB where the system gives them, as the server's own memory has; zeros.
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

// f32 multiply-adds on 24 independent vectors of 64 bytes: as many as the units can take. Its
// threads are there, awake and at speed before the clock starts.
class ArithmeticPeak {
 public:
  explicit ArithmeticPeak(int threads);
  // Of some 10 ms.
  double FlopsPerSecond() const;

 private:
  using Run = void (*)(float*, long);
  const std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CpuModule> module_;
  Run run_;
};

// Sums more floats than any cache holds, in pieces of four stretches side by side, which is faster
// than one after the other where memory can follow. Threads as of ArithmeticPeak.
class MemoryReader {
 public:
  explicit MemoryReader(int threads);
  // Of one pass over 512 MiB.
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
