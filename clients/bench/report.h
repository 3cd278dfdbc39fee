// One HTML file about one or several runs: figures with intervals and formulas, plots of latency
// and throughput over time and of the distribution. Nothing is loaded from elsewhere; reads on a
// light and on a dark screen.
//
//   std::string html = ReportHtml({summary, other}, {Compare(...)});
#ifndef ATHANOR_CLIENTS_BENCH_REPORT_H_
#define ATHANOR_CLIENTS_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// `runs` are summaries, whatever they lack is left out. A comparison's "first" and "second" are ids
// of runs; without them it is of the first two. Of more than kColors runs the last ones are drawn,
// all are in the table.
std::string ReportHtml(const std::vector<nlohmann::json>& runs,
                       const std::vector<nlohmann::json>& comparisons);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_REPORT_H_
