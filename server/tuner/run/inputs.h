// Draws realistic random tensors for a graph's inputs and parameters.
//
//   Expr::Env sizes = {{"b", 7}};
//   std::vector<Tensor> inputs = RandomInputs(graph, sizes, seed, IndexChoice::kAny).value();
//
// Floats are mostly normal, in a mix of scales with some zeros, never all alike; attention masks
// hide some keys with -inf. Integers used as indices (indices of Gather and Scatter, ids and
// offsets of EmbeddingBag, also through movement, Cast and Select) are valid and unevenly
// distributed; slots of states are valid and distinct, while there are enough of them. Rows of a
// PagedAttention have slots of their own, too: sequences share no block, no row is there twice, and
// all that a row sees is its sequence's. Other integers are small or have any bits. An Input that
// declares its value gets that value. The same arguments give the same bytes.
#ifndef ATHANOR_SERVER_TUNER_RUN_INPUTS_H_
#define ATHANOR_SERVER_TUNER_RUN_INPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// The range of integers not known to be indices: an index may be computed from them.
enum class IndexChoice : uint8_t { kAny, kSmall, kZero };

// Special values among the floats of inputs, except masks and indices; parameters have none.
enum class SpecialFloats : uint8_t {
  kNone,
  kExtremes,    // many zeros of both signs, and magnitudes far from the others'
  kEnds,        // one is half the largest number, many are the smallest normals and subnormals
  kInfinities,  // one of each sign
  kNaN,         // one
};

struct DrawOptions {
  IndexChoice choice = IndexChoice::kAny;
  SpecialFloats special = SpecialFloats::kNone;
  // Draws parameters like those of a trained model, so that values neither grow nor vanish from
  // layer to layer: weights of contractions of length K have deviation 1/sqrt(K), factors are near
  // 1, terms near 0. Without it parameters are drawn like inputs.
  bool model_weights = false;
  // Each sequence of a PagedAttention has as many rows, up to the last position that its line of
  // the table has blocks for, and they lie together: what takes as long as a step of an engine.
  bool full_contexts = false;
  bool inputs = true, parameters = true;  // which tensors to draw; states are drawn with inputs
};

// Returns the tensors in the order of Evaluate: inputs, then parameters, then states. Returns
// INVALID_ARGUMENT naming a tensor whose size the dims do not determine, or that is too large to
// hold (then use DrawInputs).
absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, const Expr::Env& dims,
                                                 uint64_t seed, IndexChoice choice);

// Number of elements drawn; larger tensors repeat them. A prime number, so that rows differ.
inline constexpr int64_t kMaxDrawn = 65'521;

// A tensor of any size, given by its first elements.
struct DrawnInput {
  std::vector<int64_t> shape;
  // A list of at most kMaxDrawn elements, except offsets of bags, distinct indices, rows of a
  // PagedAttention and the declared value of an Input, which are complete.
  Tensor drawn;
};
// Draws tensors of any size. Also returns RESOURCE_EXHAUSTED naming offsets that are too many.
absl::StatusOr<std::vector<DrawnInput>> DrawInputs(const Graph& graph, const Expr::Env& dims,
                                                   uint64_t seed, const DrawOptions& options);
inline absl::StatusOr<std::vector<DrawnInput>> DrawInputs(const Graph& graph, const Expr::Env& dims,
                                                          uint64_t seed, IndexChoice choice) {
  return DrawInputs(graph, dims, seed, DrawOptions{.choice = choice});
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_INPUTS_H_
