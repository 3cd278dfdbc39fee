// The decomposition rows of Rotary and Dequantize. Private to decompose*.cc.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_MODELS_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_MODELS_H_

#include "absl/types/span.h"
#include "compiler/rules/decompose/decompose.h"

namespace athanor {

NodeId ExpandRotary(Expansion& x, const Node& node, absl::Span<const NodeId> in);
NodeId ExpandDequantize(Expansion& x, const Node& node, absl::Span<const NodeId> in);

void RotaryExample(ExampleBuilder& e);
void DequantizeExample(ExampleBuilder& e);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_MODELS_H_
