#include "compiler/search/regions/region_cuts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace athanor {
namespace {

// symbols[i] == symbols[i + period] for all of [begin, end - period).
struct Run {
  int begin, end, period;
  int savings() const { return ((end - begin) / period - 1) * period; }
};

class RunCutter {
 public:
  RunCutter(const CutSequence& sequence, const CutOptions& options)
      : sequence_(sequence), options_(options) {
    CountCrossings();
  }

  std::vector<int> Cut() {
    const int size = static_cast<int>(sequence_.symbols.size());
    if (size == 0) return {};
    cuts_ = {0, size};
    Segment(0, size, 0);
    return {cuts_.begin(), cuts_.end()};
  }

 private:
  // Stretches between runs may hold shorter runs, and so may periods longer than a region.
  static constexpr int kMaxDepth = 3;

  void CountCrossings();
  void Segment(int begin, int end, int depth);
  std::vector<Run> FindRuns(int begin, int end) const;
  std::set<int> FindPeriods(int begin, int end) const;
  // Clips the run to what is free. Returns false if too little is left.
  bool Clip(const std::map<int, int>& taken, Run* run) const;
  // Moves the run's begin to the first whole period at the best phase. Returns false if the run
  // should not be cut.
  bool Align(Run* run) const;
  bool IsChain(const Run& run) const;
  void CutRun(const Run& run, int depth);
  void CutPlain(int begin, int end);

  // Prefers fewer values, then values with more uses: the stream that layers share.
  std::pair<int, int> Price(int cut) const { return {live_[cut], -uses_[cut]}; }

  const CutSequence& sequence_;
  const CutOptions options_;
  std::vector<int> live_, uses_;  // values and uses that cross the cut in front of a place
  std::set<int> cuts_;
};

// Adds 1 where a value or a use begins to cross cuts and subtracts 1 where it ends; the prefix sums
// are the numbers that cross each cut.
void RunCutter::CountCrossings() {
  const int size = static_cast<int>(sequence_.symbols.size());
  std::vector<int> last(size, -1);
  live_.assign(size + 2, 0);
  uses_.assign(size + 2, 0);
  for (int i = 0; i < size; ++i) {
    for (int operand : sequence_.operands[i]) {
      last[operand] = std::max(last[operand], i);
      ++uses_[operand + 1];
      --uses_[i + 1];
    }
  }
  for (int i = 0; i < size; ++i) {
    if (last[i] < 0) continue;
    ++live_[i + 1];
    --live_[last[i] + 1];
  }
  for (int i = 1; i <= size; ++i) {
    live_[i] += live_[i - 1];
    uses_[i] += uses_[i - 1];
  }
}

// Returns distances at which equal windows recur. Short windows find short periods, long ones tell
// a layer from repetitions inside it. Windows are compared by a rolling hash (Karp and Rabin,
// 1987).
std::set<int> RunCutter::FindPeriods(int begin, int end) const {
  // The commonest distances of each window length.
  constexpr int kPerWindow = 16;
  // 2^64 divided by the golden ratio: odd, with well mixed bits.
  constexpr uint64_t kBase = 0x9e3779b97f4a7c15;
  std::set<int> periods;
  for (int window : {1, 4, 16, 64}) {
    if (end - begin < window) break;
    uint64_t hash = 0, leading = 1;  // kBase^window
    for (int i = 0; i < window; ++i) leading *= kBase;
    absl::flat_hash_map<uint64_t, int> last;
    std::map<int, int> counts;
    for (int i = begin; i < end; ++i) {
      hash = hash * kBase + static_cast<uint64_t>(sequence_.symbols[i]) + 1;
      if (i - begin >= window) {
        hash -= leading * (static_cast<uint64_t>(sequence_.symbols[i - window]) + 1);
      }
      if (i - begin + 1 < window) continue;
      // Collisions do no harm: FindRuns compares the symbols themselves.
      const auto [it, fresh] = last.try_emplace(hash, i);
      if (!fresh) ++counts[i - it->second];
      it->second = i;
    }
    std::vector<std::pair<int, int>> common;
    for (const auto& [distance, count] : counts) common.emplace_back(-count, distance);
    std::sort(common.begin(), common.end());
    if (common.size() > kPerWindow) common.resize(kPerWindow);
    for (const auto& [count, distance] : common) periods.insert(distance);
  }
  return periods;
}

// Returns the runs of all candidate periods, largest savings first. A period shorter than min_nodes
// is multiplied until it is long enough.
std::vector<Run> RunCutter::FindRuns(int begin, int end) const {
  // Takes time linear in the nodes for each period, of which there are at most 64.
  std::vector<Run> runs;
  for (int period : FindPeriods(begin, end)) {
    const int several = (options_.min_nodes + period - 1) / period * period;
    int start = begin;
    for (int i = begin; i + period <= end; ++i) {
      if (i + period < end && sequence_.symbols[i] == sequence_.symbols[i + period]) continue;
      const Run run{start, i + period, several};
      if (run.end - run.begin >= 2 * several) runs.push_back(run);
      start = i + 1;
    }
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::make_tuple(-a.savings(), a.period, a.begin) <
           std::make_tuple(-b.savings(), b.period, b.begin);
  });
  return runs;
}

bool RunCutter::Clip(const std::map<int, int>& taken, Run* run) const {
  auto next = taken.upper_bound(run->begin);
  if (next != taken.begin()) run->begin = std::max(run->begin, std::prev(next)->second);
  next = taken.lower_bound(run->begin);
  if (next != taken.end()) run->end = std::min(run->end, next->first);
  return run->end - run->begin >= 2 * run->period;
}

// Reports whether a period uses results of the one before it, as layers do and parallel towers do
// not.
bool RunCutter::IsChain(const Run& run) const {
  const int periods = (run.end - run.begin) / run.period;
  const int middle = run.begin + periods / 2 * run.period;
  for (int i = middle; i < middle + run.period; ++i) {
    if (i >= run.end) break;
    for (int operand : sequence_.operands[i]) {
      if (operand >= middle - run.period && operand < middle) return true;
    }
  }
  return false;
}

bool RunCutter::Align(Run* run) const {
  // Compares phases by values that cross, then by whole periods, then by uses. Compares the means
  // without dividing, so that ties are exact.
  struct Sums {
    int64_t live = 0, uses = 0, cuts = 0;
    bool operator<(const Sums& other) const {
      return std::make_tuple(live * other.cuts, -cuts, uses * other.cuts) <
             std::make_tuple(other.live * cuts, -other.cuts, other.uses * cuts);
    }
  };
  Sums best;
  int best_phase = -1;
  for (int phase = 0; phase < run->period; ++phase) {
    const int periods = (run->end - run->begin - phase) / run->period;
    if (periods < 2) break;
    Sums sums{.cuts = periods - 1};
    for (int i = 1; i < periods; ++i) {
      const auto [live, uses] = Price(run->begin + phase + i * run->period);
      sums.live += live;
      sums.uses += uses;
    }
    if (best_phase < 0 || sums < best) {
      best = sums;
      best_phase = phase;
    }
  }
  run->begin += best_phase;
  run->end = run->begin + (run->end - run->begin) / run->period * run->period;
  // Parallel parts stay in one region if they fit: they may share operands.
  return run->end - run->begin > options_.max_nodes || IsChain(*run);
}

void RunCutter::CutRun(const Run& run, int depth) {
  const int periods = (run.end - run.begin) / run.period;
  // A period too long for a region is cut inside, each one at the same places as the middle one.
  const int middle = run.begin + periods / 2 * run.period;
  std::set<int> outer;
  std::swap(outer, cuts_);
  cuts_ = {middle, middle + run.period};
  if (run.period > options_.max_nodes) Segment(middle, middle + run.period, depth + 1);
  std::swap(outer, cuts_);
  for (int i = 0; i < periods; ++i) {
    for (int cut : outer) cuts_.insert(cut - middle + run.begin + i * run.period);
  }
}

// Cuts where the fewest values cross, but not before half of what a region may hold, so that
// regions do not get too small.
void RunCutter::CutPlain(int begin, int end) {
  const int max = std::max(1, options_.max_nodes);
  while (end - begin > max) {
    int best = begin + max;
    for (int cut = begin + max; cut > begin + max / 2; --cut) {
      if (Price(cut) < Price(best)) best = cut;
    }
    cuts_.insert(best);
    begin = best;
  }
}

// Cuts the runs that save most first, then the stretches between them.
void RunCutter::Segment(int begin, int end, int depth) {
  std::map<int, int> taken;  // begin to end
  if (depth < kMaxDepth) {
    for (Run run : FindRuns(begin, end)) {
      if (!Clip(taken, &run) || !Align(&run)) continue;
      taken[run.begin] = run.end;
      CutRun(run, depth);
    }
  }
  if (taken.empty()) return CutPlain(begin, end);
  taken[end] = end;
  for (const auto& [run_begin, run_end] : taken) {
    if (begin < run_begin) {
      cuts_.insert({begin, run_begin});
      Segment(begin, run_begin, depth + 1);
    }
    begin = run_end;
  }
}

}  // namespace

std::vector<int> ChooseCuts(const CutSequence& sequence, const CutOptions& options) {
  return RunCutter(sequence, options).Cut();
}

}  // namespace athanor
