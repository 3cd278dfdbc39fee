// Makes one HTML file about one or more runs: figures with intervals and formulas, plots of latency
// and throughput over time and of the distribution. Loads nothing from elsewhere; readable on light
// and dark screens.
//
//   std::string html = ReportHtml({summary, other}, {Compare(...)});
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_REPORT_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// Draws summaries and leaves out what they lack. A comparison's "first" and "second" are ids of
// runs; without them it is of the first two runs. The table holds all runs; plots draw only the
// last kColors of them.
std::string ReportHtml(const std::vector<nlohmann::json>& runs,
                       const std::vector<nlohmann::json>& comparisons);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_REPORT_H_
