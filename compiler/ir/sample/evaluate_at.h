// Evaluates chosen elements of a graph's outputs at any size, reading only the elements they depend
// on.
//
//   std::vector<absl::string_view> bytes = ...;    // of graph.ArgumentIds(); mapped, say
//   PartialGraph part = CutElements(graph, dims, {{0, 5'000'000'000}}, bytes, 100'000).value();
//   std::vector<Tensor> values = Evaluate(part.graph, part.inputs).value();
//   // values[0]: elements 0 and 5'000'000'000 of output 0, bit for bit those of Evaluate(graph)
//
// The part is a graph. Each of its nodes stands for a node of the whole, computes a list of that
// node's elements, and uses the same row of the op table, so every op has one meaning. This code
// adds only which elements an element depends on. Everything that holds for graphs (error bounds,
// the text form) holds for the part.
//
//   node of the whole         node of the part, over the wanted elements
//   elementwise               the op on lists
//   IndexMap, Gather          a list of the operand's elements, `fill` for those outside
//   SumReduce, MaxReduce      [elements, terms] reduced over terms, in the operand's order
//   Contract                  "ab,ab->a" over [elements, terms], in the order of the letters
//   Softmax, norms            the rows that hold the elements
//   Attention                 one query and one column of values per element; `causal` as a mask
//   Scatter, EmbeddingBag     the updates, or rows, that contribute to the elements
//
// Indices must be known to say which elements they select, so they are computed while cutting. An
// index that depends on rounded floats may differ in another kernel. The part marks such values
// with a Select whose condition compares that index.
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

// `positions[o]` are the wanted elements of output o: row-major, in any order, repeated or none.
// `inputs` are the bytes of graph.ArgumentIds(), at the sizes that `dims` gives; only needed
// elements are read. RESOURCE_EXHAUSTED: more than `max_visited` elements would be visited; no more
// than that were. OUT_OF_RANGE: as in Evaluate, for the indices that were needed. INVALID_ARGUMENT:
// the arguments do not fit the graph. REQUIRES: Verify(graph).ok(). Thread-safe.
absl::StatusOr<PartialGraph> CutElements(const Graph& graph, const Expr::Env& dims,
                                         absl::Span<const std::vector<int64_t>> positions,
                                         absl::Span<const absl::string_view> inputs,
                                         int64_t max_visited);

// Returns the elements' values, one rank 1 tensor per output.
absl::StatusOr<std::vector<Tensor>> EvaluateAt(const Graph& graph, const Expr::Env& dims,
                                               absl::Span<const std::vector<int64_t>> positions,
                                               absl::Span<const absl::string_view> inputs,
                                               int64_t max_visited);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_SAMPLE_EVALUATE_AT_H_
