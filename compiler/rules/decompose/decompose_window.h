// The decomposition rows of ops that slide a window: Conv, Pool. Private to decompose.cc.
//
// A window is an IndexMap with the result's axes and the kernel's axes, at out*stride +
// kernel*dilation - begin. The map is affine, so a Contract packs windows in place (an implicit
// im2col), and a reduction reads them in place.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_

#include "compiler/rules/decompose/decompose.h"

namespace athanor {

// Several groups: Contract("ncKO,mcK->nmO") of the windows and w with the groups as a batch axis; a
// single group: without that axis. If each group has one channel in and out: products summed over
// K.
NodeId ExpandConv(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);
// Takes the maximum or sum over K. A mean divides by a product of vectors, one per axis, since each
// axis decides on its own whether a position counts.
NodeId ExpandPool(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);

void ConvExample(ExampleBuilder& e);
void PoolExample(ExampleBuilder& e);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_
