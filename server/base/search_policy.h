// The policy of a search for faster plans: its budget, its rules, and the use of its results.
//
//   SearchBudget budget = ParseSearchBudget("exhaust:5m").value();
//   SearchPolicy policy = ServerPolicy(options);
//
// A budget has one syntax everywhere (flag, upload, StartCompile, SDK, command line):
//
//   0            the baseline only
//   30s          a time, up to 720h; ms, s, m and h: by the clock on the wall (search_time.h)
//   200c         a number of measured candidates, up to 1000000c
//   fast         the cost model chooses, only the few finalist plans are measured
//   exhaust      until everything was measured
//   exhaust:5m   either of them within a limit
//
// Plain data.
#ifndef ATHANOR_SERVER_BASE_SEARCH_POLICY_H_
#define ATHANOR_SERVER_BASE_SEARCH_POLICY_H_

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/search.pb.h"
#include "server/base/options.h"

namespace athanor {

struct SearchBudget {
  bool search = true;  // false: the baseline only
  v1::SearchMode mode = v1::SEARCH_BUDGET;
  std::chrono::milliseconds time{0};  // 0: no limit
  int64_t candidates = 0;             // 0: no limit

  bool operator==(const SearchBudget&) const = default;
};

// Returns INVALID_ARGUMENT, saying what is allowed, if `text` is not a budget.
absl::StatusOr<SearchBudget> ParseSearchBudget(absl::string_view text);
// Returns the text that ParseSearchBudget parses to `budget`.
std::string ToText(const SearchBudget& budget);

struct SearchPolicy {
  SearchBudget budget;
  uint64_t seed = 1;
  std::set<std::string> disabled_rules;  // names of rules or of rule families
  bool approximate = false;
  v1::SearchOptions::Use use = v1::SearchOptions::SERVE;
  // Nobody asked for this search: it is skipped if an equal one has already finished. Not in
  // ToProto.
  bool automatic = false;

  v1::SearchOptions ToProto() const;
};

// Parses names of rules, separated by commas, as the store and the flag have them. Returns
// INVALID_ARGUMENT naming one that is empty or has other characters than a-z, 0-9 and _.
absl::StatusOr<std::set<std::string>> ParseRuleNames(absl::string_view text);

// Returns the policy of a server's flags. REQUIRES: ValidateOptions accepted `options`.
SearchPolicy ServerPolicy(const ServerOptions& options);

}  // namespace athanor

#endif  // ATHANOR_SERVER_BASE_SEARCH_POLICY_H_
