// Equality saturation: repeatedly matches all rules, applies the matches and rebuilds, until no
// rule adds anything or a limit is reached.
//
//   Runner runner(&graph, rules, {.limits = {.nodes = 50000, .time = absl::Seconds(1)}});
//   Report report = runner.Run();
//   report.reason == StopReason::kSaturated;
//
// A rule that exceeds its budget of matches in one iteration gets none of them applied and is
// banned for some iterations. Budget and ban double each time (the back-off of egg's scheduler), so
// that exploding rules do not starve the others. Matching is incremental: a rule is matched only
// against rows that changed since its matches were last applied.
//
// The same e-graph, rules and options give the same e-graph, with the same ids, unless wall time or
// the cancel callback stops the run. Then it is one of the intermediate states, rebuilt and sound.
#ifndef ATHANOR_COMPILER_EGRAPH_RUNNER_H_
#define ATHANOR_COMPILER_EGRAPH_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/match/match.h"
#include "compiler/egraph/match/rule.h"
#include "compiler/egraph/report.h"
#include "compiler/egraph/stopwatch.h"

namespace athanor::egraph {

struct Limits {
  size_t iterations = 30;
  // May be exceeded by the additions of one match, and by those of Analysis::Modify in the last
  // rebuild.
  size_t nodes = 50'000;
  // Bytes of the e-graph and the list of matches. Arrays double, so a large one may exceed this by
  // its own size.
  size_t bytes = size_t{1} << 30;
  // Checked every few thousand rows and every few matches, but not within a rebuild.
  absl::Duration time = absl::InfiniteDuration();
};

struct RunOptions {
  Limits limits;
  uint64_t match_limit = 1000;   // matches of a rule in one iteration; see Rule::match_limit
  uint32_t ban_length = 5;       // in iterations
  bool incremental = true;       // false: every iteration matches everything
  bool share = true;             // see MatchOptions::share
  std::function<bool()> cancel;  // called as often as the time is checked; true stops the run
};

class Runner {
 public:
  // Borrows both, which must outlive the runner.
  Runner(EGraph* graph, absl::Span<const Rule> rules, RunOptions options = {});

  // Leaves the e-graph clean. May be called again to continue after a stop, with additions to the
  // e-graph made meanwhile. The limits stay the same; iterations and time count from zero again.
  Report Run() { return Run(options_.limits); }
  // Same, with other limits.
  Report Run(const Limits& limits);

 private:
  struct RuleState {
    uint32_t since = 0;         // epoch up to which all its matches were applied
    uint32_t times_banned = 0;  // number of times over the budget
    size_t banned_until = 0;    // first iteration after the ban
  };

  // Each returns the reason to stop, if there is one.
  std::optional<StopReason> Iterate(IterationReport* iteration);
  std::optional<StopReason> MatchRules(std::vector<size_t>* ran, MatchOutcome* outcome);
  std::optional<StopReason> ApplyRule(size_t rule, const MatchList& matches,
                                      IterationReport* iteration);
  std::optional<StopReason> CheckNodes() const;
  std::optional<StopReason> CheckBytes() const;
  std::optional<StopReason> CheckClock() const;

  void CollectMatches(size_t rule, const MatchList& matches, uint32_t epoch);
  bool AnyBanned() const;
  void EndEarliestBan();
  void CountRefusals();

  EGraph& graph_;
  const absl::Span<const Rule> rules_;
  const RunOptions options_;
  std::vector<RuleState> states_;
  std::vector<uint64_t> refused_before_;
  size_t iteration_ = 0;    // counted over all runs
  size_t match_bytes_ = 0;  // bytes of the current matches
  Limits limits_;           // limits of this run
  Stopwatch watch_;         // time of the run
  Report report_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_RUNNER_H_
