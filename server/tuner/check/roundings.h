// Estimates the rounding noise of a graph's outputs: the error that any order of computation may
// have. For plans whose own error is smaller by chance.
//
//   std::vector<double> noise = RoundingNoise(graph, dims).value();   // by output
//   // f32: 6e-8 for an Add, 2e-6 after a contraction of length 1024, 0 for moved values
//
// Roundings are independent with mean 0, so their squares add up (Higham and Mary, "A New Approach
// to Probabilistic Rounding Error Analysis", 2019). Along the path with the largest sum, each op
// adds (2*ulp + 1)^2 u^2, with `ulp` its bound in the op table and u the unit roundoff of its
// dtype; each sum of K terms adds K u^2 of its accumulator. Ops that only move or select add
// nothing; a Scan adds a step's sum for each step.
#ifndef ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_
#define ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Returns the noise by output: the square root of the sum, relative to the values. Composites count
// as their decompositions.
absl::StatusOr<std::vector<double>> RoundingNoise(const Graph& graph, const Expr::Env& dims);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_ROUNDINGS_H_
