// Where to cut a long sequence of nodes so that what repeats is cut alike.
//
//   // Six equal layers of 20 nodes between a beginning of 3 and an end of 2:
//   ChooseCuts(sequence, {});   // 0 3 23 43 63 83 103 123 125
//
// A run is a stretch that is equal to itself one period later, as in the repetitions of strings.
// The run that saves most is cut first, at the phase where the fewest values cross; what lies
// between runs, and what is longer than a region may be, is cut where few values cross. Replaces
// loop rolling: nothing in the graph is rewritten.
//
// Time grows with the sequence times the number of periods tried, which is bounded. Pure function,
// thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_

#include <vector>

namespace athanor {

struct CutOptions {
  int max_nodes = 300;  // of a region; what is copied into it from outside does not count
  // Shorter periods are taken several at once.
  int min_nodes = 8;
};

struct CutSequence {
  std::vector<int> symbols;                // equal for nodes that look alike
  std::vector<std::vector<int>> operands;  // earlier places whose values the node uses
};

// Ascending, the first is 0 and the last is the length; two neighbours are at most max_nodes apart.
// Empty for an empty sequence.
std::vector<int> ChooseCuts(const CutSequence& sequence, const CutOptions& options);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_CUTS_H_
