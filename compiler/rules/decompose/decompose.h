// Decomposition rows: each expands a composite op of the op table into primitives, exactly (the
// same value for every input, up to the rows' error bounds).
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

// Adds nodes to a graph with the shorthands that rows are written in. After a failing Add, later
// calls do nothing, and the status is kept. Rows are correct by construction, so a failure is a bug
// of the row.
class Expansion {
 public:
  explicit Expansion(Graph* graph) : graph_(graph), builder_(graph, AcceptedLimits()) {}

  const TensorType& Type(NodeId n) const { return graph_->nodes[n].type; }
  NodeId Add(Op op, std::vector<NodeId> inputs, Attrs attrs = {});
  // Returns `value` in every element. Takes shapes by value, because nodes move as the graph grows.
  NodeId Fill(DType dtype, double value, Shape shape);
  NodeId FillLike(NodeId like, double value) {
    return Fill(Type(like).dtype, value, Type(like).shape);
  }
  NodeId Sub(NodeId a, NodeId b) { return Add(Op::kAdd, {a, Add(Op::kMul, {b, FillLike(b, -1)})}); }
  NodeId Cast(NodeId n, DType dtype);
  // Returns a view at coordinates that are inside. If that is not proved, the map gets a fill,
  // which is never read.
  NodeId Map(NodeId n, Shape shape, std::vector<Expr> coordinates);
  // Returns a view with `outside`, converted to n's dtype, where a coordinate is outside n; a plain
  // map if none provably is.
  NodeId MapOr(NodeId n, Shape shape, std::vector<Expr> coordinates, const Scalar& outside);
  NodeId Reduce(Op op, NodeId n, std::vector<int64_t> axes);
  // Repeats `n`, which has no `axis`, along that axis to `shape`.
  NodeId Repeat(NodeId n, int64_t axis, Shape shape);
  // Returns the value of a size as a tensor of `shape`.
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
  std::string_view algebra;  // the row's equation, for people
  NodeId (*expand)(Expansion& x, const Node& node, absl::Span<const NodeId> inputs);
  void (*example)(ExampleBuilder& e);  // builds a small graph with the op
};

// Returns one row per composite of the op table.
absl::Span<const DecompositionRow> DecompositionRows();

// Expands every node for which `wanted` is true.
absl::StatusOr<Graph> Decompose(const Graph& graph, absl::FunctionRef<bool(const Node&)> wanted);

// Replaces every Scatter that adds or multiplies in low precision by one that does so in the
// accumulator's dtype and rounds once, because the kernel accumulates in the result itself.
absl::StatusOr<Graph> WidenScatters(const Graph& graph);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_DECOMPOSE_H_
