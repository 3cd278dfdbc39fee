// Chosen elements of a graph's outputs at any size, from nothing but the elements they depend on.
//
//   std::vector<absl::string_view> bytes = ...;    // of inputs, then parameters; mapped, say
//   PartialGraph part = CutElements(graph, dims, {{0, 5'000'000'000}}, bytes, 100'000).value();
//   std::vector<Tensor> values = Evaluate(part.graph, part.inputs).value();
//   // values[0]: elements 0 and 5'000'000'000 of output 0, as Evaluate(graph) has them, bit for
//   bit
//
// The part is a graph: each node it was cut from is one node over a list of elements, computed by
// the same row of the op table, so there is one meaning of every op. Only which elements an element
// depends on is said here. Whatever holds for graphs (error bounds, the text form) holds for it.
//
//   node, elements asked for    in the part
//   elementwise                 the op on lists
//   IndexMap, Gather            a list of the operand's elements, with `fill` where they are
//   outside SumReduce, MaxReduce        [elements, terms] reduced over terms, in the order of the
//   operand Contract                    "ab,ab->a" over [elements, terms], in the order of the
//   letters Softmax, norms              the rows that hold elements Attention                   one
//   query and one column of values per element; `causal` as a mask Scatter, EmbeddingBag       the
//   updates, or rows, that meet the elements
//
// Indices must be known to say which elements they select: they are computed while cutting. Where
// they follow from rounded floats another kernel may compute others; then the part says so by a
// Select that a comparison of such an index decides.
#ifndef ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_H_
#define ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/ops/cutter.h"

namespace athanor {

// `positions[o]` are the elements of output o, row-major, in any order, repeated or none. `inputs`
// are the bytes of Inputs, then Parameters, at the sizes that `dims` gives; only elements that are
// needed are read. RESOURCE_EXHAUSTED: more than `max_visited` elements would be visited, and none
// beyond them was. OUT_OF_RANGE as Evaluate, for the indices that were needed. INVALID_ARGUMENT:
// the arguments do not fit the graph. REQUIRES: Verify(graph).ok(). Thread-safe.
absl::StatusOr<PartialGraph> CutElements(const Graph& graph, const Expr::Env& dims,
                                         absl::Span<const std::vector<int64_t>> positions,
                                         absl::Span<const absl::string_view> inputs,
                                         int64_t max_visited);

// The elements' values, one rank 1 tensor per output.
absl::StatusOr<std::vector<Tensor>> EvaluateAt(const Graph& graph, const Expr::Env& dims,
                                               absl::Span<const std::vector<int64_t>> positions,
                                               absl::Span<const absl::string_view> inputs,
                                               int64_t max_visited);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_H_
