// What it costs to share out a loop. "Hot" finds workers spinning, "cold" finds
// them asleep. Thread counts as arguments.
#include <chrono>
#include <thread>

#include "benchmark/benchmark.h"
#include "runtime/cpu/thread_pool.h"

namespace athanor {
namespace {

void Spin(int64_t nanoseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void BM_DispatchHot(benchmark::State& state) {
  auto pool =
      ThreadPool::Create({.threads = static_cast<int>(state.range(0)), .pin = state.range(1) != 0})
          .value();
  for (auto _ : state) {
    pool->ParallelFor(16, [](int, int64_t begin, int64_t) { benchmark::DoNotOptimize(begin); });
  }
}
BENCHMARK(BM_DispatchHot)
    ->ArgNames({"threads", "pin"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->UseRealTime();

// Loops of 16 items; argument 2 is the work of one item in nanoseconds, 3 a
// pause between loops in microseconds. The ideal time is 16 * work / threads.
void BM_Loop(benchmark::State& state) {
  auto pool =
      ThreadPool::Create({.threads = static_cast<int>(state.range(0)), .pin = state.range(1) != 0})
          .value();
  const int64_t work = state.range(2);
  for (auto _ : state) {
    if (state.range(3) > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(state.range(3)));
    }
    const auto start = std::chrono::steady_clock::now();
    pool->ParallelFor(16, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Spin(work);
    });
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.counters["ideal_us"] = 16e-3 * work / state.range(0);
}
BENCHMARK(BM_Loop)
    ->ArgNames({"threads", "pin", "item_ns", "gap_us"})
    ->ArgsProduct({{1, 2}, {0, 1}, {500, 2000, 20000}, {0, 1000}})
    ->UseManualTime();

// A gap of serial work between loops, as between the steps of a plan.
void BM_LoopAfterSerial(benchmark::State& state) {
  auto pool = ThreadPool::Create({.threads = 2}).value();
  for (auto _ : state) {
    Spin(state.range(0) * 1000);
    const auto start = std::chrono::steady_clock::now();
    pool->ParallelFor(16, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Spin(2000);
    });
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}
BENCHMARK(BM_LoopAfterSerial)
    ->ArgName("serial_us")
    ->Arg(1)
    ->Arg(10)
    ->Arg(50)
    ->Arg(200)
    ->UseManualTime();

}  // namespace
}  // namespace athanor
