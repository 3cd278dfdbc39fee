// Places values that live between steps in the arena.
//
//   std::vector<ArenaValue> values = ...;   // bytes, first and last step
//   int64_t arena_bytes = PlaceValues(&values);
//
// Largest first, each at the lowest offset that is free for its whole life ("greedy by size",
// Pisarchyk and Lee, 2020).
#ifndef ATHANOR_COMPILER_PLAN_ARENA_H_
#define ATHANOR_COMPILER_PLAN_ARENA_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace athanor {

struct ArenaValue {
  int64_t bytes = 0;
  int first = -1, last = -1;  // steps, inclusive; -1: never touched
  // values of the same size that die where this one is born: it may lie exactly over one of them
  std::vector<int> may_replace;
  int64_t alignment = 64;  // a multiple of 64
  int64_t offset = 0;      // result, a multiple of `alignment`

  void Touch(int step) {
    first = first < 0 ? step : std::min(first, step);
    last = std::max(last, step);
  }
};

int64_t PlaceValues(std::vector<ArenaValue>* values);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PLAN_ARENA_H_
