// Bounds of whole graphs and, step by step, of the graphs inside loops; comparison within bounds.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/ir/sample/compare.h"
#include "compiler/rules/decompose/decompose.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/error_bound_internal.h"

namespace athanor {
namespace {

// Kernel and reference may each be off by the bound.
constexpr double kReferenceToo = 2;

bool IsDecomposed(const Node& node) {
  return OpInfo(node.op).traits.errors == ErrorRule::kDecomposed;
}

Errors SliceErrors(const Errors& errors, int64_t at, int64_t count) {
  const auto size = static_cast<int64_t>(errors.size()) / std::max<int64_t>(count, 1);
  return {errors.begin() + at * size, errors.begin() + (at + 1) * size};
}

}  // namespace

absl::StatusOr<Errors> LoopBounds(const ScanView& scan, absl::Span<const Tensor* const> operands,
                                  absl::Span<const Errors* const> errors, const Expr::Env& dims) {
  const int64_t length = scan.length.Evaluate(dims).value_or(0);
  ASSIGN_OR_RETURN(Graph body, Simplified(BodyAt(scan, dims)));
  const Expr::Env none;
  std::vector<Tensor> states;
  std::vector<Errors> state_errors;
  for (int i = 0; i < scan.states; ++i) {
    states.push_back(*operands[i]);
    state_errors.push_back(*errors[i]);
  }
  std::vector<Errors> elements(length);
  for (int64_t step = 0; step < length; ++step) {
    const int64_t at = scan.reverse ? length - 1 - step : step;
    std::vector<Tensor> inputs = {Tensor::Of<int64_t>(DType::kI64, {}, {step})};
    std::vector<Errors> input_errors = {{0}};
    for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
      const bool sliced = i >= scan.states && i < scan.states + scan.scanned;
      inputs.push_back(i < scan.states ? states[i]
                       : sliced        ? SliceOf(*operands[i], at)
                                       : *operands[i]);
      input_errors.push_back(i < scan.states ? state_errors[i]
                             : sliced        ? SliceErrors(*errors[i], at, length)
                                             : *errors[i]);
    }
    ASSIGN_OR_RETURN(BoundedValues after, BoundGraph(body, inputs, input_errors, &none));
    elements[at] = after.errors[scan.result];
    for (int i = 0; i < scan.states; ++i) {
      states[i] = std::move(after.values[i]);
      state_errors[i] = std::move(after.errors[i]);
    }
  }
  if (scan.result < scan.states) return state_errors[scan.result];
  Errors all;
  for (const Errors& element : elements) all.insert(all.end(), element.begin(), element.end());
  return all;
}

absl::StatusOr<Graph> Simplified(const Graph& graph) { return Decompose(graph, IsDecomposed); }

absl::StatusOr<BoundedValues> EvaluateWithBounds(const Graph& graph,
                                                 absl::Span<const Tensor> inputs,
                                                 const Expr::Env* given) {
  // Without composites, the values that bounds are computed from are the evaluator's own.
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), IsDecomposed)) {
    return BoundGraph(graph, inputs, {}, given);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> values, Evaluate(graph, inputs, given));
  ASSIGN_OR_RETURN(Graph simple, Simplified(graph));
  absl::StatusOr<BoundedValues> bounded = BoundGraph(simple, inputs, {}, given);
  // Only the graph itself says that an index is out of range.
  if (absl::IsOutOfRange(bounded.status())) {
    return absl::InternalError(bounded.status().message());
  }
  if (bounded.ok()) bounded->values = std::move(values);
  return bounded;
}

absl::StatusOr<double> WithinBounds(const Tensor& got, const Tensor& want,
                                    absl::Span<const double> bounds) {
  Tensor compared = got;
  std::vector<double> tolerances(bounds.begin(), bounds.end());
  double worst = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    tolerances[i] *= kReferenceToo;
    if (tolerances[i] == kUnknown) {
      StoreScalar(compared, i, LoadScalar(want, i));
      tolerances[i] = 0;
    } else if (IsFloat(want.dtype) && tolerances[i] > 0) {
      const double error = std::fabs(LoadScalar(got, i).f - LoadScalar(want, i).f);
      if (std::isfinite(error)) worst = std::max(worst, error / tolerances[i]);
    }
  }
  const absl::Status same = CompareTensors(compared, want, tolerances);
  if (same.ok()) return std::min(worst, 1.0);
  return absl::DataLossError(same.message());
}

}  // namespace athanor
