// The limits of graphs that are made of one that was accepted: none. What an upload may hold was
// decided then, by the server's flags; what it becomes has more nodes, axes and elements, few of
// which are ever in memory.
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
