#include "server/metrics/metric_cells.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "absl/base/macros.h"

namespace athanor {
namespace {

// Returns the index of each metric's first cell within its scope.
std::array<int, kMetrics> MakeBegins() {
  std::array<int, kMetrics> begins{};
  std::array<int, 3> used{};
  for (const MetricRow& row : MetricTable()) {
    int& end = used[static_cast<size_t>(row.scope)];
    begins[static_cast<size_t>(row.metric)] = end;
    end += row.cells();
  }
  return begins;
}

int BeginOf(Metric metric) {
  static const std::array<int, kMetrics> begins = MakeBegins();
  return begins[static_cast<size_t>(metric)];
}

size_t CellsOf(MetricScope scope) {
  size_t cells = 0;
  for (const MetricRow& row : MetricTable()) {
    if (row.scope == scope) cells += static_cast<size_t>(row.cells());
  }
  return cells;
}

int KnownLabel(const MetricRow& row, int label) {
  return label >= 0 && label < static_cast<int>(row.values.size()) ? label : 0;
}

int BeginOfHistogram(const MetricRow& row, int label) {
  const int size = static_cast<int>(row.bounds.size()) + 2;
  return BeginOf(row.metric) + KnownLabel(row, label) * size;
}

}  // namespace

int64_t HistogramCounts::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
}

int64_t Quantile(absl::Span<const int64_t> bounds, const HistogramCounts& counts, double quantile) {
  const int64_t count = counts.count();
  if (count == 0 || bounds.empty()) return 0;
  const double rank = quantile * static_cast<double>(count);
  double below = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto inside = static_cast<double>(counts.buckets[i]);
    if (inside > 0 && below + inside >= rank) {
      const auto low = static_cast<double>(i == 0 ? 0 : bounds[i - 1]);
      const auto high = static_cast<double>(bounds[i]);
      return std::llround(low + (high - low) * std::max(0.0, rank - below) / inside);
    }
    below += inside;
  }
  return bounds.back();
}

MetricCells::MetricCells(MetricScope scope)
    : scope_(scope), cells_(new std::atomic<int64_t>[CellsOf(scope)]()) {}

std::atomic<int64_t>& MetricCells::Counter(Metric metric, int label) {
  ABSL_ASSERT(RowOf(metric).scope == scope_ && RowOf(metric).type == MetricType::kCounter);
  return cells_[static_cast<size_t>(BeginOf(metric) + KnownLabel(RowOf(metric), label))];
}

void MetricCells::ObserveIn(Metric metric, int64_t value, int label) {
  const MetricRow& row = RowOf(metric);
  ABSL_ASSERT(row.scope == scope_ && row.type == MetricType::kHistogram);
  std::atomic<int64_t>* const cells = &cells_[static_cast<size_t>(BeginOfHistogram(row, label))];
  const auto bucket = std::lower_bound(row.bounds.begin(), row.bounds.end(), value);
  cells[bucket - row.bounds.begin()].fetch_add(1, std::memory_order_relaxed);
  cells[row.bounds.size() + 1].fetch_add(value, std::memory_order_relaxed);
}

int64_t MetricCells::value(Metric metric, int label) const {
  const int cell = BeginOf(metric) + KnownLabel(RowOf(metric), label);
  return cells_[static_cast<size_t>(cell)].load(std::memory_order_relaxed);
}

HistogramCounts MetricCells::histogram(Metric metric, int label) const {
  const MetricRow& row = RowOf(metric);
  const std::atomic<int64_t>* cell = &cells_[static_cast<size_t>(BeginOfHistogram(row, label))];
  HistogramCounts counts;
  for (size_t i = 0; i <= row.bounds.size(); ++i) {
    counts.buckets.push_back((cell++)->load(std::memory_order_relaxed));
  }
  counts.sum = cell->load(std::memory_order_relaxed);
  return counts;
}

}  // namespace athanor
