// How much rounding a graph's outputs have been through: the noise that any order of computation
// may have, for plans whose own error is smaller by luck.
//
//   std::vector<double> noise = RoundingNoise(graph, dims).value();   // by output
//   // f32: 6e-8 for an Add, 2e-6 behind a contraction of length 1024, 0 for what is only moved
//
// Roundings are independent and their mean is 0, so they add up as squares (Higham and Mary, "A New
// Approach to Probabilistic Rounding Error Analysis", 2019): along the path that gathers most, each
// op adds (2*ulp + 1)^2 u^2 with `ulp` its bound in the op table and u the unit roundoff of its
// dtype, each sum of K terms K u^2 of its accumulator. Ops that only move or choose add nothing, a
// Scan what a step adds for each step.
#ifndef ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_
#define ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Relative to the values; the square root of the sum. Composites count as their decompositions.
absl::StatusOr<std::vector<double>> RoundingNoise(const Graph& graph, const Expr::Env& dims);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_
