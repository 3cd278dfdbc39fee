// Formats a search for the commands `watch` and `explain`.
//
//   SearchText(search)      // "12.4 s, 98 candidates (3 failed), 1 of 2 plans taken, ..."
//   KernelCosts(search)     // time of each kernel, as a share of the whole and of its roofline
//   RuleTable(search)       // per rule: matches, firings, refusals, time
#ifndef ATHANOR_CLIENTS_CPP_TEXT_SEARCH_TEXT_H_
#define ATHANOR_CLIENTS_CPP_TEXT_SEARCH_TEXT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/athanor/v1/compile.pb.h"

namespace athanor::client {

// Cost of one kernel of the best genome. The lists have one value per SearchProgress.sizes; they
// are empty before anything was measured.
struct KernelCost {
  const v1::SearchTask* task;       // points into the progress that it was made from
  std::vector<double> shares;       // time of all its calls as a share of all kernels' time
  std::vector<double> of_roofline;  // 1: as fast as the machine's limits allow
  double share = 0;                 // mean of `shares`
};
// Returns the kernels in the search's order: longest first.
std::vector<KernelCost> KernelCosts(const v1::SearchProgress& search);

// Says why a job ended: "nothing left to try promises a gain".
std::string StopReasonText(v1::CompileJob::StopReason reason);
// Formats a time with three digits: "2.30 us".
std::string SecondsText(double seconds);
// Sums a search up in one line.
std::string SearchText(const v1::SearchProgress& search);
// Returns the lines below a terminal's progress bar: counts, shares of the baseline's time, and the
// `kernels` longest kernels with their mean share and their times at the last size. Lines have at
// most 80 columns, unless a schedule is longer.
std::vector<std::string> SearchLines(const v1::SearchProgress& search, int kernels);
// Returns the full report: every kernel at every size, then the candidates that were refused.
std::vector<std::string> SearchReport(const v1::SearchProgress& search);
// Returns a row for each rule that matched, summed over all distinct regions, slowest rules first.
// Empty before the rules have run.
std::vector<std::string> RuleTable(const v1::SearchProgress& search);

nlohmann::json SearchOptionsJson(const v1::SearchOptions& options);
nlohmann::json ComparisonJson(const v1::PlanComparison& comparison);
nlohmann::json SearchJson(const v1::SearchProgress& search);
nlohmann::json KernelsJson(const v1::SearchProgress& search);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TEXT_SEARCH_TEXT_H_
