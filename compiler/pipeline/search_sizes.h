// Chooses the sizes at which a search measures: the smallest, a typical and the largest of the dim
// box (DESIGN §6.5). The largest is reduced if a call of it would take too long to be repeated, but
// not below the typical one, because plans serve larger sizes without having been measured there.
//
//   SearchSizes(graph, nullptr, flops, bytes, machine);  // b in [1, 8], s in [1, 512]: 1,1 2,128
//   8,128
#ifndef ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
#define ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_

#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "compiler/search/kernels/cost.h"

namespace athanor {

// Returns distinct sizes, ascending; one for a graph without dims. `flops` and `bytes` of one call
// are expressions over the dims; the rates of `machine` give a lower bound of its time.
// With `paged`, over the same dims, they are those of a call of the fewest rows over a short
// context, and of one of the most rows, 4,096 of more, over a long one; of fewer, down to a
// quarter, if it would take too long.
std::vector<SizePoint> SearchSizes(const Graph& graph, const PagedSizes* paged, const Expr& flops,
                                   const Expr& bytes, const Machine& machine);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_SEARCH_SIZES_H_
