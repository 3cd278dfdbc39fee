#include "compiler/search/search/best_genome.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "compiler/search/search/moves.h"

namespace athanor {
namespace {

// Most genomes kept for Reconsider, which looks at each.
constexpr size_t kMaxAside = 256;

}  // namespace

BestGenome::BestGenome(Genomes* genomes, TaskTable* tasks, SearchMode mode)
    : tasks_(*tasks),
      mode_(mode),
      baseline_(genomes->Make(0, {{}, {.one_panel = genomes->rules().one_panel}})),
      best_(genomes->Make(0, {{}, genomes->rules()})) {}

bool BestGenome::Known(const FusedForm& state) const {
  return std::all_of(state.calls.begin(), state.calls.end(), [&](const auto& entry) {
    const Tuning& t = tasks_.at(entry.first);
    return mode_ == SearchMode::kFast || !t.best().empty() ||
           (t.Failed() && baseline_.calls.contains(entry.first));
  });
}

bool BestGenome::Take(FusedForm state) {
  const bool other_form = state.form != best_.form;
  const bool better = Known(state) && tasks_.TimeOf(state.calls) < time() - kLeastMove;
  if (better) {
    std::swap(state, best_);
    ++genomes_taken_;
    if (other_form) ++forms_taken_;
  }
  // Keeps the loser, which may win once its kernels have become faster.
  if (aside_.size() < kMaxAside) aside_.push_back(std::move(state));
  return better;
}

std::optional<FusedForm> BestGenome::Reconsider() {
  size_t chosen = aside_.size();
  double least = time() - kLeastMove;
  for (size_t i = 0; i < aside_.size(); ++i) {
    if (!Known(aside_[i])) continue;
    const double time = tasks_.TimeOf(aside_[i].calls);
    if (time < least) {
      least = time;
      chosen = i;
    }
  }
  if (chosen == aside_.size()) return std::nullopt;
  FusedForm state = std::move(aside_[chosen]);
  aside_.erase(aside_.begin() + static_cast<std::ptrdiff_t>(chosen));
  return state;
}

}  // namespace athanor
