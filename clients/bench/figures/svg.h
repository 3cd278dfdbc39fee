// Draws line plots as inline SVG. Colours and fonts come from the page around it (report.cc), so
// that one drawing fits a light and a dark page.
//
//   Plot plot{"p99 of e2el", {"s"}, {"ms", Scale::kLog}, {{"run 1", t, p99}}};
//   html += PlotSvg(plot);
//
// Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_SVG_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_SVG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor::bench {

enum class Scale : uint8_t {
  kLinear,  // from 0
  kLog,     // only values above 0
  kNines,   // shares, with 0, 90 %, 99 % and 99.9 % at equal distances
};

struct Axis {
  std::string label;
  Scale scale = Scale::kLinear;
};

struct Series {
  std::string name;
  std::vector<double> x, y;  // a NaN in either breaks the line
  int color = 0;             // CSS class s0 ... s5
  bool dashed = false;
};

struct Plot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

inline constexpr int kColors = 6;

// Returns one <svg> element; an empty plot says that it has nothing to draw.
std::string PlotSvg(const Plot& plot);

// Returns about `count` positions at most, at round values within [low, high]. REQUIRES: low <=
// high; for kLog both above 0.
std::vector<double> Ticks(double low, double high, Scale scale, int count);

// Escapes & < > " ' as entities, and replaces control characters, which XML forbids, by U+FFFD.
std::string Escape(absl::string_view text);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_SVG_H_
