// Cost of sharing out a loop. Percentiles of single loops stand beside the mean, because on a busy
// machine the mean is dominated by the moments when a thread had lost its processor.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "runtime/cpu/thread_pool.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kItems = 16;

void Spin(int64_t nanoseconds) {
  if (nanoseconds == 0) return;
  const auto end = Clock::now() + std::chrono::nanoseconds(nanoseconds);
  while (Clock::now() < end) {
  }
}

// Runs loops of 16 items of `item_ns` each, `gap_us` apart. The gap is spent asleep (as between
// requests) or working (as in a step that is not shared out). The ideal time is 16 * item_ns /
// threads.
void BM_Loop(benchmark::State& state) {
  auto pool =
      ThreadPool::Create({.threads = static_cast<int>(state.range(0)), .pin = state.range(1) != 0})
          .value();
  const int64_t item_ns = state.range(2), gap_us = state.range(3);
  const bool asleep = state.range(4) != 0;
  std::vector<double> samples;
  for (auto _ : state) {
    if (asleep) {
      std::this_thread::sleep_for(std::chrono::microseconds(gap_us));
    } else {
      Spin(gap_us * 1000);
    }
    const auto start = Clock::now();
    pool->ParallelFor(kItems, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Spin(item_ns);
      benchmark::DoNotOptimize(begin);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    state.SetIterationTime(seconds);
    samples.push_back(seconds * 1e6);
  }
  std::sort(samples.begin(), samples.end());
  state.counters["best_us"] = samples.front();
  state.counters["p10_us"] = samples[samples.size() / 10];
  state.counters["p50_us"] = samples[samples.size() / 2];
  state.counters["p90_us"] = samples[samples.size() * 9 / 10];
  state.counters["ideal_us"] = 1e-3 * kItems * static_cast<double>(item_ns) / pool->threads();
}

void Arguments(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "pin", "item_ns", "gap_us", "asleep"});
  for (int threads : {1, 2}) {
    for (int pin = 0; pin < threads; ++pin) {
      for (int item_ns : {0, 500, 2000, 20000}) {
        b->Args({threads, pin, item_ns, 0, 0});
        b->Args({threads, pin, item_ns, 20, 0});
        b->Args({threads, pin, item_ns, 1000, 1});
      }
    }
  }
}
// A fixed number of iterations, because manual time does not count the gaps.
BENCHMARK(BM_Loop)->Apply(Arguments)->UseManualTime()->Iterations(1000);

}  // namespace
}  // namespace athanor
