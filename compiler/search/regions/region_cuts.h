// Chooses where to cut a long sequence of nodes so that repetitions are cut alike.
//
//   // Six equal layers of 20 nodes between a beginning of 3 and an end of 2:
//   ChooseCuts(sequence, {});   // 0 3 23 43 63 83 103 123 125
//
// A run is a stretch that equals itself one period later, as in the repetitions of strings. The run
// that saves most is cut first, at the phase where the fewest values cross. Stretches between runs,
// and periods longer than a region may be, are cut where few values cross. This replaces loop
// rolling: nothing in the graph is rewritten.
//
// Time grows with the sequence times the number of periods tried, which is bounded. Pure function,
// thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_

#include <vector>

namespace athanor {

struct CutOptions {
  int max_nodes = 300;  // per region, without nodes copied into it from outside
  // Shorter periods are cut several at a time.
  int min_nodes = 8;
};

struct CutSequence {
  std::vector<int> symbols;                // equal for nodes that look alike
  std::vector<std::vector<int>> operands;  // by node: earlier places whose values it uses
};

// Returns the cuts in ascending order: the first is 0, the last is the length, and two neighbours
// are at most max_nodes apart. Empty for an empty sequence.
std::vector<int> ChooseCuts(const CutSequence& sequence, const CutOptions& options);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_
