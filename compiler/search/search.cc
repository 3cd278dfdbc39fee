#include "compiler/search/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/search/space.h"

namespace athanor {
namespace {

// Below these shares of the whole time an action is not worth its measurement.
constexpr double kLeastAction = 0.001;
constexpr double kNearRoofline = 1.1;
// Of a task: each measurement without a better schedule makes the next one less likely.
constexpr double kDecay = 0.88;
// A promised gain is kept back until this many kernels were measured, so that plans, which are dear
// to measure, come seldom.
constexpr int kKernelsPerPlan = 48;
// A change of the genome must be better by this much to be taken: kernels are measured alone and
// with noise.
constexpr double kLeastMove = 0.005;

std::string AboutOf(const KernelTask& task) {
  std::string about(OpName(task.graph.node(task.choice.root).op));
  if (task.choice.anchor >= 0 && task.choice.anchor != task.choice.root) {
    about += " over ";
    about += OpName(task.graph.node(task.choice.anchor).op);
  }
  return about;
}

}  // namespace

std::string_view SearchStopName(SearchStop stop) {
  switch (stop) {
    case SearchStop::kNone:
      return "none";
    case SearchStop::kRoofline:
      return "roofline";
    case SearchStop::kStagnation:
      return "stagnation";
    case SearchStop::kExhausted:
      return "exhausted";
    case SearchStop::kBudget:
      return "budget";
  }
  return "?";
}

Search::Search(std::unique_ptr<FormSpace> forms, const v1::Target& target, const Machine& machine,
               SearchOptions options)
    : forms_(std::move(forms)),
      target_(target),
      machine_(machine),
      options_(std::move(options)),
      random_(options_.seed) {
  forms_->UseCost([this](const Graph& graph) { return CostOf(graph); });
  best_ = MakeState(0, {});
}

Search::State Search::MakeState(int form, Fusion fusion) {
  State state{form, std::move(fusion), {}};
  state.calls = CallsOf(forms_->graph(form), state.fusion);
  return state;
}

Search::Calls Search::CallsOf(const Graph& graph, const Fusion& fusion) {
  Calls calls;
  const Genome genome = ChooseKernels(graph, target_, fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> weights = WeightsOf(graph);
  for (const KernelChoice& kernel : genome.kernels) {
    if (weights[kernel.root]) continue;  // computed once, by `prepare`
    ++calls[TaskOf(CutTask(graph, memory, weights, kernel))];
  }
  return calls;
}

double Search::CostOf(const Graph& graph) { return TimeOf(CallsOf(graph, {})); }

int Search::TaskOf(KernelTask task) {
  // Equal graphs may be asked for as kernels of several kinds: an epilogue that is computed alone.
  const std::string key = absl::StrCat(task.key, " ", static_cast<int>(task.choice.kind));
  auto [it, added] = task_of_.try_emplace(key, static_cast<int>(tasks_.size()));
  if (!added) return it->second;
  Tuning t;
  t.task = std::move(task);
  for (const SizePoint& sizes : options_.sizes) {
    t.roofline.push_back(RooflineSeconds(t.task, sizes, machine_) + machine_.launch_seconds);
  }
  tasks_.push_back(std::move(t));
  if (baseline_known_) MakeSchedules(tasks_.back());
  return it->second;
}

double Search::Weighted(const Seconds& seconds) const {
  return std::inner_product(seconds.begin(), seconds.end(), weight_.begin(), 0.0);
}

// The schedule the task starts with first, then the others by prediction.
void Search::MakeSchedules(Tuning& t) {
  struct Ranked {
    double predicted;
    size_t order;
    KernelChoice choice;
  };
  std::vector<Ranked> ranked;
  for (KernelChoice& choice : Schedules(t.task, target_)) {
    Seconds seconds;
    for (const SizePoint& sizes : options_.sizes) {
      seconds.push_back(PredictSeconds(t.task, choice, sizes, target_, machine_));
    }
    const bool first =
        choice.contract == t.task.choice.contract && choice.attention == t.task.choice.attention;
    ranked.push_back({first ? -1 : Weighted(seconds), ranked.size(), choice});
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return std::tie(a.predicted, a.order) < std::tie(b.predicted, b.order);
  });
  for (Ranked& r : ranked) t.schedules.push_back(std::move(r.choice));
  t.asked.resize(t.schedules.size());
}

double Search::TimeOf(const Tuning& t) const {
  return t.best.empty() ? RooflineOf(t) : Weighted(t.best);
}

double Search::TimeOf(const Calls& all) const {
  double time = 0;
  for (const auto& [task, calls] : all) time += calls * TimeOf(tasks_[task]);
  return time;
}

bool Search::Failed(const State& state) const {
  return std::any_of(state.calls.begin(), state.calls.end(), [&](const auto& entry) {
    const Tuning& t = tasks_[entry.first];
    return t.measured > 0 && t.best.empty();
  });
}

int Search::AskFor(int task, size_t schedule) {
  Tuning& t = tasks_[task];
  t.asked[schedule] = true;
  ++t.asked_count;
  while (t.next_unasked < t.asked.size() && t.asked[t.next_unasked]) ++t.next_unasked;
  kernels_.push_back({task, t.schedules[schedule]});
  schedule_of_.push_back(schedule);
  ++kernels_since_plan_;
  return static_cast<int>(kernels_.size()) - 1;
}

std::optional<size_t> Search::PickSchedule(Tuning& t) {
  if (t.exhausted()) return std::nullopt;
  if (t.best_schedule < 0) return t.next_unasked;
  // Every other one is a neighbour of the best, every eighth a random one.
  const int turn = t.asked_count % 8;
  if (turn == 7) {
    std::vector<size_t> open;
    for (size_t s = 0; s < t.asked.size(); ++s) {
      if (!t.asked[s]) open.push_back(s);
    }
    // The better half: what is predicted to be many times slower is not worth its time.
    return open[random_() % (open.size() / 2 + 1)];
  }
  if (turn % 2 == 1) {
    const std::vector<KernelChoice> near = Neighbours(t.schedules[t.best_schedule], t.schedules);
    for (size_t s = 0; s < t.schedules.size(); ++s) {
      if (t.asked[s]) continue;
      const bool is_near = std::any_of(near.begin(), near.end(), [&](const KernelChoice& c) {
        return c.contract == t.schedules[s].contract && c.attention == t.schedules[s].attention;
      });
      if (is_near) return s;
    }
  }
  return t.next_unasked;
}

double Search::TuningGain(int task, int calls) const {
  const Tuning& t = tasks_[task];
  if (t.exhausted() || t.best.empty()) return 0;
  const double slack = Weighted(t.best) - RooflineOf(t);
  return calls * std::max(0.0, slack) * 0.5 * std::pow(kDecay, t.since_better);
}

void Search::TellKernel(int id, const absl::StatusOr<Seconds>& outcome) {
  Tuning& t = tasks_[kernels_[id].task];
  ++t.measured;
  if (!outcome.ok()) {
    ++t.failed;
    ++failed_;
    ++t.since_better;
    return;
  }
  if (t.first.empty()) t.first = *outcome;
  const bool better = t.best.empty() || (weight_.empty() ? outcome->front() < t.best.front()
                                                         : Weighted(*outcome) < Weighted(t.best));
  if (!better) {
    ++t.since_better;
    return;
  }
  for (size_t s = 0; s < outcome->size(); ++s) {
    // Shorter ones are made of what no roofline knows.
    if (t.roofline[s] > 5e-6) slack_ = std::min(slack_, (*outcome)[s] / t.roofline[s]);
  }
  t.best = *outcome;
  t.best_schedule = static_cast<int>(schedule_of_[id]);
  t.since_better = 0;
}

void Search::TellPlan(int id, bool taken) {
  if (taken) served_ = plans_[id].predicted;
  // A plan that did not hold what its kernels promised says that the sum is off by so much.
  if (!taken) served_ = std::min(served_, plans_[id].predicted * (1 + options_.least_gain));
}

std::vector<int> Search::AskForState(const State& state) {
  std::vector<int> asked;
  for (const auto& [task, calls] : state.calls) {
    Tuning& t = tasks_[task];
    if (t.measured > 0) continue;
    if (t.schedules.empty()) {
      t.schedules = {t.task.choice};
      t.asked = {false};
    }
    asked.push_back(AskFor(task, 0));
    // What is best for the contraction alone is a good guess for it with another epilogue.
    if (t.schedules.size() > 1) asked.push_back(AskFor(task, 1));
  }
  return asked;
}

void Search::Settle() {
  if (!baseline_known_) {
    // The baseline's own times are what everything is a share of.
    const double sizes = static_cast<double>(options_.sizes.size());
    for (size_t s = 0; s < options_.sizes.size(); ++s) {
      double total = 0;
      for (const auto& [task, calls] : best_.calls) {
        const Tuning& t = tasks_[task];
        total += calls * (t.best.empty() ? t.roofline[s] * slack_ : t.best[s]);
      }
      weight_.push_back(total > 0 ? 1 / (sizes * total) : 0);
    }
    baseline_known_ = true;
    for (Tuning& t : tasks_) {
      t.schedules.clear();
      t.asked.clear();
      MakeSchedules(t);
      t.asked[0] = t.measured > 0;  // the schedule it starts with
      t.next_unasked = t.measured > 0 ? 1 : 0;
      t.best_schedule = t.best.empty() ? -1 : 0;
    }
    FindMoves();
    return;
  }
  if (!trying_) return;
  ++genomes_tried_;
  const bool other_form = trying_->form != best_.form;
  if (other_form) ++forms_tried_;
  if (!Failed(*trying_) && TimeOf(*trying_) < TimeOf(best_) - kLeastMove) {
    best_ = *std::move(trying_);
    ++genomes_taken_;
    if (other_form) ++forms_taken_;
    FindMoves();
  }
  trying_.reset();
}

// Changes of the best genome by one decision, the same in all places that look the same.
void Search::AddFlips(const State& from) {
  const Graph& graph = forms_->graph(from.form);
  const Genome genome = ChooseKernels(graph, target_, from.fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  const std::vector<bool> weights = WeightsOf(graph);
  // A node's places: kernels that compute it, as (task, position in the task).
  std::vector<std::set<std::string>> places(graph.nodes.size());
  for (const KernelChoice& kernel : genome.kernels) {
    const KernelTask task = CutTask(graph, memory, weights, kernel);
    std::vector<bool> needed(graph.nodes.size());
    needed[kernel.root] = true;
    int position = 0;
    for (NodeId n = kernel.root; n >= 0; --n) {
      if (!needed[n]) continue;
      places[n].insert(absl::StrCat(task.key.substr(0, 16), ".", position++));
      if (memory[n] && n != kernel.root) continue;
      for (NodeId i : graph.node(n).inputs) needed[i] = true;
    }
  }
  std::map<std::string, Fusion> flips;
  for (const auto& [node, say] : FusionFlips(graph, genome)) {
    std::string key = absl::StrCat(from.form, say == Fuse::kMemory ? " memory" : " inline");
    for (const std::string& place : places[node]) absl::StrAppend(&key, " ", place);
    if (moved_.contains(key)) continue;
    Fusion& fusion = flips.try_emplace(key, from.fusion).first->second;
    fusion.nodes[node] = say;
  }
  for (auto& [key, fusion] : flips) {
    State state = MakeState(from.form, std::move(fusion));
    if (state.calls == from.calls) continue;
    const double gain = TimeOf(from) - TimeOf(state);
    moves_.push_back({key, std::move(state), gain});
  }
}

// Other graphs, each tried once.
void Search::AddForms(const State& from) {
  for (int form : forms_->Neighbours(from.form)) {
    const std::string key = absl::StrCat("form ", form);
    if (form == from.form || moved_.contains(key)) continue;
    State state = MakeState(form, {});
    const double gain = TimeOf(from) - TimeOf(state);
    moves_.push_back({key, std::move(state), gain});
  }
}

void Search::FindMoves() {
  moves_.clear();
  AddFlips(best_);
  AddForms(best_);
  // Tasks not measured yet count with their roofline here, so a gain is what is possible, not
  // likely.
  std::sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) {
    return std::tie(a.gain, b.key) < std::tie(b.gain, a.key);
  });
}

std::optional<Search::Step> Search::TryMove() {
  while (!moves_.empty()) {
    Move move = std::move(moves_.back());
    moves_.pop_back();
    if (move.gain < kLeastAction) {
      moves_.clear();
      return std::nullopt;
    }
    if (!moved_.insert(move.key).second) continue;
    trying_ = std::move(move.state);
    return Step{.kernels = AskForState(*trying_)};
  }
  return std::nullopt;
}

std::optional<Search::Step> Search::TuneBest() {
  Step step;
  for (int i = 0; i < options_.batch; ++i) {
    int chosen = -1;
    double most = kLeastAction;
    for (const auto& [task, calls] : best_.calls) {
      // Those asked for in this step count as tried.
      const auto again = std::count_if(step.kernels.begin(), step.kernels.end(),
                                       [&](int k) { return kernels_[k].task == task; });
      const double gain = TuningGain(task, calls) * std::pow(kDecay, again);
      if (gain > most) {
        most = gain;
        chosen = task;
      }
    }
    if (chosen < 0) break;
    std::optional<size_t> schedule = PickSchedule(tasks_[chosen]);
    if (!schedule) break;
    step.kernels.push_back(AskFor(chosen, *schedule));
  }
  if (step.kernels.empty()) return std::nullopt;
  return step;
}

ScheduledGraph Search::Schedule(const State& state) const {
  ScheduledGraph scheduled{forms_->graph(state.form), {}};
  Graph& graph = scheduled.graph;
  scheduled.genome = ChooseKernels(graph, target_, state.fusion);
  const std::vector<bool> memory = MemoryOf(graph, scheduled.genome);
  const std::vector<bool> weights = WeightsOf(graph);
  for (KernelChoice& kernel : scheduled.genome.kernels) {
    if (weights[kernel.root]) continue;
    const KernelTask task = CutTask(graph, memory, weights, kernel);
    auto known = task_of_.find(absl::StrCat(task.key, " ", static_cast<int>(kernel.kind)));
    if (known == task_of_.end()) continue;
    const Tuning& t = tasks_[known->second];
    if (t.best_schedule < 0) continue;
    kernel.contract = t.schedules[t.best_schedule].contract;
    kernel.attention = t.schedules[t.best_schedule].attention;
  }
  PackWeights(&graph, &scheduled.genome, target_);
  return scheduled;
}

std::optional<Search::Step> Search::ProposePlan(double least_gain) {
  const double time = TimeOf(best_);
  if (time > served_ * (1 - least_gain)) return std::nullopt;
  PlanCandidate plan{best_.form, best_.fusion, Schedule(best_), time};
  std::string text = absl::StrCat(plan.form);
  for (const KernelChoice& k : plan.scheduled.genome.kernels) {
    absl::StrAppend(&text, ";", k.root, " ", ScheduleText(k));
  }
  if (!proposed_.insert(std::move(text)).second) return std::nullopt;
  kernels_since_plan_ = 0;
  plans_.push_back(std::move(plan));
  return Step{.plan = static_cast<int>(plans_.size()) - 1};
}

Search::Step Search::Next() {
  if (kernels_.empty() && !finishing_) {
    Step first{.kernels = AskForState(best_)};
    if (!first.kernels.empty()) return first;
  }
  Settle();
  if (kernels_since_plan_ >= kKernelsPerPlan) {
    if (auto step = ProposePlan(2 * options_.least_gain)) return *std::move(step);
  }
  if (best_.calls.empty() || kernels_.empty()) {
    stop_ = finishing_ ? SearchStop::kBudget : SearchStop::kExhausted;
    return Step{.done = true, .stop = stop_};
  }
  double limit = 0;
  for (const auto& [task, calls] : best_.calls) limit += calls * RooflineOf(tasks_[task]);
  if (finishing_ || static_cast<int64_t>(kernels_.size()) >= options_.max_kernels) {
    stop_ = SearchStop::kBudget;
  } else if (TimeOf(best_) <= limit * kNearRoofline) {
    stop_ = SearchStop::kRoofline;
  } else {
    // A change of the genome that promises more than any schedule comes first.
    double tuning = 0;
    for (const auto& [task, calls] : best_.calls) {
      tuning = std::max(tuning, TuningGain(task, calls));
    }
    const bool move_first = !moves_.empty() && moves_.back().gain * 0.25 > tuning;
    std::optional<Step> step = move_first ? TryMove() : TuneBest();
    if (!step) step = move_first ? TuneBest() : TryMove();
    if (step) return *std::move(step);
    const bool open = std::any_of(best_.calls.begin(), best_.calls.end(), [&](const auto& entry) {
      return !tasks_[entry.first].exhausted();
    });
    stop_ = open ? SearchStop::kStagnation : SearchStop::kExhausted;
  }
  if (auto step = ProposePlan(options_.least_gain)) return *std::move(step);
  return Step{.done = true, .stop = stop_};
}

SearchReport Search::Report() const {
  SearchReport report;
  report.kernels_measured = static_cast<int64_t>(kernels_.size());
  report.kernels_failed = failed_;
  report.genomes_tried = genomes_tried_;
  report.genomes_taken = genomes_taken_;
  report.forms_tried = forms_tried_;
  report.forms_taken = forms_taken_;
  report.rules = forms_->About(best_.form);
  report.regions = forms_->Report();
  report.plans_proposed = static_cast<int>(plans_.size());
  report.stop = stop_;
  if (!baseline_known_) return report;
  report.predicted = TimeOf(best_);
  for (const auto& [task, calls] : best_.calls) {
    const Tuning& t = tasks_[task];
    report.roofline += calls * RooflineOf(t);
    TaskReport r{t.task.key, AboutOf(t.task), calls,  t.measured, t.failed,
                 "",         t.first,         t.best, t.roofline};
    if (t.best_schedule >= 0) r.schedule = ScheduleText(t.schedules[t.best_schedule]);
    report.tasks.push_back(std::move(r));
  }
  auto time = [&](const TaskReport& t) {
    return t.calls * Weighted(t.best.empty() ? t.roofline : t.best);
  };
  std::sort(report.tasks.begin(), report.tasks.end(),
            [&](const TaskReport& a, const TaskReport& b) {
              const double ta = time(a), tb = time(b);
              return ta != tb ? ta > tb : a.key < b.key;
            });
  return report;
}

}  // namespace athanor
