// What a run of rules did, for people and for records.
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
  kSaturated,  // no rule has anything to add
  kIterationLimit,
  kNodeLimit,
  kByteLimit,
  kTimeLimit,
  kCancelled,
};

// "saturated", "node limit", ...
const char* StopReasonText(StopReason reason);

struct RuleReport {
  std::string name;
  uint32_t tag = 0;
  uint64_t matches = 0;  // found and within the budget
  uint64_t applied = 0;  // without an error
  uint64_t errors = 0;   // matches that were not, or not fully
  uint64_t nodes = 0;    // added
  uint64_t unions = 0;   // asked for that changed something; not those that congruence added
  uint64_t refused = 0;  // changes the analysis refused, congruences led to by this rule included
  std::string last_error;
  uint32_t bans = 0;               // times it went over its budget
  uint32_t banned_iterations = 0;  // that it sat out
  double work = 0;                 // rows looked at; equal on every machine
  double match_us = 0;             // its part of the time, by work
  double apply_us = 0;
};

// Sizes are those after the iteration.
struct IterationReport {
  size_t nodes = 0;
  size_t classes = 0;
  size_t bytes = 0;  // of the e-graph, its analysis, and the matches
  uint64_t matches = 0;
  uint64_t unions = 0;
  double match_us = 0;
  double apply_us = 0;
  double rebuild_us = 0;
};

// Adds what another run of the rule did; its name and tag stay.
void Accumulate(const RuleReport& run, RuleReport* into);

struct Report {
  StopReason reason = StopReason::kSaturated;
  std::vector<IterationReport> iterations;
  std::vector<RuleReport> rules;  // as they were given
};

// Tables of both, the rules by match time.
std::string ReportText(const Report& report);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_REPORT_H_
