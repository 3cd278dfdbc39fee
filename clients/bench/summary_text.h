// Summaries and comparisons for people: a few lines on a terminal.
//
//   std::fputs(SummaryText(summary).c_str(), stdout);
//
// What a summary lacks (one read from a file may lack anything) is left out. Pure.
#ifndef ATHANOR_CLIENTS_BENCH_SUMMARY_TEXT_H_
#define ATHANOR_CLIENTS_BENCH_SUMMARY_TEXT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace athanor::bench {

// The member of an object; null for what is not there, and of what is no object.
const nlohmann::json& At(const nlohmann::json& object, const std::string& key);

// "1.234 [1.2, 1.3]", the value and its interval; "-" where there is none.
std::string FigureText(const nlohmann::json& summary, const std::string& key);
// Whether the run is worth less than its figures look: not steady, a generator that did not keep
// up. One sentence each.
std::vector<std::string> Warnings(const nlohmann::json& summary);
// What the ratios of a comparison do not show. One sentence each.
std::vector<std::string> ComparisonWarnings(const nlohmann::json& comparison);
// "0.9 to 1.1"; "" of a ratio without quartiles.
std::string QuartilesText(const nlohmann::json& ratio);

std::string SummaryText(const nlohmann::json& summary);
// "run 4 over run 3, ..." where it has the ids of runs that were kept together.
std::string ComparisonText(const nlohmann::json& comparison);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_SUMMARY_TEXT_H_
