// Parts the inputs of a request for embeddings into runs: a run computes inputs of like lengths
// together, each padded to the longest of them.
//
//   EmbeddingRuns({3, 100, 4}, {.rows = 64, .length = 512})   // {{100: 1}, {4: 2, 0}}
#ifndef ATHANOR_SERVER_CALLS_EMBEDDING_RUNS_H_
#define ATHANOR_SERVER_CALLS_EMBEDDING_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace athanor {

struct EmbeddingLimits {
  int64_t rows = 1;           // most inputs of a run
  int64_t least_length = 1;   // fewest positions of a row
  int64_t tokens = 16 << 10;  // most positions of a run with more than one input
};

struct EmbeddingRun {
  int64_t length = 0;          // positions of each row
  std::vector<size_t> inputs;  // by row
};

// Returns runs with each input once, the longest first. In a run of several rows at most a quarter
// of the positions that `least_length` does not ask for are padding.
std::vector<EmbeddingRun> EmbeddingRuns(absl::Span<const int64_t> lengths,
                                        const EmbeddingLimits& limits);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_EMBEDDING_RUNS_H_
