#include "compiler/ir/sample/evaluate_at.h"

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
  absl::StatusOr<PartialGraph> part = CutElements(graph, dims, positions, inputs, max_visited);
  if (!part.ok()) return part.status();
  return Evaluate(part->graph, part->inputs);
}

}  // namespace athanor
