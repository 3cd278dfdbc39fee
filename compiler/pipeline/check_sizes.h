// Chooses the sizes at which a kernel is checked: small ones, at which every element is compared
// with the reference evaluator, and real ones, at which some are.
//
//   AddCheckSizes(part, flops, nullptr, &request);   // request.sizes: {1, 1}, {17, 19}, {5, 201}
//   sampled
#ifndef ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_
#define ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// Adds sizes to `request`. `graph` is what the kernel computes, at `flops` operations, both over
// graph.dims. In this order:
//   the smallest sizes;
//   the largest affordable of a few small ones that no tile divides;
//   real ones, sampled: the largest, in proportion to the logarithms of the dims' bounds, that run
//   in a few milliseconds and write a few MB, and some half way there; unless larger ones are
//   among the first two and compared whole.
// With `paged`, that of the whole graph, over the same dims, the sizes are those of such calls: the
// smallest, one of some rows of three sequences, and real ones of as many rows as are affordable.
// The first two are sampled too if the reference evaluator would take long or the operands much
// memory, as for kernels of large constant shapes.
void AddCheckSizes(const Graph& graph, const Expr& flops, const PagedSizes* paged,
                   internal::CheckRequest* request);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_CHECK_SIZES_H_
