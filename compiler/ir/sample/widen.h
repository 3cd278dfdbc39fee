// A graph's twin in f64: the graph's values before its floats are rounded.
//
//   Graph twin = WidenToF64(graph).value();
//   // takes the same inputs and parameters; `y` of f32[b, 10] is `y` of f64[b, 10]
//
// Every computed float is computed in f64. Casts between computing float dtypes are left out, since
// they only round. Inputs, parameters, constants, and values only moved or selected from them keep
// their dtype, which is exact; so weight tables are not held twice. Integers and bools stay,
// computed from f64 where they depend on floats. A Bitcast of a float reads it rounded to its own
// dtype, and casts to the storage dtypes round as written.
#ifndef ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_
#define ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Returns a graph whose dims, inputs, parameters and outputs have the same order and names; float
// outputs are f64 unless they are exact already. REQUIRES: Verify(graph).ok(). Pure, thread-safe.
absl::StatusOr<Graph> WidenToF64(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_
