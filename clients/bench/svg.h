// Line plots as inline SVG: colours and fonts come from the page around it (report.cc), so that one
// drawing fits a light and a dark page.
//
//   Plot plot{"p99 of e2el", {"s"}, {"ms", Scale::kLog}, {{"run 1", t, p99}}};
//   html += PlotSvg(plot);
//
// Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_SVG_H_
#define ATHANOR_CLIENTS_BENCH_SVG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor::bench {

enum class Scale : uint8_t {
  kLinear,  // from 0
  kLog,     // of values above 0
  kNines,   // shares: 0, 90 %, 99 %, 99.9 % at equal distances
};

struct Axis {
  std::string label;
  Scale scale = Scale::kLinear;
};

struct Series {
  std::string name;
  std::vector<double> x, y;  // where either is NaN the line is broken
  int color = 0;             // class s0 ... s5
  bool dashed = false;
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

inline constexpr int kColors = 6;

// One <svg> element; says so where there is nothing to draw.
std::string PlotSvg(const Plot& plot);

// Positions at round values within [low, high], at most about `count`. REQUIRES: low <= high, both
// above 0 for kLog.
std::vector<double> Ticks(double low, double high, Scale scale, int count);

// & < > " ' as entities; control characters, which XML forbids, as U+FFFD.
std::string Escape(absl::string_view text);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_SVG_H_
