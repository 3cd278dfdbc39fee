// A graph's twin in f64: what the graph means before its floats are rounded.
//
//   Graph twin = WidenToF64(graph).value();
//   // takes the same inputs and parameters; `y` of f32[b, 10] is `y` of f64[b, 10]
//
// Every float that is computed is computed in f64, and casts between computing float dtypes are
// left out: they only round. Inputs, parameters, constants and what is only moved or chosen from
// them keep their dtype and are exact as they are, so tables of weights are not held twice.
// Integers and bools stay, computed from f64 where they follow from floats; a Bitcast of a float
// reads it rounded to its own dtype, and casts to the storage dtypes round as written.
#ifndef ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_
#define ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// Dims, inputs, parameters and outputs in the same order and with the same names; float outputs are
// f64 unless they are exact as they are. REQUIRES: Verify(graph).ok(). Pure, thread-safe.
absl::StatusOr<Graph> WidenToF64(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_WIDEN_H_
