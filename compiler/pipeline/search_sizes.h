// At which sizes a search measures: the smallest, a typical and the largest of the dim box (DESIGN
// §6.5), where one call of the largest does not take too long to be repeated.
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_

#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/search/cost.h"

namespace athanor {

// Distinct, ascending; one for a graph without dims. `flops` and `bytes` of one call, over the
// dims.
std::vector<SizePoint> SearchSizes(const Graph& graph, const Expr& flops, const Expr& bytes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
