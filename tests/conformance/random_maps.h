// Random graphs of index maps: pads, crops, splits, merges, windows, strides, permutations, flips,
// repeats, rolls, expansions and diagonals, composed at ranks up to 6 between elementwise ops,
// sums, maxima, products and softmaxes, over constant and symbolic sizes.
//
//   const MapCase c = RandomMaps(/*seed=*/7);
//   Graph graph = ParseGraph(c.text).value();
#ifndef ATHANOR_TESTS_CONFORMANCE_RANDOM_MAPS_H_
#define ATHANOR_TESTS_CONFORMANCE_RANDOM_MAPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/expr/expr.h"

namespace athanor {

struct MapCase {
  std::string text;              // the graph
  int maps = 0;                  // number of its IndexMaps
  std::vector<Expr::Env> sizes;  // values of its dims to try, the smallest first
};

// Returns the case of a seed; pure. No value has more than 4,096 elements at any size of the dims.
MapCase RandomMaps(uint64_t seed);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_RANDOM_MAPS_H_
