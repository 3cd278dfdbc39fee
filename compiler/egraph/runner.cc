#include "compiler/egraph/runner.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

namespace athanor::egraph {
namespace {

// Returns `value` doubled `times` times, or the largest number if that overflows.
uint64_t Doubled(uint64_t value, uint32_t times) {
  if (times >= static_cast<uint32_t>(std::countl_zero(value))) {
    return std::numeric_limits<uint64_t>::max();
  }
  return value << times;
}

size_t MatchBytes(const MatchOutcome& outcome) {
  size_t bytes = 0;
  for (const MatchList& list : outcome.lists) bytes += list.Bytes();
  return bytes;
}

}  // namespace

Runner::Runner(EGraph* graph, absl::Span<const Rule> rules, RunOptions options)
    : graph_(*graph), rules_(rules), options_(std::move(options)), states_(rules.size()) {
  for (uint32_t i = 0; i < rules.size(); ++i) {
    refused_before_.push_back(graph_.num_refused(Cause{i}));
  }
}

Report Runner::Run(const Limits& limits) {
  limits_ = limits;
  report_ = Report{};
  for (const Rule& rule : rules_) report_.rules.push_back({.name = rule.name, .tag = rule.tag});
  watch_ = Stopwatch();
  graph_.Rebuild();
  std::optional<StopReason> stop = CheckNodes();
  if (!stop) stop = CheckBytes();
  while (!stop) {
    if (report_.iterations.size() >= limits_.iterations) {
      stop = StopReason::kIterationLimit;
      break;
    }
    IterationReport iteration;
    stop = Iterate(&iteration);
    report_.iterations.push_back(iteration);
    ++iteration_;
  }
  report_.reason = *stop;
  CountRefusals();
  return std::move(report_);
}

std::optional<StopReason> Runner::Iterate(IterationReport* iteration) {
  Stopwatch watch;
  const uint32_t epoch = graph_.epoch();
  std::vector<size_t> ran;
  MatchOutcome outcome;
  std::optional<StopReason> stop = CheckClock();
  if (!stop) stop = MatchRules(&ran, &outcome);
  match_bytes_ = MatchBytes(outcome);
  watch.AddTo(&iteration->match_us);
  for (size_t i = 0; i < ran.size() && !stop; ++i) {
    const uint32_t since = states_[ran[i]].since;
    CollectMatches(ran[i], outcome.lists[i], epoch);
    stop = ApplyRule(ran[i], outcome.lists[i], iteration);
    // After a stop, matches that were not applied must be found again.
    if (stop) states_[ran[i]].since = since;
  }
  watch.AddTo(&iteration->apply_us);
  graph_.Rebuild();
  watch.AddTo(&iteration->rebuild_us);
  iteration->nodes = graph_.num_nodes();
  iteration->classes = graph_.num_classes();
  iteration->bytes = graph_.Bytes() + match_bytes_;
  if (!stop) stop = CheckNodes();
  if (!stop) stop = CheckBytes();
  if (stop || graph_.epoch() != epoch) return stop;
  if (!AnyBanned()) return StopReason::kSaturated;
  EndEarliestBan();
  return std::nullopt;
}

std::optional<StopReason> Runner::MatchRules(std::vector<size_t>* ran, MatchOutcome* outcome) {
  std::vector<MatchRequest> requests;
  for (size_t i = 0; i < rules_.size(); ++i) {
    RuleState& state = states_[i];
    if (iteration_ < state.banned_until) {
      ++report_.rules[i].banned_iterations;
      continue;
    }
    const uint64_t limit = rules_[i].match_limit ? rules_[i].match_limit : options_.match_limit;
    ran->push_back(i);
    requests.push_back({.query = &rules_[i].query,
                        .since = options_.incremental ? state.since : 0,
                        .reads_values = rules_[i].reads_values(),
                        .limit = Doubled(limit, state.times_banned)});
  }
  std::optional<StopReason> stop;
  const auto ask = [&](size_t match_bytes) {
    match_bytes_ = match_bytes;
    stop = CheckBytes();
    if (!stop) stop = CheckClock();
    return stop.has_value();
  };
  *outcome = FindMatches(graph_, requests, {.share = options_.share, .stop = ask});
  return stop;
}

// Adds a search to the report, and bans the rule if it exceeded its budget.
void Runner::CollectMatches(size_t rule, const MatchList& matches, uint32_t epoch) {
  RuleReport& report = report_.rules[rule];
  RuleState& state = states_[rule];
  report.matches += matches.size();
  report.work += matches.work;
  report.match_us += matches.microseconds;
  if (!matches.over_limit) {
    state.since = epoch;
    return;
  }
  constexpr uint32_t kMaxDoublings = 20;
  const size_t length = Doubled(options_.ban_length, std::min(state.times_banned, kMaxDoublings));
  state.banned_until = iteration_ + 1 + length;
  ++state.times_banned;
  ++report.bans;
}

std::optional<StopReason> Runner::ApplyRule(size_t rule, const MatchList& matches,
                                            IterationReport* iteration) {
  constexpr size_t kMatchesPerQuestion = 64;
  Stopwatch watch;
  RuleReport& report = report_.rules[rule];
  Rewriter rewriter(&graph_, Cause{static_cast<uint32_t>(rule)});
  const uint32_t nodes_before = graph_.node_bound();
  std::optional<StopReason> stop;
  for (size_t i = 0; i < matches.size() && !stop; ++i) {
    const Match match(&graph_, &rules_[rule].query.variables(), matches[i]);
    const absl::Status status = Apply(rules_[rule], match, &rewriter);
    report.applied += status.ok();
    report.errors += !status.ok();
    if (!status.ok()) report.last_error = std::string(status.message());
    stop = CheckNodes();
    if (stop || i % kMatchesPerQuestion != 0) continue;
    stop = CheckBytes();
    if (!stop) stop = CheckClock();
  }
  report.nodes += graph_.node_bound() - nodes_before;
  report.unions += rewriter.num_unions();
  iteration->matches += matches.size();
  iteration->unions += rewriter.num_unions();
  watch.AddTo(&report.apply_us);
  return stop;
}

std::optional<StopReason> Runner::CheckNodes() const {
  if (graph_.num_nodes() > limits_.nodes) return StopReason::kNodeLimit;
  return std::nullopt;
}

std::optional<StopReason> Runner::CheckBytes() const {
  if (graph_.Bytes() + match_bytes_ > limits_.bytes) return StopReason::kByteLimit;
  return std::nullopt;
}

std::optional<StopReason> Runner::CheckClock() const {
  if (options_.cancel && options_.cancel()) return StopReason::kCancelled;
  if (watch_.Elapsed() > limits_.time) return StopReason::kTimeLimit;
  return std::nullopt;
}

// Reports whether a rule is banned in this iteration, including new bans.
bool Runner::AnyBanned() const {
  return std::any_of(states_.begin(), states_.end(),
                     [this](const RuleState& s) { return s.banned_until > iteration_; });
}

// Every rule waits for a ban to end, so skips to the iteration in which the earliest ban ends.
void Runner::EndEarliestBan() {
  size_t earliest = std::numeric_limits<size_t>::max();
  for (const RuleState& s : states_) {
    if (s.banned_until > iteration_) earliest = std::min(earliest, s.banned_until);
  }
  const size_t skipped = earliest - (iteration_ + 1);
  for (RuleState& s : states_) {
    if (s.banned_until > iteration_) s.banned_until -= skipped;
  }
}

void Runner::CountRefusals() {
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    const uint64_t refused = graph_.num_refused(Cause{i});
    report_.rules[i].refused = refused - refused_before_[i];
    refused_before_[i] = refused;
  }
}

}  // namespace athanor::egraph
