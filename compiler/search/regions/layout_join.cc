#include "compiler/search/regions/layout_join.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace athanor {
namespace {

// The values with another layout than "as it is", and that layout; ascending.
using State = std::vector<std::pair<int, int>>;

// A way to reach a state.
struct Way {
  double cost;
  int changed;      // values with another layout so far
  int64_t history;  // index in Joiner::taken_, unique to this way
  bool operator<(const Way& other) const {
    return std::tie(cost, changed, history) < std::tie(other.cost, other.changed, other.history);
  }
};

int LayoutOf(const State& state, int value) {
  const auto at = std::lower_bound(state.begin(), state.end(), std::make_pair(value, 0));
  return at != state.end() && at->first == value ? at->second : 0;
}

class Joiner {
 public:
  Joiner(const LayoutChain& chain, const JoinLimits& limits)
      : chain_(chain), beam_(std::max<size_t>(1, limits.beam)), best_(limits.best) {
    for (size_t s = 0; s < chain.steps.size(); ++s) {
      for (const int value : chain.steps[s].inputs) {
        if (value != kFixed) last_use_[value] = s;
      }
    }
  }

  std::vector<LayoutJoin> Join() {
    if (best_ == 0) return {};
    states_[{}].push_back({0, 0, -1});
    for (size_t s = 0; s < chain_.steps.size(); ++s) Step(s);
    // All values are dead after the last step, so only the empty state is left.
    std::vector<LayoutJoin> joins;
    for (const Way& way : states_[{}]) {
      LayoutJoin& join = joins.emplace_back(LayoutJoin{{}, way.cost});
      // Follows the back pointers from the last step to the first.
      for (int64_t at = way.history; at >= 0; at = taken_[at].before) {
        join.rows.push_back(taken_[at].row);
      }
      std::reverse(join.rows.begin(), join.rows.end());
    }
    return joins;
  }

 private:
  struct Taken {
    int64_t before;
    int row;
  };
  using States = std::map<State, std::vector<Way>>;

  // Reports whether the row reads the layouts of the state, and changes only outputs with later
  // uses.
  bool Fits(const State& state, const LayoutStep& step, const LayoutRow& row) const {
    if (!std::isfinite(row.cost)) return false;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int layout = step.inputs[i] == kFixed ? 0 : LayoutOf(state, step.inputs[i]);
      if (row.inputs[i] != layout) return false;
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const bool used = step.outputs[i] != kFixed && last_use_.contains(step.outputs[i]);
      if (row.outputs[i] != 0 && !used) return false;
    }
    return true;
  }

  // Drops values without a use after step `s`, and adds the row's changed outputs.
  State After(const State& state, size_t s, const LayoutRow& row) const {
    State after;
    for (const auto& entry : state) {
      if (last_use_.at(entry.first) > s) after.push_back(entry);
    }
    const LayoutStep& step = chain_.steps[s];
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (row.outputs[i] != 0) after.emplace_back(step.outputs[i], row.outputs[i]);
    }
    std::sort(after.begin(), after.end());
    return after;
  }

  void Step(size_t s) {
    const LayoutStep& step = chain_.steps[s];
    const std::vector<LayoutRow>& rows = chain_.tables[step.table];
    // At most beam_ states of best_ ways are tried with each row, so the time is linear in the
    // steps.
    States next;
    for (const auto& [state, ways] : states_) {
      for (size_t r = 0; r < rows.size(); ++r) {
        if (!Fits(state, step, rows[r])) continue;
        const auto changed = static_cast<int>(
            rows[r].outputs.size() - std::count(rows[r].outputs.begin(), rows[r].outputs.end(), 0));
        std::vector<Way>& to = next[After(state, s, rows[r])];
        for (const Way& way : ways) {
          to.push_back({way.cost + rows[r].cost, way.changed + changed,
                        static_cast<int64_t>(taken_.size())});
          taken_.push_back({way.history, static_cast<int>(r)});
        }
      }
    }
    for (auto& [state, ways] : next) {
      std::sort(ways.begin(), ways.end());
      // Ways into one state have the same future, so only the best of them can be among the best
      // joins.
      if (ways.size() > best_) ways.resize(best_);
    }
    states_ = Pruned(std::move(next));
  }

  // Keeps the state without changes, from which every chain can go on.
  States Pruned(States all) const {
    if (all.size() <= beam_) return all;
    std::vector<States::iterator> order;
    for (auto it = all.begin(); it != all.end(); ++it) order.push_back(it);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::make_pair(!a->first.empty(), a->second[0]) <
             std::make_pair(!b->first.empty(), b->second[0]);
    });
    States kept;
    for (size_t i = 0; i < beam_; ++i) kept.insert(all.extract(order[i]));
    return kept;
  }

  const LayoutChain& chain_;
  const size_t beam_, best_;
  std::map<int, size_t> last_use_;  // by value: the last step that uses it
  States states_;
  std::vector<Taken> taken_;
};

}  // namespace

std::vector<LayoutJoin> JoinLayouts(const LayoutChain& chain, const JoinLimits& limits) {
  return Joiner(chain, limits).Join();
}

}  // namespace athanor
