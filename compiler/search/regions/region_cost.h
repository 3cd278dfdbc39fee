// What e-nodes cost when nothing is known of the kernels they end up in: the cost that extraction
// starts from. It orders; the search's own cost of whole graphs decides.
//
//   NodeCosts costs(graph.dims, sizes, machine);
//   costs.Of(contract, attrs, {&x, &w}, result, /*weight=*/false);   // seconds
//
// A node takes what it must compute, and what it must move if it is no view and no element-wise
// node: those are computed where they are used. What depends on weights alone is computed once per
// model and counts a little, so that of two such ways the cheaper wins. Thread-compatible.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_

#include <vector>

#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/cost.h"

namespace athanor {

class NodeCosts {
 public:
  // `sizes` are values of `dims`; each counts the same. Not empty.
  NodeCosts(const std::vector<Dim>& dims, const std::vector<SizePoint>& sizes,
            const Machine& machine);

  // Seconds, the mean over the sizes. Infinite for a composite that no kernel computes.
  double Of(Op op, const Attrs& attrs, absl::Span<const TensorType* const> operands,
            const TensorType& result, bool weight) const;

 private:
  double At(const Expr::Env& sizes, Op op, const Attrs& attrs,
            absl::Span<const TensorType* const> operands, const TensorType& result) const;

  std::vector<Expr::Env> sizes_;
  const Machine machine_;
};

// Whether a kernel computes a composite with these operands, or its decomposition does.
bool HasKernel(Op op, absl::Span<const TensorType* const> operands);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_COST_H_
