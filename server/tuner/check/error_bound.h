// Bounds how far a correct kernel's results may be from the reference evaluator's.
//
//   BoundedValues right = EvaluateWithBounds(graph, inputs).value();
//   // |kernel - right.values[output]| <= 2 * right.errors[output], element by element
//
// Replaces composites, except Contract and EmbeddingBag, by their decompositions. Then propagates
// from node to node, for each element, a bound e on the distance from exact arithmetic. v is the
// reference evaluator's value, and ulp(v) the distance to the next value of the node's dtype:
//
//   inputs, constants        0
//   sums, contractions       c*gamma(K)*S + carried + ulp(v), with S = sum|a| or sum|a*b|, K terms,
//                            gamma(K) of the accumulator's dtype (compiler/ir/sample/compare.h) and
//                            c*gamma(K) taken as gamma(K + 8): an online softmax rescales its sums;
//                            carried = sum e(a), or sum of |a|e(b) + |b|e(a) + e(a)e(b)
//   a + b                    e(a) + e(b) + ulp(v)/2
//   a * b                    |a|e(b) + |b|e(a) + e(a)e(b) + ulp(v)/2
//   a / b                    (e(a) + |v|e(b))/(|b| - e(b)) + ulp(v)/2
//   f(x), monotone           the larger of |f(x + e) - f(x)| and |f(x - e) - f(x)|,
//                            + (bound of the op table + 1/2) * ulp(v)
//   moves, Select, Max, Min  the bounds of all possible choices; no rounding
//   a Scan                   step by step, its states' bounds from each step to the next
//   comparisons              unknown if an error of e could change the result; so is all that
//                            depends on it
//
// Kernel and reference are both within e, so they differ by at most 2e. Unknown is infinity: such
// an element cannot be checked with these inputs. Integers and bools computed from exact values
// have e = 0: they must be equal.
#ifndef ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_H_
#define ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

using Errors = std::vector<double>;  // by element, in row-major order

// Values, and how far they may be from exact ones.
struct BoundedValues {
  std::vector<Tensor> values;
  std::vector<Errors> errors;
};

// Returns the outputs of the reference evaluator with their bounds. `inputs` and `dims` are as for
// Evaluate; returns its errors.
absl::StatusOr<BoundedValues> EvaluateWithBounds(const Graph& graph,
                                                 absl::Span<const Tensor> inputs,
                                                 const Expr::Env* dims = nullptr);

// Compares a kernel's output with the reference evaluator's, each within `bounds` of the exact one;
// skips elements whose bound is infinity. Returns the largest error relative to the tolerance
// (twice the bound), at most 1; returns DATA_LOSS naming the first and the worst element that
// differ.
absl::StatusOr<double> WithinBounds(const Tensor& got, const Tensor& want,
                                    absl::Span<const double> bounds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_ERROR_BOUND_H_
