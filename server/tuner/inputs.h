// Realistic random tensors for a graph's inputs and parameters.
//
//   Expr::Env sizes = {{"b", 7}};
//   std::vector<Tensor> inputs = RandomInputs(graph, sizes, seed, IndexChoice::kAny).value();
//
// Floats are mostly normal, in a mix of scales with some zeros, never all alike; masks of attention
// hide some keys with -inf. Integers that select (indices of Gather and Scatter, ids and offsets of
// EmbeddingBag, also through movement, Cast and Select) are valid and unevenly spread; others are
// small or have any bits. The same arguments give the same bytes.
#ifndef ATHANOR_SERVER_TUNER_INPUTS_H_
#define ATHANOR_SERVER_TUNER_INPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"

namespace athanor {

// What integers are that are not known to select: an index may be computed from them.
enum class IndexChoice : uint8_t { kAny, kSmall, kZero };

// In the order Evaluate takes them: inputs, then parameters. INVALID_ARGUMENT names a tensor whose
// size the dims do not give, or that is too large to check with.
absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, const Expr::Env& dims,
                                                 uint64_t seed, IndexChoice choice);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_INPUTS_H_
