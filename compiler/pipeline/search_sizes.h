// At which sizes a search measures: the smallest, a typical and the largest of the dim box (DESIGN
// §6.5). The largest is cut where a call of it would take too long to be repeated, but not below
// the typical one: what is chosen without having been seen there serves there.
//
//   SearchSizes(graph, flops, bytes, machine);  // b in [1, 8], s in [1, 512]: 1,1 2,128 8,128
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_

#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/cost.h"

namespace athanor {

// Distinct, ascending; one for a graph without dims. `flops` and `bytes` of one call, over the
// dims; how long it takes is bounded from below by what `machine` reaches.
std::vector<SizePoint> SearchSizes(const Graph& graph, const Expr& flops, const Expr& bytes,
                                   const Machine& machine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
