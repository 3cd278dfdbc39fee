// Valid graphs from which fuzzing starts. Together they hold every op of the table, every dtype and
// every kind of attribute.
#ifndef ATHANOR_TESTS_FUZZ_SEEDS_H_
#define ATHANOR_TESTS_FUZZ_SEEDS_H_

#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// Ends the program if a seed does not parse, which is a bug of this file.
std::vector<Graph> SeedGraphs();

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_SEEDS_H_
