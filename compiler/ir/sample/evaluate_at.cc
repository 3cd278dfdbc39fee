#include "compiler/ir/sample/evaluate_at.h"

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<PartialGraph> CutElements(const Graph& graph, const Expr::Env& dims,
                                         absl::Span<const std::vector<int64_t>> positions,
                                         absl::Span<const absl::string_view> inputs,
                                         int64_t max_visited) {
  return Cutter(graph, dims, inputs, &max_visited).Cut(positions);
}

absl::StatusOr<std::vector<Tensor>> EvaluateAt(const Graph& graph, const Expr::Env& dims,
                                               absl::Span<const std::vector<int64_t>> positions,
                                               absl::Span<const absl::string_view> inputs,
                                               int64_t max_visited) {
  ASSIGN_OR_RETURN(PartialGraph part, CutElements(graph, dims, positions, inputs, max_visited));
  return Evaluate(part.graph, part.inputs);
}

}  // namespace athanor
