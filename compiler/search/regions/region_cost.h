// Cost of e-nodes while nothing is known of the kernels they end up in: the cost that extraction
// starts from. It only orders; the search's own cost of whole graphs decides.
//
//   NodeCosts costs(graph.dims, sizes, machine);
//   costs.Of(contract, attrs, {&x, &w}, result, /*weight=*/false);   // seconds
//
// A node costs its computation and, unless it is a view or an element-wise node, its memory
// traffic: those two are computed where they are used. A node that depends on weights alone is
// computed once per model and counts a little, so that of two such ways the cheaper wins.
// Thread-compatible.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_

#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/cost.h"

namespace athanor {

class NodeCosts {
 public:
  // `sizes` are values of `dims`, all with the same weight. Not empty.
  NodeCosts(const std::vector<Dim>& dims, const std::vector<SizePoint>& sizes,
            const Machine& machine);

  // Returns seconds, the mean over the sizes; infinity for a composite that no kernel computes.
  double Of(Op op, const Attrs& attrs, absl::Span<const TensorType* const> operands,
            const TensorType& result, bool weight) const;

 private:
  double At(const Expr::Env& sizes, Op op, const Attrs& attrs,
            absl::Span<const TensorType* const> operands, const TensorType& result) const;

  std::vector<Expr::Env> sizes_;
  const Machine machine_;
};

// Reports whether a kernel computes `op` with these operands. A composite without one is computed
// by its decomposition.
bool HasKernel(Op op, absl::Span<const TensorType* const> operands);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_
