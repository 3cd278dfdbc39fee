// Measures the cost of counting per call: alone, and with all threads counting in the same cells.
#include <chrono>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "server/metrics/metric_cells.h"

namespace athanor {
namespace {

MetricCells& Cells() {
  static auto* const cells = new MetricCells(MetricScope::kVersion);
  return *cells;
}

void BM_Count(benchmark::State& state) {
  for (auto _ : state) Cells().Count(Metric::kRequests, absl::StatusCode::kOk);
}
BENCHMARK(BM_Count)->Threads(1)->Threads(2);

void BM_Observe(benchmark::State& state) {
  for (auto _ : state) Cells().Observe(Metric::kExecSeconds, std::chrono::microseconds(300));
}
BENCHMARK(BM_Observe)->Threads(1)->Threads(2);

// Counts what one call counts that ran: its status and three durations.
void BM_Call(benchmark::State& state) {
  for (auto _ : state) {
    Cells().Count(Metric::kRequests, absl::StatusCode::kOk);
    Cells().Observe(Metric::kQueueSeconds, std::chrono::microseconds(12));
    Cells().Observe(Metric::kExecSeconds, std::chrono::microseconds(300));
    Cells().Observe(Metric::kRequestSeconds, std::chrono::microseconds(330));
  }
}
BENCHMARK(BM_Call)->Threads(1)->Threads(2);

}  // namespace
}  // namespace athanor
