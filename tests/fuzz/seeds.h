// The valid graphs from which fuzzing starts: together they hold every op of the table, every dtype
// and every kind of attribute.
#ifndef ATHANOR_TESTS_FUZZ_SEEDS_H_
#define ATHANOR_TESTS_FUZZ_SEEDS_H_

#include <vector>

#include "compiler/ir/graph/graph.h"

namespace athanor {

// REQUIRES: nothing; a seed that does not parse is a bug of this file and ends the program.
std::vector<Graph> SeedGraphs();

}  // namespace athanor

#endif  // ATHANOR_TESTS_FUZZ_SEEDS_H_
