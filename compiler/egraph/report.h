// Statistics of a run of rules, as data and as text.
//
//   Report report = Runner(&graph, rules, options).Run();
//   std::cout << ReportText(report);
#ifndef ATHANOR_COMPILER_EGRAPH_REPORT_H_
#define ATHANOR_COMPILER_EGRAPH_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace athanor::egraph {

enum class StopReason : uint8_t {
  kSaturated,  // no rule adds anything
  kIterationLimit,
  kNodeLimit,
  kByteLimit,
  kTimeLimit,
  kCancelled,
};

// Returns "saturated", "node limit", ...
const char* StopReasonText(StopReason reason);

struct RuleReport {
  std::string name;
  uint32_t tag = 0;
  uint64_t matches = 0;  // matches found within the budget
  uint64_t applied = 0;  // matches applied without an error
  uint64_t errors = 0;   // matches that were not, or not fully, applied
  uint64_t nodes = 0;    // nodes added
  uint64_t unions = 0;   // requested unions that changed something, without those from congruence
  // Changes that the analysis refused, including congruences caused by this rule.
  uint64_t refused = 0;
  std::string last_error;
  uint32_t bans = 0;               // number of times it exceeded its budget
  uint32_t banned_iterations = 0;  // number of iterations in which it was banned
  double work = 0;                 // rows examined; equal on every machine
  double match_us = 0;             // its part of the matching time, divided by work
  double apply_us = 0;
};

// State after the iteration.
struct IterationReport {
  size_t nodes = 0;
  size_t classes = 0;
  size_t bytes = 0;  // bytes of the e-graph, its analysis and the matches
  uint64_t matches = 0;
  uint64_t unions = 0;
  double match_us = 0;
  double apply_us = 0;
  double rebuild_us = 0;
};

// Adds the statistics of another run of the rule; keeps its name and tag.
void Accumulate(const RuleReport& run, RuleReport* into);

struct Report {
  StopReason reason = StopReason::kSaturated;
  std::vector<IterationReport> iterations;
  std::vector<RuleReport> rules;  // in the order given
};

// Returns tables of both; rules are sorted by match time.
std::string ReportText(const Report& report);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_REPORT_H_
