// Realistic random tensors for a graph's inputs and parameters.
//
//   Expr::Env sizes = {{"b", 7}};
//   std::vector<Tensor> inputs = RandomInputs(graph, sizes, seed, IndexChoice::kAny).value();
//
// Floats are mostly normal, in a mix of scales with some zeros, never all alike; masks of attention
// hide some keys with -inf. Integers that select (indices of Gather and Scatter, ids and offsets of
// EmbeddingBag, also through movement, Cast and Select) are valid and unevenly spread; others are
// small or have any bits. An Input with a value has that. The same arguments give the same bytes.
#ifndef ATHANOR_SERVER_TUNER_RUN_INPUTS_H_
#define ATHANOR_SERVER_TUNER_RUN_INPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

// What integers are that are not known to select: an index may be computed from them.
enum class IndexChoice : uint8_t { kAny, kSmall, kZero };

// Among the floats of inputs that are neither masks nor select; parameters have none.
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
  // Parameters as a trained model has them, so that values neither grow nor vanish from layer to
  // layer: weights of contractions of length K have deviation 1/sqrt(K), factors are near 1, terms
  // near 0. Without it they are drawn as inputs are.
  bool model_weights = false;
  bool inputs = true, parameters = true;  // which of them
};

// In the order Evaluate takes them: inputs, then parameters. INVALID_ARGUMENT names a tensor whose
// size the dims do not give, or that is too large to hold (then DrawInputs can).
absl::StatusOr<std::vector<Tensor>> RandomInputs(const Graph& graph, const Expr::Env& dims,
                                                 uint64_t seed, IndexChoice choice);

// Larger tensors repeat their first elements: a prime number of them, so that rows differ.
inline constexpr int64_t kMaxDrawn = 65'521;

// The same tensors of any size, by their first elements.
struct DrawnInput {
  std::vector<int64_t> shape;
  // A list of at most kMaxDrawn, but for offsets of bags and what an Input's value says: those are
  // all there.
  Tensor drawn;
};
// Besides, RESOURCE_EXHAUSTED names offsets that are too many.
absl::StatusOr<std::vector<DrawnInput>> DrawInputs(const Graph& graph, const Expr::Env& dims,
                                                   uint64_t seed, const DrawOptions& options);
inline absl::StatusOr<std::vector<DrawnInput>> DrawInputs(const Graph& graph, const Expr::Env& dims,
                                                          uint64_t seed, IndexChoice choice) {
  return DrawInputs(graph, dims, seed, DrawOptions{.choice = choice});
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_INPUTS_H_
