#include "compiler/search/search.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr double kNearRoofline = 1.1;
// A promised gain is kept back until this many kernels were measured, so that plans, which are dear
// to measure, come seldom.
constexpr int kKernelsPerPlan = 48;
// Of the cost model's descent in kFast.
constexpr int kMostDescents = 64;
constexpr size_t kFinalists = 3;

}  // namespace

Search::Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
               SearchOptions options)
    : forms_(std::move(forms)),
      options_(std::move(options)),
      context_{target, machine, options_.sizes, {}},
      random_(options_.seed) {
  if (!options_.library) context_.target.clear_blas();
  slack_.fill(1);
  bias_.fill(1);
  forms_->UseCost([this](const Graph& graph) { return CostOf(graph); });
  baseline_ = MakeState(0, {});
  best_ = MakeState(0, {{}, options_.fusion});
}

double Search::RooflineOf(const Tuning& t) const {
  const double roofline = t.WeightedRoofline() * slack_[static_cast<size_t>(t.task().choice.kind)];
  return t.best().empty() ? roofline : std::min(roofline, context_.Weighted(t.best()));
}

double Search::TimeOf(Tuning& t) const {
  if (!t.best().empty()) return context_.Weighted(t.best());
  // As the baseline has it: that it cannot be measured says nothing about others.
  if (t.Failed()) return t.PredictedStart();
  return fast() ? t.PredictedBest() : RooflineOf(t);
}

double Search::TimeOf(const Calls& calls) {
  double time = 0;
  for (const auto& [task, count] : calls) time += count * TimeOf(tasks_[task]);
  return time;
}

double Search::ExpectedOf(const Calls& calls) {
  double time = 0;
  for (const auto& [task, count] : calls) {
    Tuning& t = tasks_[task];
    const double bias = bias_[static_cast<size_t>(t.task().choice.kind)];
    time += count * (t.measured() > 0 ? TimeOf(t) : bias * t.PredictedBest());
  }
  return time;
}

bool Search::Known(const State& state) const {
  return std::all_of(state.calls.begin(), state.calls.end(), [&](const auto& entry) {
    const Tuning& t = tasks_[entry.first];
    return fast() || !t.best().empty() || (t.Failed() && baseline_.calls.contains(entry.first));
  });
}

bool Search::NearRoofline() {
  double limit = 0;
  for (const auto& [task, calls] : best_.calls) limit += calls * RooflineOf(tasks_[task]);
  const bool promise = !moves_.empty() && moves_.back().gain > options_.least_gain;
  return !promise && TimeOf(best_.calls) <= limit * kNearRoofline;
}

void Search::TellPlan(int id, bool taken, std::optional<double> ratio) {
  const double predicted = plans_[id].predicted;
  if (taken) {
    served_ = predicted;
  } else if (ratio && *ratio > 0) {
    // The sum of kernels is off by as much as the plan did not hold.
    served_ = std::min(served_, predicted / *ratio);
  } else {
    served_ = std::min(served_, predicted * (1 + options_.least_gain));
  }
}

// The baseline's own times are what everything is a share of.
void Search::SettleBaseline() {
  const double sizes = static_cast<double>(options_.sizes.size());
  Seconds weights;
  for (size_t s = 0; s < options_.sizes.size(); ++s) {
    double total = 0;
    for (const auto& [task, calls] : baseline_.calls) {
      const Tuning& t = tasks_[task];
      total += calls * (t.best().empty() ? t.start()[s] : t.best()[s]);
    }
    weights.push_back(total > 0 ? 1 / (sizes * total) : 0);
  }
  context_.weights = std::move(weights);
  baseline_known_ = true;
  RememberBaseline();
  FindMoves();
}

std::optional<Search::Step> Search::Improve() {
  const double least = exhaust() ? -1 : kLeastAction;
  do {
    // A change of the genome that promises more than any schedule comes first.
    double tuning = 0;
    for (const auto& [task, calls] : best_.calls) {
      tuning = std::max(tuning, TuningGain(task, calls));
    }
    const bool move_first = !moves_.empty() && moves_.back().gain * 0.25 > tuning;
    std::optional<Step> step = move_first ? TryMove() : Tune(best_.calls, least);
    if (!step) step = move_first ? Tune(best_.calls, least) : TryMove();
    if (!step && exhaust()) step = TuneRest();
    if (step) return step;
  } while (Reconsider());
  return std::nullopt;
}

Search::Step Search::Done(SearchStop stop) {
  stop_ = stop;
  return Step{.done = true, .stop = stop};
}

// Descends by the cost model alone, then proposes what it came to with the schedules that the model
// likes, with those of the rule of thumb, and the graph as it was with the former.
Search::Step Search::NextFinalist() {
  if (finishing_) return Done(SearchStop::kBudget);
  if (!baseline_known_) {
    SettleBaseline();
    for (int i = 0; i < kMostDescents && !moves_.empty(); ++i) {
      Move move = std::move(moves_.back());
      moves_.pop_back();
      if (move.gain <= kLeastMove) break;
      moved_.insert(move.key);
      Take(Try(std::move(move)));
    }
  }
  while (finalists_ < kFinalists) {
    const size_t finalist = finalists_++;
    const State& state = finalist < 2 ? best_ : baseline_;
    if (auto step = Propose(state, finalist == 1)) return *std::move(step);
  }
  return Done(SearchStop::kExhausted);
}

Search::Step Search::Next() {
  if (options_.max_kernels <= 0) return Done(SearchStop::kBudget);
  if (fast()) return NextFinalist();
  if (kernels_.empty() && !finishing_) {
    Step first;
    AskForState(baseline_, &first);
    AskForState(best_, &first);
    if (!first.kernels.empty()) return first;
  }
  if (!baseline_known_) SettleBaseline();
  if (kernels_since_plan_ >= kKernelsPerPlan) {
    if (auto step = ProposeBest(2 * options_.least_gain)) return *std::move(step);
  }
  if (kernels_.empty()) return Done(finishing_ ? SearchStop::kBudget : SearchStop::kExhausted);
  if (auto step = GoOnTrying()) return *std::move(step);
  SearchStop stop = SearchStop::kBudget;
  if (!finishing_ && MayAsk()) {
    stop = SearchStop::kRoofline;
    if (exhaust() || !NearRoofline()) {
      if (auto step = Improve()) return *std::move(step);
      const bool open = std::any_of(best_.calls.begin(), best_.calls.end(), [&](const auto& entry) {
        return !tasks_[entry.first].Exhausted();
      });
      stop = open ? SearchStop::kStagnation : SearchStop::kExhausted;
    }
  }
  stop_ = stop;
  if (auto step = ProposeBest(options_.least_gain)) return *std::move(step);
  return Done(stop);
}

}  // namespace athanor
