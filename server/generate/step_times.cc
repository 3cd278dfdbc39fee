#include "server/generate/step_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace athanor {
namespace {

// Averages forget: the newest turn counts for at least 1 in so many.
constexpr double kMostWeight = 8;
// A turn counts as at most so many times as long as expected.
constexpr double kMostRatio = 4;

}  // namespace

void StepTimes::Learn(int64_t rows, Duration took) {
  rows = std::min(rows, int64_t{1} << (points_.size() - 1));
  const int at = std::bit_width(static_cast<uint64_t>(rows)) - 1;
  const double start = std::ldexp(1.0, at);
  const double above = (static_cast<double>(rows) - start) / start;  // where it is up to the next
  const double expected = SecondsOf(static_cast<double>(rows));
  double seconds = std::max(0.0, std::chrono::duration<double>(took).count());
  if (expected > 0) seconds = std::min(seconds, kMostRatio * expected);
  // A point without turns begins at what is expected of it.
  const double per_row = seconds / static_cast<double>(rows);
  Point* beside[] = {&points_[at], above > 0 ? &points_[at + 1] : nullptr};
  double begins[] = {start, 2 * start};
  for (double& begin : begins) begin = expected > 0 ? SecondsOf(begin) : begin * per_row;
  for (int i = 0; i < 2; ++i) {
    if (beside[i] != nullptr && beside[i]->weight == 0) beside[i]->seconds = begins[i];
  }
  const double guess =
      (1 - above) * beside[0]->seconds + (above > 0 ? above * beside[1]->seconds : 0);
  Move(1 - above, seconds - guess, beside[0]);
  if (above > 0) Move(above, seconds - guess, beside[1]);
}

void StepTimes::Move(double part, double error, Point* point) {
  point->weight = std::min(point->weight + part, kMostWeight);
  point->seconds = std::max(0.0, point->seconds + error * part / point->weight);
}

double StepTimes::SecondsOf(double rows) const {
  // The last two points below, then the one at or above; the highest seconds so far, so that more
  // rows never take less.
  double before_rows = 0, before = 0, last_rows = 0, last = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].weight == 0) continue;
    before_rows = last_rows;
    before = last;
    last_rows = std::ldexp(1.0, static_cast<int>(i));
    last = std::max(before, points_[i].seconds);
    if (last_rows >= rows) break;
  }
  if (last_rows == 0) return 0;
  // On the line through the two, also beyond the last one.
  return before + (last - before) * (rows - before_rows) / (last_rows - before_rows);
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
