// The decomposition rows of what slides a window: Conv, Pool. Private to decompose.cc.
//
// A window is an IndexMap with an axis for each of the kernel's beside each of the result's, at
// out*stride + kernel*dilation - begin. It is affine, so that a Contract packs it where it lies
// (an implicit im2col) and a reduction reads it where it is.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_

#include "compiler/rules/decompose/decompose.h"

namespace athanor {

// One group: Contract("ncKO,mcK->nmO") of the windows and w; several: with the groups as a batch
// axis; where each group is one channel that gives one: products summed over K.
NodeId ExpandConv(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);
// The maximum or sum over K; a mean divides by a product of vectors, one per axis, since whether a
// position counts is decided axis by axis.
NodeId ExpandPool(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);

void ConvExample(ExampleBuilder& e);
void PoolExample(ExampleBuilder& e);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_WINDOW_H_
