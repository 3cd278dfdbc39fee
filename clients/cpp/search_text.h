// A search in words and numbers, for the commands watch and explain.
//
//   SearchText(search)      // "12.4 s, 98 candidates (3 failed), 1 of 2 plans taken, ..."
//   KernelCosts(search)     // what each kernel takes, of the whole and of its roofline
//   RuleTable(search)       // what each rule found, fired, was refused, and took
#ifndef ATHANOR_CLIENTS_CPP_SEARCH_TEXT_H_
#define ATHANOR_CLIENTS_CPP_SEARCH_TEXT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/athanor/v1/compile.pb.h"

namespace athanor::client {

// What one kernel of the best genome costs; lists are by SearchProgress.sizes, and empty where
// nothing was measured yet.
struct KernelCost {
  const v1::SearchTask* task;       // of the progress that it was made from
  std::vector<double> shares;       // all its calls, of the sum over all kernels
  std::vector<double> of_roofline;  // 1: as fast as the machine's limits allow
  double share = 0;                 // the mean of `shares`
};
// In the search's order: longest first.
std::vector<KernelCost> KernelCosts(const v1::SearchProgress& search);

// Why a job ended: "nothing left to try promises a gain".
std::string StopReasonText(v1::CompileJob::StopReason reason);
// Three digits: "2.30 us".
std::string SecondsText(double seconds);
// One line.
std::string SearchText(const v1::SearchProgress& search);
// What a terminal shows below the bar: counts, shares of the baseline's time, the longest
// `kernels` with their mean share and their times at the last size. Lines of 80 columns, unless a
// schedule is longer.
std::vector<std::string> SearchLines(const v1::SearchProgress& search, int kernels);
// The whole: every kernel at every size, then what was put aside.
std::vector<std::string> SearchReport(const v1::SearchProgress& search);
// What each rule that found anything did, in all distinct regions together: those that took longest
// first. Empty before the rules were used.
std::vector<std::string> RuleTable(const v1::SearchProgress& search);

nlohmann::json SearchOptionsJson(const v1::SearchOptions& options);
nlohmann::json ComparisonJson(const v1::PlanComparison& comparison);
nlohmann::json SearchJson(const v1::SearchProgress& search);
nlohmann::json KernelsJson(const v1::SearchProgress& search);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_SEARCH_TEXT_H_
