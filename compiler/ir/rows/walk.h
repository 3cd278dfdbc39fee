// The walk that proofs about rows are made by. For rows/ alone.
//
//   Walk walk{graph, "b", graph.DimBounds(), std::vector<Rows>(graph.nodes.size())};
//   walk.rows[n] = Prove(walk, graph.node(n)).value();   // in the order of the nodes
#ifndef ATHANOR_COMPILER_IR_ROWS_WALK_H_
#define ATHANOR_COMPILER_IR_ROWS_WALK_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/rows/row_independence.h"

namespace athanor::row_walk {

using Rows = RowProof::Rows;

// Keeps how far a walk over a graph is, from its inputs to its outputs.
struct Walk {
  const Graph& graph;
  const std::string dim;
  const Bounds bounds;     // bounds of the dims
  std::vector<Rows> rows;  // by node, of the visited nodes
  // Inside a Scan's body: the rows of its Inputs, in order.
  const std::vector<Rows>* given = nullptr;

  const Shape& ShapeOf(NodeId node) const { return graph.node(node).type.shape; }
};

// Returns the rows of a node whose operands were visited. An error is a refusal: what the op does
// to rows, without the node's name.
absl::StatusOr<Rows> Prove(const Walk& walk, const Node& node);

// Returns the nodes that outputs and updates need, and all inputs, since unused inputs are part of
// requests too.
std::vector<bool> Needed(const Graph& graph);

absl::Status CheckDim(const Graph& graph, std::string_view name);

}  // namespace athanor::row_walk

#endif  // ATHANOR_COMPILER_IR_ROWS_WALK_H_
