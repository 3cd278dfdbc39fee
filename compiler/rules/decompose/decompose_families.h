// Rows of decompositions by family, one file each, and what they share. Private to decompose*.cc.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_FAMILIES_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_FAMILIES_H_

#include <limits>

#include "absl/types/span.h"
#include "compiler/rules/decompose/decompose.h"

namespace athanor {

using Inputs = absl::Span<const NodeId>;

absl::Span<const DecompositionRow> WindowDecompositions();
absl::Span<const DecompositionRow> ContractDecompositions();
absl::Span<const DecompositionRow> ActivationDecompositions();
absl::Span<const DecompositionRow> NormDecompositions();
absl::Span<const DecompositionRow> AttentionDecompositions();
absl::Span<const DecompositionRow> OrderDecompositions();
absl::Span<const DecompositionRow> TransformerDecompositions();

// Returns `n` in its accumulator's dtype.
inline NodeId Up(Expansion& x, NodeId n) { return x.Cast(n, AccumulatorOf(x.Type(n).dtype)); }

// Returns the lowest finite number of f64, or of f32 for other dtypes.
inline double Lowest(DType dtype) {
  return dtype == DType::kF64 ? std::numeric_limits<double>::lowest()
                              : static_cast<double>(std::numeric_limits<float>::lowest());
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_FAMILIES_H_
