#include "compiler/search/search/moves.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {

Moves::Moves(const SearchOptions* options, FormSpace* forms, Genomes* genomes, TaskTable* tasks)
    : options_(*options), forms_(*forms), genomes_(*genomes), tasks_(*tasks) {}

void Moves::Find() {
  if (!from_) return;
  const FusedForm best = *std::exchange(from_, std::nullopt);
  tasks_.SettleBias();
  for (std::vector<Move>& moves : moves_) moves.clear();
  AddFlips(best);
  AddForms(best);
  for (std::vector<Move>& moves : moves_) {
    std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
      return std::tie(a.promise, b.key) < std::tie(b.promise, a.key);
    });
  }
}

std::optional<Move> Moves::Next(Work work) {
  Find();
  std::vector<Move>& moves = moves_[static_cast<size_t>(work)];
  while (!moves.empty()) {
    Move move = std::move(moves.back());
    moves.pop_back();
    if (moved_.insert(move.key).second) return move;
  }
  return std::nullopt;
}

double Moves::Promise(Work work) {
  Find();
  const std::vector<Move>& moves = moves_[static_cast<size_t>(work)];
  return moves.empty() ? 0 : std::max(0.0, moves.back().promise);
}

bool Moves::AnyGains(double least) {
  Find();
  return std::any_of(moves_.begin(), moves_.end(), [&](const auto& moves) {
    return std::any_of(moves.begin(), moves.end(), [&](const Move& m) { return m.gain > least; });
  });
}

double Moves::GainOf(const Calls& less, const Calls& more) {
  // The new calls count the mean of what they may reach (unmeasured ones their roofline) and of
  // what is expected of them.
  return tasks_.TimeOf(less) - (tasks_.TimeOf(more) + tasks_.ExpectedOf(more)) / 2;
}

std::map<std::string, Fusion> Moves::Flips(const FusedForm& from) {
  const Graph& graph = forms_.graph(from.form);
  TaskIndex& index = genomes_.IndexOf(from.form);
  const Genome genome = genomes_.Choose(from);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  // Kernels that compute a node, as (task, position in the task).
  std::vector<std::set<std::pair<int, int>>> places(graph.nodes.size());
  for (const KernelChoice& kernel : genome.kernels) {
    if (index.weights()[kernel.root]) continue;
    std::vector<NodeId> nodes;
    const int task = tasks_.Find(graph, index, memory, kernel, &nodes);
    for (size_t i = 0; i < nodes.size(); ++i) places[nodes[i]].emplace(task, static_cast<int>(i));
  }
  std::map<std::string, Fusion> flips;
  for (const auto& [node, say] : FusionFlips(graph, genome, options_.fusion)) {
    // A node is named by its place in the kernels that compute it, so equal layers change together.
    std::string key = say == Fuse::kMemory ? "memory" : "inline";
    for (const auto& [task, place] : places[node]) absl::StrAppend(&key, " ", task, ".", place);
    if (moved_.contains(key)) continue;
    Fusion& fusion = flips.try_emplace(std::move(key), from.fusion).first->second;
    fusion.nodes[node] = say;
  }
  return flips;
}

void Moves::AddFlips(const FusedForm& from) {
  for (auto& [key, fusion] : Flips(from)) {
    auto [change, is_new] = changes_.try_emplace(key);
    auto& [less, more] = change->second;
    if (is_new) {
      more = genomes_.CallsOf(from.form, fusion);
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
      Add(Work::kFlips, key, from.form, std::move(fusion), GainOf(less, more), more);
    }
  }
}

void Moves::AddForms(const FusedForm& from) {
  for (int form : forms_.Neighbours(from.form)) {
    std::string key = absl::StrCat("form ", form);
    if (form == from.form || moved_.contains(key)) continue;
    Fusion fusion = genomes_.Carried(from, form);
    auto [change, is_new] = changes_.try_emplace(key);
    Calls& calls = change->second.second;
    if (is_new) calls = genomes_.CallsOf(form, fusion);
    const double gain = GainOf(from.calls, calls);
    Add(Work::kForms, std::move(key), form, std::move(fusion), gain, calls);
  }
}

void Moves::Add(Work work, std::string key, int form, Fusion fusion, double gain,
                const Calls& more) {
  if (gain < kLeastAction && options_.mode != SearchMode::kExhaust) return;
  constexpr double kLikely = 0.25;  // probability that a move holds its promise
  double kernels = 0;               // to be measured until it is decided
  for (const auto& [task, calls] : more) {
    // A search asks for two schedules of a new task.
    if (options_.mode != SearchMode::kFast && tasks_.at(task).measured() == 0) kernels += 2;
  }
  if (kernels > 0) kernels += options_.batch;
  // The expected gain for each batch of kernels that must be measured to decide.
  const double promise = gain * kLikely / std::max(1.0, kernels / options_.batch);
  moves_[static_cast<size_t>(work)].push_back(
      {std::move(key), form, std::move(fusion), gain, promise});
}

}  // namespace athanor
