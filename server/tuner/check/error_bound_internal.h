// Shared by error_bound.cc and the bounds of loops. Private to error_bound*.cc.
#ifndef ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_INTERNAL_H_
#define ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_INTERNAL_H_

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/scan.h"
#include "server/tuner/check/error_bound.h"

namespace athanor {

inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Returns the graph with composites decomposed if their bounds are those of the decomposition.
absl::StatusOr<Graph> Simplified(const Graph& graph);

// Returns values and bounds of a graph's outputs, computed from those of its inputs; without
// `input_errors` the inputs are exact. REQUIRES: `simple` is simplified.
absl::StatusOr<BoundedValues> BoundGraph(const Graph& simple, absl::Span<const Tensor> inputs,
                                         absl::Span<const Errors> input_errors,
                                         const Expr::Env* given);

// Returns the bounds of a Scan's result, step by step like the reference evaluator; bounds of
// states carry over between steps.
absl::StatusOr<Errors> LoopBounds(const ScanView& scan, absl::Span<const Tensor* const> operands,
                                  absl::Span<const Errors* const> errors, const Expr::Env& dims);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_INTERNAL_H_
