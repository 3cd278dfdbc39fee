// OpBuilder adds nodes and literals to a graph, for handlers of ONNX's ops. Functions of values are
// free functions over it, one header per family: build_cast.h, build_elementwise.h, build_index.h,
// build_movement.h, build_reduce.h, build_sizes.h. They have the names and meanings of the SDK's,
// and take the builder first, then an op or an element type if any, then values, then shapes and
// axes.
//
//   OpBuilder b(&graph, limits);
//   Value y = Add(b, MatMul(b, x, w), b.Scalar(x.elem, 1));
//   if (!b.status().ok()) return b.status();     // the first thing that did not fit
//
// The builder keeps the status of the first failing step; later steps do nothing and return
// FailedValue. Not thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/multiples.h"
#include "compiler/frontend/onnx/model/value.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::onnx {

class OpBuilder {
 public:
  // Borrows the graph, whose dims must be complete, and the limits. Both must outlive the builder.
  OpBuilder(Graph* graph, const GraphLimits& limits);

  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status);  // keeps only the first failure
  // Returns the status and resets it, so that the next node starts without a failure.
  absl::Status TakeStatus() { return std::exchange(status_, absl::OkStatus()); }
  const Bounds& bounds() const { return bounds_; }
  const Graph& graph() const { return *graph_; }
  MultiplesHints& hints() { return hints_; }

  // --- nodes
  NodeId Node(const Value& v);       // makes a node from `known` if there is none yet
  Value At(NodeId node, Elem elem);  // wraps a node as a value
  // Adds one row without changes.
  Value Raw(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem);
  // Same, but a row that the graph refuses is returned as an error and is no failure.
  absl::StatusOr<Value> Try(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem);
  // Adds a node whose value has no sources.
  Value OfNodes(Op op, std::vector<NodeId> inputs, Attrs attrs, Elem elem);
  // Adds an Input that stands for a value inside a loop's step (build_scan.h). It is not part of
  // the graph's interface.
  Value StandIn(TensorType type, Elem elem);
  bool IsStandIn(NodeId node) const { return stand_ins_.contains(node); }

  // --- literals
  Value Scalar(Elem elem, double value);  // fails unless `value` is exact in `elem`
  Value Integer(Elem elem, int64_t value);
  Value Literal(Elem elem, Tensor value);
  Value Sizes(Elem elem, std::vector<Expr> sizes, std::vector<int64_t> shape);
  Value Iota(Elem elem, Shape shape, int axis);

  // --- branches that may not be taken. While a Guard lives, indices are replaced by 0 if
  // `condition` is not `when`, so that a branch that is not taken raises no index error.
  class Guard {
   public:
    Guard(OpBuilder* b, Value condition, bool when);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    OpBuilder* b_;
  };
  // Applies all guards to an index.
  Value Guarded(Value index);

 private:
  absl::StatusOr<NodeId> AddNode(Op op, std::vector<NodeId> inputs, Attrs attrs);

  Graph* graph_;
  GraphBuilder builder_;
  Bounds bounds_;
  MultiplesHints hints_;
  absl::Status status_;
  std::vector<std::pair<Value, bool>> guards_;
  std::set<NodeId> stand_ins_;
  int64_t literal_bytes_ = 0;
};

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_
