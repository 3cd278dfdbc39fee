// Recognition: what a user wrote in primitives, found again as the op it is, so that it gets the same
// kernels as the same graph written in composites.
//
//   absl::StatusOr<Graph> g = Recognise(Canonicalize(graph));
//
// Rows are exact: the recognised op has the same value by the op table. Pure function, thread-safe.
#ifndef ATHANOR_COMPILER_RULES_RECOGNISE_H_
#define ATHANOR_COMPILER_RULES_RECOGNISE_H_

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"

namespace athanor {

// SumReduce(Mul(a', b')), with a' and b' repeating a and b along axes that are not theirs, becomes
// Contract(a, b).
absl::StatusOr<Graph> Recognise(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_RECOGNISE_H_
