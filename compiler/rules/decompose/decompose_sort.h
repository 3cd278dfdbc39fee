// The decomposition rows of ops that order or accumulate along one axis: TopK, Cumulate. Private to
// decompose*.cc.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_SORT_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_SORT_H_

#include "absl/types/span.h"
#include "compiler/rules/decompose/decompose.h"

namespace athanor {

NodeId ExpandTopK(Expansion& x, const Node& node, absl::Span<const NodeId> in);
NodeId ExpandCumulate(Expansion& x, const Node& node, absl::Span<const NodeId> in);

void TopKExample(ExampleBuilder& e);
void CumulateExample(ExampleBuilder& e);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_SORT_H_
