#include "compiler/search/search/search.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr double kNearRoofline = 1.1;
// Kernels to measure before a promised gain is proposed as a plan: plans are expensive to measure.
constexpr int kKernelsPerPlan = 48;
// Most steps of kFast's descent by the cost model.
constexpr int kMostDescents = 64;
constexpr size_t kFinalists = 3;

}  // namespace

Search::Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
               SearchOptions options)
    : forms_(std::move(forms)),
      options_(std::move(options)),
      context_{target, machine, options_.sizes, {}},
      random_(options_.seed),
      suggested_(options_.recipes) {
  if (!options_.library) context_.target.clear_blas();
  for (auto& slack : slack_) slack.fill(1);
  bias_.fill(1);
  forms_->UseCost([this](const Graph& graph) { return CostOf(graph); });
  baseline_ = MakeState(0, {});
  best_ = MakeState(0, {{}, options_.fusion});
}

size_t Search::Magnitude(double roofline) {
  constexpr double kLeast = 3e-6;  // seconds; each magnitude is tenfold
  size_t magnitude = 0;
  for (double limit = kLeast; roofline > limit && magnitude + 1 < kMagnitudes; limit *= 10) {
    ++magnitude;
  }
  return magnitude;
}

void Search::NoteSlack(const Tuning& t) {
  for (size_t s = 0; s < t.best().size(); ++s) {
    const double roofline = t.roofline()[s];
    double& slack = slack_[static_cast<size_t>(t.task().choice.kind)][Magnitude(roofline)];
    if (roofline > 0) slack = std::min(slack, t.best()[s] / roofline);
  }
}

void Search::RaiseLimits(const Machine& machine) {
  context_.machine = machine;
  for (auto& slack : slack_) slack.fill(1);
  for (Tuning& t : tasks_) {
    t.Reprice();
    NoteSlack(t);
  }
  if (baseline_known_) FindMoves();
}

double Search::RooflineOf(const Tuning& t) const {
  const auto& slack = slack_[static_cast<size_t>(t.task().choice.kind)];
  double roofline = 0;
  for (size_t s = 0; s < context_.weights.size(); ++s) {
    roofline += context_.weights[s] * t.roofline()[s] * slack[Magnitude(t.roofline()[s])];
  }
  if (t.best().empty()) return roofline;
  // A limit that was beaten is none: small kernels find more in the caches than is modelled. The
  // true one may be lower by as much again.
  const double best = context_.Weighted(t.best()), modelled = t.WeightedRoofline();
  if (best < modelled) return best * best / modelled;
  return std::min(roofline, best);
}

double Search::TimeOf(Tuning& t) const {
  if (!t.best().empty()) return context_.Weighted(t.best());
  // Assumes the baseline's schedule: its failed measurement says nothing about others.
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
  const bool promise = std::any_of(moves_.begin(), moves_.end(), [&](const auto& moves) {
    return std::any_of(moves.begin(), moves.end(),
                       [&](const Move& m) { return m.gain > options_.least_gain; });
  });
  // If whole plans do not hold what their kernels promise, the limit is not near.
  return !promise && unheld_ * TimeOf(best_.calls) <= limit * kNearRoofline;
}

void Search::TellPlan(int id, bool taken, std::optional<double> ratio) {
  const double predicted = plans_[id].predicted;
  if (ratio && *ratio > 0) {
    unheld_ = std::max(1.0, *ratio * serving_share_ / predicted);
    if (taken) serving_share_ *= *ratio;
  }
  if (taken) {
    taken_ = id;
    served_ = predicted;
  } else if (ratio && *ratio > 0) {
    // The sum of kernels is wrong by as much as the plan fell short.
    served_ = std::min(served_, predicted / *ratio);
  } else {
    served_ = std::min(served_, predicted * (1 + options_.least_gain));
  }
}

// All times are shares of the baseline's.
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

std::array<Search::Work, Search::kWorks> Search::Turns() {
  constexpr double kLeastShare = 0.2;
  std::array<double, kWorks> promise{};
  for (const auto& [task, calls] : best_.calls) {
    promise[0] = std::max(promise[0], TuningGain(task, calls));
  }
  double all = promise[0];
  for (size_t w = 1; w < kWorks; ++w) {
    if (!moves_[w].empty()) all += promise[w] = std::max(0.0, moves_[w].back().promise);
  }
  std::array<double, kWorks> waited;  // by Work: kernels spent per promise; the least comes first
  for (size_t w = 0; w < kWorks; ++w) {
    waited[w] = promise[w] > 0 ? spent_[w] / std::max(promise[w], kLeastShare * all)
                               : std::numeric_limits<double>::infinity();
  }
  std::array<Work, kWorks> turns = {Work::kSchedules, Work::kFlips, Work::kForms};
  std::sort(turns.begin(), turns.end(), [&](Work a, Work b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return std::tie(waited[i], promise[j], i) < std::tie(waited[j], promise[i], j);
  });
  return turns;
}

std::optional<Search::Step> Search::Improve() {
  const double least = exhaust() ? -1 : kLeastAction;
  do {
    std::optional<Step> step;
    for (Work work : Turns()) {
      working_ = work;
      step = work == Work::kSchedules ? Tune(best_.calls, least) : TryMove(work);
      if (step) return step;
    }
    working_ = Work::kSchedules;
    if (exhaust()) step = TuneRest();
    if (step) return step;
  } while (Reconsider());
  return std::nullopt;
}

Search::Step Search::Done(SearchStop stop) {
  stop_ = stop;
  return Step{.done = true, .stop = stop};
}

// Descends by the cost model alone. Then proposes the genome it came to, with the schedules that
// the model predicts to be best and with those of the rule of thumb, and the original graph with
// the former. Recipes' genomes are proposed before.
Search::Step Search::NextFinalist() {
  if (finishing_) return Done(SearchStop::kBudget);
  if (!baseline_known_) {
    SettleBaseline();
    for (int i = 0; i < kMostDescents; ++i) {
      // Without measurements the most promising work comes first.
      std::optional<Move> move;
      for (Work work : Turns()) {
        if (work != Work::kSchedules && !move) move = NextMove(work);
      }
      if (!move || move->gain <= kLeastMove) break;
      Take(Try(*std::move(move)));
    }
  }
  while (std::optional<State> state = NextFromRecipes()) {
    if (auto step = Propose(*state, Schedules::kSuggested)) return *std::move(step);
  }
  while (finalists_ < kFinalists) {
    const size_t finalist = finalists_++;
    const State& state = finalist < 2 ? best_ : baseline_;
    const Schedules which = finalist == 1 ? Schedules::kStarted : Schedules::kBest;
    if (auto step = Propose(state, which)) return *std::move(step);
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
  if (auto step = TryRecipes()) return *std::move(step);
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
