// Chooses the genomes that a search compares: other fusions of a graph, other forms of it.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/search/search/search.h"

namespace athanor {
namespace {

// Tuning steps for a change that could still win by tuning its own kernels.
constexpr int kTryingSteps = 4;
constexpr size_t kMaxAside = 256;

std::string TextOf(int form, const ScheduledGraph& scheduled) {
  std::string text = absl::StrCat(form);
  for (const KernelChoice& k : scheduled.genome.kernels) {
    absl::StrAppend(&text, ";", k.root, " ", ScheduleText(k));
  }
  return text;
}

}  // namespace

TaskIndex& Search::IndexOf(int form) {
  auto known = indexes_.find(form);
  if (known == indexes_.end()) {
    known = indexes_.try_emplace(form, forms_->graph(form), &numbers_).first;
  }
  return known->second;
}

int Search::TaskOf(const Graph& graph, TaskIndex& index, const std::vector<bool>& memory,
                   const KernelChoice& kernel, std::vector<NodeId>* nodes) {
  TaskIndex::Found found = index.Find(memory, kernel);
  if (nodes != nullptr) *nodes = std::move(found.nodes);
  auto [it, added] =
      task_of_.try_emplace(std::move(found.signature), static_cast<int>(tasks_.size()));
  if (added) tasks_.emplace_back(CutTask(graph, memory, index.weights(), kernel), &context_);
  return it->second;
}

Genome Search::GenomeOf(const Graph& graph, const TaskIndex& index, const Fusion& fusion) {
  return ChooseKernels(graph, context_.target, fusion, FusionKnowledge{&fused_, &index.kinds()});
}

Search::Calls Search::CallsOf(const Graph& graph, TaskIndex& index, const Fusion& fusion) {
  Calls calls;
  const Genome genome = GenomeOf(graph, index, fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  for (const KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root]) continue;  // computed once, by `prepare`
    ++calls[TaskOf(graph, index, memory, kernel)];
  }
  return calls;
}

Search::State Search::MakeState(int form, Fusion fusion) {
  Calls calls = CallsOf(forms_->graph(form), IndexOf(form), fusion);
  return {form, std::move(fusion), std::move(calls)};
}

double Search::CostOf(const Graph& graph) {
  TaskIndex index(graph, &numbers_);
  return ExpectedOf(CallsOf(graph, index, {{}, options_.fusion}));
}

Fusion Search::Carried(const State& from, int form) {
  Fusion fusion{{}, options_.fusion};
  if (from.fusion.nodes.empty()) return fusion;
  std::map<int, Fuse> say;  // by value
  const TaskIndex& old = IndexOf(from.form);
  for (const auto& [node, fuse] : from.fusion.nodes) say[old.value(node)] = fuse;
  const TaskIndex& index = IndexOf(form);
  const auto count = static_cast<NodeId>(forms_->graph(form).nodes.size());
  for (NodeId n = 0; n < count; ++n) {
    if (auto it = say.find(index.value(n)); it != say.end()) fusion.nodes[n] = it->second;
  }
  return fusion;
}

double Search::GainOf(const Calls& less, const Calls& more) {
  return TimeOf(less) - (TimeOf(more) + ExpectedOf(more)) / 2;
}

// Adds changes of the best genome by one decision, made alike in all places that look alike.
void Search::AddFlips(const State& from) {
  const Graph& graph = forms_->graph(from.form);
  TaskIndex& index = IndexOf(from.form);
  const Genome genome = GenomeOf(graph, index, from.fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  // Kernels that compute a node, as (task, position in the task).
  std::vector<std::set<std::pair<int, int>>> places(graph.nodes.size());
  for (const KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root]) continue;
    std::vector<NodeId> nodes;
    const int task = TaskOf(graph, index, memory, kernel, &nodes);
    for (size_t i = 0; i < nodes.size(); ++i) places[nodes[i]].emplace(task, static_cast<int>(i));
  }
  std::map<std::string, Fusion> flips;
  for (const auto& [node, say] : FusionFlips(graph, genome, options_.fusion)) {
    std::string key = say == Fuse::kMemory ? "memory" : "inline";
    for (const auto& [task, place] : places[node]) absl::StrAppend(&key, " ", task, ".", place);
    if (moved_.contains(key)) continue;
    Fusion& fusion = flips.try_emplace(std::move(key), from.fusion).first->second;
    fusion.nodes[node] = say;
  }
  for (auto& [key, fusion] : flips) {
    auto [change, is_new] = changes_.try_emplace(key);
    auto& [less, more] = change->second;
    if (is_new) {
      more = CallsOf(graph, index, fusion);
      // Reduces both sides to the calls that the flip changes.
      for (const auto& [task, calls] : from.calls) {
        const int left = more.contains(task) ? more[task] - calls : -calls;
        if (left >= 0) more.erase(task);
        if (left > 0) more[task] = left;
        if (left < 0) {
          less[task] = -left;
          more.erase(task);
        }
      }
    }
    if (!less.empty() || !more.empty()) {
      AddMove(Work::kFlips, key, from.form, std::move(fusion), GainOf(less, more), more);
    }
  }
}

// Adds other forms, each tried once.
void Search::AddForms(const State& from) {
  for (int form : forms_->Neighbours(from.form)) {
    std::string key = absl::StrCat("form ", form);
    if (form == from.form || moved_.contains(key)) continue;
    Fusion fusion = Carried(from, form);
    auto [change, is_new] = changes_.try_emplace(key);
    Calls& calls = change->second.second;
    if (is_new) calls = CallsOf(forms_->graph(form), IndexOf(form), fusion);
    const double gain = GainOf(from.calls, calls);
    AddMove(Work::kForms, std::move(key), form, std::move(fusion), gain, calls);
  }
}

void Search::AddMove(Work work, std::string key, int form, Fusion fusion, double gain,
                     const Calls& more) {
  if (gain < kLeastAction && !exhaust()) return;
  constexpr double kLikely = 0.25;  // probability that a move holds its promise
  double kernels = 0;               // to be measured until it is decided
  for (const auto& [task, calls] : more) {
    // AskForState asks for two schedules of a new task.
    if (!fast() && tasks_[task].measured() == 0) kernels += 2;
  }
  if (kernels > 0) kernels += options_.batch;
  const double promise = gain * kLikely / std::max(1.0, kernels / options_.batch);
  moves_[static_cast<size_t>(work)].push_back(
      {std::move(key), form, std::move(fusion), gain, promise});
}

// Corrects later predictions by what measurements took, for each kind of kernel.
void Search::SettleBias() {
  std::array<double, kKinds> measured{}, predicted{};
  for (Tuning& t : tasks_) {
    if (t.best().empty()) continue;
    const size_t kind = static_cast<size_t>(t.task().choice.kind);
    measured[kind] += context_.Weighted(t.best());
    predicted[kind] += t.PredictedBest();
  }
  for (size_t k = 0; k < kKinds; ++k) bias_[k] = predicted[k] > 0 ? measured[k] / predicted[k] : 1;
}

void Search::FindMoves() {
  SettleBias();
  for (std::vector<Move>& moves : moves_) moves.clear();
  AddFlips(best_);
  AddForms(best_);
  for (std::vector<Move>& moves : moves_) {
    std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
      return std::tie(a.promise, b.key) < std::tie(b.promise, a.key);
    });
  }
}

// Makes `state` the best genome if it is better, and puts the other one aside. Returns true if so.
bool Search::Take(State state) {
  const bool other_form = state.form != best_.form;
  const bool better = Known(state) && TimeOf(state.calls) < TimeOf(best_.calls) - kLeastMove;
  if (better) {
    std::swap(state, best_);
    ++genomes_taken_;
    if (other_form) ++forms_taken_;
    FindMoves();
  }
  if (aside_.size() < kMaxAside) aside_.push_back(std::move(state));
  return better;
}

// A state put aside may be the best by now, because its tasks got faster since.
bool Search::Reconsider() {
  size_t chosen = aside_.size();
  double least = TimeOf(best_.calls) - kLeastMove;
  for (size_t i = 0; i < aside_.size(); ++i) {
    if (!Known(aside_[i])) continue;
    const double time = TimeOf(aside_[i].calls);
    if (time < least) {
      least = time;
      chosen = i;
    }
  }
  if (chosen == aside_.size()) return false;
  State state = std::move(aside_[chosen]);
  aside_.erase(aside_.begin() + static_cast<std::ptrdiff_t>(chosen));
  return Take(std::move(state));
}

Search::State Search::Try(Move move) {
  ++genomes_tried_;
  if (move.form != best_.form) ++forms_tried_;
  return MakeState(move.form, std::move(move.fusion));
}

std::optional<Search::Move> Search::NextMove(Work work) {
  std::vector<Move>& moves = moves_[static_cast<size_t>(work)];
  while (!moves.empty()) {
    Move move = std::move(moves.back());
    moves.pop_back();
    if (moved_.insert(move.key).second) return move;
  }
  return std::nullopt;
}

std::optional<Search::Step> Search::TryMove(Work work) {
  while (std::optional<Move> move = NextMove(work)) {
    Step step;
    State state = Try(*std::move(move));
    AskForState(state, &step);
    if (!step.kernels.empty()) {
      trying_ = std::move(state);
      trying_steps_ = 0;
      return step;
    }
    Take(std::move(state));  // all its kernels are known
  }
  return std::nullopt;
}

// Asks for more schedules for a change that is close to winning. Before it wins, also asks for the
// schedules found on the way, for the kernels that it would replace.
std::optional<Search::Step> Search::GoOnTrying() {
  if (!trying_) return std::nullopt;
  const double behind = TimeOf(trying_->calls) - TimeOf(best_.calls);
  if (Known(*trying_) && !finishing_) {
    Calls own;
    double possible = 0;
    for (const auto& [task, calls] : trying_->calls) {
      if (best_.calls.contains(task)) continue;
      own[task] = calls;
      possible += TuningGain(task, calls);
    }
    if (behind > -kLeastMove && behind < possible && trying_steps_++ < kTryingSteps) {
      if (auto step = Tune(own, kLeastAction)) return step;
    }
    Step step;
    for (const auto& [task, calls] : best_.calls) {
      if (behind >= 0 || trying_->calls.contains(task)) continue;
      if (auto schedule = Inherited(task)) AskFor(task, *schedule, &step);
    }
    if (!step.kernels.empty()) return step;
  }
  State state = *std::move(trying_);
  trying_.reset();
  Take(std::move(state));
  return std::nullopt;
}

Genome Search::Scheduled(const State& state, Schedules which) {
  const Graph& graph = forms_->graph(state.form);
  TaskIndex& index = IndexOf(state.form);
  Genome genome = GenomeOf(graph, index, state.fusion);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  for (KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root] || which == Schedules::kStarted) continue;
    const int task = TaskOf(graph, index, memory, kernel);
    const Tuning& t = tasks_[task];
    size_t chosen = 0;
    if (t.best_schedule() >= 0) chosen = static_cast<size_t>(t.best_schedule());
    if (t.best_schedule() < 0 && fast()) chosen = LikedBest(task, which);
    KernelChoice choice = t.schedule(chosen);
    choice.root = kernel.root;
    choice.anchor = kernel.anchor;
    kernel = choice;
  }
  return genome;
}

ScheduledGraph Search::Packed(int form, Genome genome) {
  ScheduledGraph scheduled{forms_->graph(form), std::move(genome)};
  PackWeights(&scheduled.graph, &scheduled.genome, context_.target);
  return scheduled;
}

std::optional<Search::Step> Search::Propose(const State& state, Schedules which) {
  Genome genome = Scheduled(state, which);
  PlanCandidate plan{state.form, state.fusion, Packed(state.form, genome), TimeOf(state.calls),
                     std::move(genome)};
  if (!proposed_.insert(TextOf(plan.form, plan.scheduled)).second) return std::nullopt;
  kernels_since_plan_ = 0;
  plans_.push_back(std::move(plan));
  return Step{.plan = static_cast<int>(plans_.size()) - 1};
}

// Marks the baseline as proposed: it serves already.
void Search::RememberBaseline() {
  proposed_.insert(TextOf(0, Packed(0, Scheduled(baseline_, Schedules::kStarted))));
}

std::optional<Search::Step> Search::ProposeBest(double least_gain) {
  if (!Known(best_) || TimeOf(best_.calls) > served_ * (1 - least_gain)) return std::nullopt;
  return Propose(best_);
}

}  // namespace athanor
