// The decomposition rows of what runs along one axis in its order: Sort, TopK, Cumulate. Each
// pairs the axis with itself: n^2 comparisons or terms, which lie side by side for vectors.
// Private to decompose*.cc.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_SORT_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_SORT_H_

#include "absl/types/span.h"
#include "compiler/rules/decompose.h"

namespace athanor {

NodeId ExpandSort(Expansion& x, const Node& node, absl::Span<const NodeId> in);
NodeId ExpandTopK(Expansion& x, const Node& node, absl::Span<const NodeId> in);
NodeId ExpandCumulate(Expansion& x, const Node& node, absl::Span<const NodeId> in);

void SortExample(ExampleBuilder& e);
void TopKExample(ExampleBuilder& e);
void CumulateExample(ExampleBuilder& e);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_SORT_H_
