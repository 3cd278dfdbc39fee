#include "server/generate/schedule/step_times.h"

#include <algorithm>
#include <bit>

namespace athanor {
namespace {

// Averages forget: the newest turn counts for at least 1 in so many.
constexpr double kMostWeight = 8;
// A turn counts as at most so many times as long as expected.
constexpr double kMostRatio = 4;
// A row of a turn with more rows takes at most so many times as long.
constexpr double kMostGrowth = 2;

}  // namespace

void StepTimes::Learn(int64_t rows, Duration took) {
  const int at = std::bit_width(static_cast<uint64_t>(rows)) - 1;
  Average& average = averages_[at];
  double seconds = std::max(0.0, std::chrono::duration<double>(took).count());
  if (average.weight > 0) {
    seconds = std::min(seconds, kMostRatio * SecondsOf(static_cast<double>(rows)));
  }
  average.weight = std::min(average.weight + 1, kMostWeight);
  average.rows += (static_cast<double>(rows) - average.rows) / average.weight;
  average.seconds += (seconds - average.seconds) / average.weight;
  for (size_t i = 0; i < averages_.size(); ++i) {
    Average& other = averages_[i];
    const double most = static_cast<int>(i) < at
                            ? average.seconds
                            : kMostGrowth * average.seconds * other.rows / average.rows;
    other.seconds = std::min(other.seconds, most);
  }
}

double StepTimes::SecondsOf(double rows) const {
  // The points of the line beside `rows`, or the last two that are twice apart.
  Average before, last, far;
  for (const Average& average : averages_) {
    if (average.weight == 0) continue;
    before = last;
    if (before.rows * 2 <= average.rows) far = before;
    last = average;
    last.seconds = std::max(last.seconds, before.seconds);  // more rows never take less
    if (last.rows >= rows) break;
  }
  if (last.rows == 0) return 0;
  if (last.rows < rows) before = far;
  return before.seconds +
         (last.seconds - before.seconds) * (rows - before.rows) / (last.rows - before.rows);
}

StepTimes::Duration StepTimes::Of(int64_t rows) const {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(SecondsOf(static_cast<double>(rows))));
}

int64_t StepTimes::RowsWithin(Duration time, int64_t most) const {
  int64_t fits = 0;
  for (int64_t above = most + 1; above - fits > 1;) {
    const int64_t middle = fits + (above - fits) / 2;
    (Of(middle) <= time ? fits : above) = middle;
  }
  return fits;
}

}  // namespace athanor
