// Checks a rule row: it must fire on its example, and every graph it produces must have the values
// of the example's graph, by the reference evaluator.
//
//   RowCheck check = CheckRow(row, DType::kF32, /*seeds=*/20);
//   EXPECT_TRUE(check.status.ok()) << check.status;
//   EXPECT_GT(check.fired, 0);
#ifndef ATHANOR_COMPILER_RULES_RULE_ROWS_TESTING_H_
#define ATHANOR_COMPILER_RULES_RULE_ROWS_TESTING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/families/rule_row.h"

namespace athanor {

struct RowCheck {
  absl::Status status;  // first error, with row, dtype, seed and both graphs
  int fired = 0;        // number of examples in which the row added or united anything
  int compared = 0;     // number of graphs other than the example's
  int unbounded = 0;    // number of comparisons that rounding errors leave without a bound
};

// Tests examples with seeds 0 to seeds - 1, each on normal values and on values that include NaN
// and infinities. E-graph rules that are not approximate are also tested on values at the ends of
// the range; there, no result may be infinite or NaN that is a number in the example.
RowCheck CheckRow(const RuleRow& row, DType dtype, int seeds);

// Checks that every graph to which the rows of `choice` lead gives each element of the outputs, on
// these values, within `relative` of itself, with NaN and infinities in the same places. Returns
// the number of graphs, or an error about the first wrong one.
absl::StatusOr<int> CheckGraph(const Graph& graph, const std::vector<Tensor>& values,
                               const Expr::Env& dims, double relative,
                               const RuleChoice& choice = {});

// Runs all rows at once on the row's examples. For each example, makes `choices` random choices of
// e-nodes; their graphs must be accepted by Verify and have the example's values, up to rounding.
// `fired` counts examples whose e-graph grew.
RowCheck CheckTogether(const RuleRow& row, DType dtype, int seeds, int choices);

// Returns values for the example's Inputs and Parameters, in this order. `special` mixes in NaN,
// infinities and zeros of both signs, and, in weights of a known magnitude, the largest allowed
// values.
std::vector<Tensor> ExampleValues(const ExampleBuilder& e, uint64_t seed, bool special);

// Returns OK if both graphs give the same on these values, by the row's class. If a row rounds in
// low precision and so has no bound, the graphs' twins in f64 must be the same too; comparisons
// without a result even then are counted.
absl::Status CompareSides(const Graph& want, const Graph& got, RuleClass rule_class,
                          const std::vector<Tensor>& values, const Expr::Env& dims,
                          int* unbounded = nullptr);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_RULE_ROWS_TESTING_H_
