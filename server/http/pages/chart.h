// Draws the latencies of the last ten minutes as SVG: p50 as a line, p99 as a fainter one above it,
// gaps where there were no calls. Without style of its own: page.css colours it.
//
//   SmallChart(series);   // for a row of the table
//   LargeChart(series);   // with its scale, and with numbers that the script shows on hover
//
// `series` is one of LatencyHistory::Of. Pure.
#ifndef ATHANOR_SERVER_HTTP_PAGES_CHART_H_
#define ATHANOR_SERVER_HTTP_PAGES_CHART_H_

#include <string>

#include "nlohmann/json.hpp"

namespace athanor {

std::string SmallChart(const nlohmann::json& series);
std::string LargeChart(const nlohmann::json& series);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_CHART_H_
