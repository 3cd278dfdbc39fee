// At which sizes a kernel is checked against the reference evaluator.
#ifndef ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_
#define ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_

#include "compiler/ir/graph.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// The smallest sizes, and the largest affordable ones of a few that no tile divides. `flops`: what
// one run of the kernel computes, over the graph's dims.
void AddCheckSizes(const Graph& graph, const Expr& flops, internal::CheckRequest* request);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_
