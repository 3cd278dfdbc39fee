// Formats summaries and comparisons as a few lines for a terminal.
//
//   std::fputs(SummaryText(summary).c_str(), stdout);
//
// Leaves out what a summary lacks; one read from a file may lack anything. Pure.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_TEXT_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_TEXT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// Returns a member of an object; null if it is missing or `object` is no object.
const nlohmann::json& At(const nlohmann::json& object, const std::string& key);

// Formats a figure and its interval: "1.234 [1.2, 1.3]"; "-" if there is none.
std::string FigureText(const nlohmann::json& summary, const std::string& key);
// Returns one sentence per reason to doubt the figures, such as a run that is not steady or a
// generator that did not keep up.
std::vector<std::string> Warnings(const nlohmann::json& summary);
// Returns one sentence per thing that the ratios of a comparison leave out.
std::vector<std::string> ComparisonWarnings(const nlohmann::json& comparison);
// Formats quartiles: "0.9 to 1.1"; "" for a ratio without them.
std::string QuartilesText(const nlohmann::json& ratio);

std::string SummaryText(const nlohmann::json& summary);
// Formats the runs of a sweep as a table, a line each.
std::string SweepText(const std::vector<nlohmann::json>& summaries);
// Draws the runs of a sweep as a curve of its throughput against p50 and p99 of the calls' times: a
// line each, the times on a logarithmic axis. Empty if no run was answered.
std::string CurveText(const std::vector<nlohmann::json>& summaries);
// Begins with "run 4 over run 3, ..." if the comparison holds the ids of stored runs.
std::string ComparisonText(const nlohmann::json& comparison);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_TEXT_H_
