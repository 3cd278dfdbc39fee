// Limits for graphs derived from an accepted graph: none except rank 64. The server's flags limited
// the upload already. A derived graph has more nodes, axes and elements, few of which are ever in
// memory.
//
//   absl::StatusOr<Graph> task = ParseGraph(text, AcceptedLimits());
#ifndef ATHANOR_COMPILER_IR_GRAPH_ACCEPTED_LIMITS_H_
#define ATHANOR_COMPILER_IR_GRAPH_ACCEPTED_LIMITS_H_

#include <limits>

#include "compiler/ir/graph/graph.h"

namespace athanor {

inline GraphLimits AcceptedLimits() {
  GraphLimits limits;
  limits.max_nodes = limits.max_tensor_bytes = limits.max_attr_bytes = limits.max_expr_size =
      std::numeric_limits<int64_t>::max();
  limits.max_rank = 64;
  return limits;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_ACCEPTED_LIMITS_H_
