#include "compiler/egraph/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace athanor::egraph {

const char* StopReasonText(StopReason reason) {
  switch (reason) {
    case StopReason::kSaturated:
      return "saturated";
    case StopReason::kIterationLimit:
      return "iteration limit";
    case StopReason::kNodeLimit:
      return "node limit";
    case StopReason::kByteLimit:
      return "byte limit";
    case StopReason::kTimeLimit:
      return "time limit";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "";
}

void Accumulate(const RuleReport& run, RuleReport* into) {
  into->matches += run.matches;
  into->applied += run.applied;
  into->errors += run.errors;
  into->nodes += run.nodes;
  into->unions += run.unions;
  into->refused += run.refused;
  into->bans += run.bans;
  into->banned_iterations += run.banned_iterations;
  into->work += run.work;
  into->match_us += run.match_us;
  into->apply_us += run.apply_us;
  if (!run.last_error.empty()) into->last_error = run.last_error;
}

std::string ReportText(const Report& report) {
  std::string text = absl::StrCat(StopReasonText(report.reason), " after ",
                                  report.iterations.size(), " iterations\n");
  absl::StrAppendFormat(&text, "%4s %9s %9s %11s %9s %9s %10s %10s %10s\n", "", "nodes", "classes",
                        "bytes", "matches", "unions", "match us", "apply us", "rebuild us");
  for (size_t i = 0; i < report.iterations.size(); ++i) {
    const IterationReport& it = report.iterations[i];
    absl::StrAppendFormat(&text, "%4d %9d %9d %11d %9d %9d %10.0f %10.0f %10.0f\n", i + 1, it.nodes,
                          it.classes, it.bytes, it.matches, it.unions, it.match_us, it.apply_us,
                          it.rebuild_us);
  }
  std::vector<const RuleReport*> rules;
  for (const RuleReport& rule : report.rules) rules.push_back(&rule);
  std::sort(rules.begin(), rules.end(), [](const RuleReport* a, const RuleReport* b) {
    return a->match_us != b->match_us ? a->match_us > b->match_us : a < b;
  });
  absl::StrAppendFormat(&text, "%-24s %9s %9s %9s %9s %8s %5s %6s %10s %10s\n", "rule", "matches",
                        "applied", "nodes", "unions", "refused", "bans", "banned", "match us",
                        "apply us");
  for (const RuleReport* r : rules) {
    absl::StrAppendFormat(&text, "%-24s %9d %9d %9d %9d %8d %5d %6d %10.0f %10.0f", r->name,
                          r->matches, r->applied, r->nodes, r->unions, r->refused, r->bans,
                          r->banned_iterations, r->match_us, r->apply_us);
    if (!r->last_error.empty()) absl::StrAppend(&text, "  last error: ", r->last_error);
    text += '\n';
  }
  return text;
}

}  // namespace athanor::egraph
