// Checks a rule row: it must fire on its example, and every graph it leads to must have the values
// of the example's, by the reference evaluator.
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
  absl::Status status;  // the first thing that was wrong, with row, dtype, seed and both graphs
  int fired = 0;        // examples in which the row added or united anything
  int compared = 0;     // graphs other than the example's
  int unbounded = 0;    // comparisons that rounding errors leave without a bound
};

// Examples with seeds 0 to seeds - 1, each on normal values and on values with NaN and infinities
// among them; those of rules of the e-graph that are not approximate also on values at the ends of
// the range, where no result may be infinite or NaN that is a number in the example.
RowCheck CheckRow(const RuleRow& row, DType dtype, int seeds);

// Every graph that the rows of `choice` lead to gives each element of the graph's outputs on these
// values within `relative` of itself, NaN and infinities in their places. How many graphs there
// were; else what the first wrong one is.
absl::StatusOr<int> CheckGraph(const Graph& graph, const std::vector<Tensor>& values,
                               const Expr::Env& dims, double relative,
                               const RuleChoice& choice = {});

// The row's examples under all rows at once: `choices` random choices of e-nodes of each are graphs
// that Verify accepts and that have the example's values, up to rounding. `fired` counts examples
// whose e-graph grew.
RowCheck CheckTogether(const RuleRow& row, DType dtype, int seeds, int choices);

// Values for the example's Inputs and Parameters, in this order; `special` strews NaN, infinities
// and zeros of both signs among them; in weights of a known magnitude the ends of what that allows.
std::vector<Tensor> ExampleValues(const ExampleBuilder& e, uint64_t seed, bool special);

// OK if both graphs give the same on these values: as the class of a row demands. Where a row of
// roundings in low precision bounds nothing, their twins in f64 must be the same besides;
// comparisons that say nothing even so are counted.
absl::Status CompareSides(const Graph& want, const Graph& got, RuleClass rule_class,
                          const std::vector<Tensor>& values, const Expr::Env& dims,
                          int* unbounded = nullptr);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_RULE_ROWS_TESTING_H_
