// Decomposition rows: each composite op of the op table as primitives, exactly (the same value for
// every input, up to the rows' error bounds).
//
//   absl::StatusOr<Graph> g = Decompose(graph, [](const Node& n) { return n.op == Op::kSoftmax; });
//
// Low-precision composites compute in their accumulator's dtype and round once, so the rows cast
// first and last. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_H_

#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/graph.h"

namespace athanor {

class ExampleBuilder;

// Adds nodes to a graph with the shorthands that rows are written in. A failing Add is remembered
// and makes the rest no-ops: rows are correct by construction, so a failure is a bug of the row.
class Expansion {
 public:
  explicit Expansion(Graph* graph) : graph_(graph), builder_(graph, AcceptedLimits()) {}

  const TensorType& Type(NodeId n) const { return graph_->nodes[n].type; }
  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {});
  // `value` in every element. Shapes are by value: those of nodes move as the graph grows.
  NodeId Fill(DType dtype, double value, Shape shape);
  NodeId FillLike(NodeId like, double value) {
    return Fill(Type(like).dtype, value, Type(like).shape);
  }
  NodeId Sub(NodeId a, NodeId b) { return Add(Op::kAdd, {a, Add(Op::kMul, {b, FillLike(b, -1)})}); }
  NodeId Cast(NodeId n, DType dtype);
  // Of coordinates that are inside: where that is not proved, the map has a fill, which is never
  // read.
  NodeId Map(NodeId n, Shape shape, std::vector<Expr> coordinates);
  // `outside`, of n's dtype, where a coordinate is outside n; a plain map where none provably is.
  NodeId MapOr(NodeId n, Shape shape, std::vector<Expr> coordinates, const Scalar& outside);
  NodeId Reduce(Op op, NodeId n, std::vector<int64_t> axes);
  // `n` without `axis`, repeated along it again to `shape`.
  NodeId Repeat(NodeId n, int64_t axis, Shape shape);
  // The value of a size as a tensor of `shape`.
  NodeId Size(DType dtype, const Expr& size, Shape shape);

  Bounds DimBounds() const { return graph_->DimBounds(); }
  const absl::Status& status() const { return status_; }

 private:
  Graph* graph_;
  GraphBuilder builder_;
  absl::Status status_;
};

struct DecompositionRow {
  Op op;
  std::string_view name;
  std::string_view algebra;  // what the row says, for people
  NodeId (*expand)(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);
  void (*example)(ExampleBuilder& e);  // a small graph that has the op
};

// Returns one row per composite of the op table.
absl::Span<const DecompositionRow> DecompositionRows();

// Replaces every node that `wanted` holds for.
absl::StatusOr<Graph> Decompose(const Graph& graph, absl::FunctionRef<bool(const Node&)> wanted);

// Every Scatter that adds or multiplies in low precision as one that does so in the accumulator's
// dtype and rounds once: the kernel computes where the result lies.
absl::StatusOr<Graph> WidenScatters(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_H_
