// Builds the meaning of ONNX's ops from rows of the op table: numpy's broadcasting, explicit casts,
// indices that count from the end, windows. The functions have the names and meanings of the SDK's.
//
//   OpBuilder b(&graph, limits);
//   Value y = b.Add(b.MatMul(x, w), bias);
//   if (!b.status().ok()) return b.status();     // the first thing that did not fit
//
// The builder keeps the status of the first failing step; later steps do nothing and return
// FailedValue. Helpers of one family are free functions over an OpBuilder, in build_<family>.h
// beside it. Not thread-safe.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/multiples.h"
#include "compiler/frontend/onnx/model/value.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::onnx {

// Treatment of values that a cast's target type cannot hold; only for casts to f8, f4 and e8m0.
struct CastMode {
  bool saturate = true;
  enum class Round : uint8_t { kUp, kDown, kNearest } round = Round::kUp;  // to float8e8m0
  bool fnuz_keeps_infinity = false;  // opsets 19 to 23: infinities give NaN in FNUZ types
};

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

  // --- nodes and literals
  NodeId Node(const Value& v);       // makes a node from `known` if there is none yet
  Value At(NodeId node, Elem elem);  // wraps a node as a value
  // Adds one row without changes.
  Value Raw(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem);
  // Adds a node whose value has no sources.
  Value OfNodes(Op op, std::vector<NodeId> inputs, Attrs attrs, Elem elem);
  // Adds an Input that stands for a value inside a loop's step (build_scan.h). It is not part of
  // the graph's interface.
  Value StandIn(TensorType type, Elem elem);
  bool IsStandIn(NodeId node) const { return stand_ins_.contains(node); }
  Value Scalar(Elem elem, double value);  // fails unless `value` is exact in `elem`
  Value Integer(Elem elem, int64_t value);
  Value Literal(Elem elem, Tensor value);
  Value Splat(const Value& scalar, Shape shape);  // an IndexMap, not a literal
  Value Sizes(std::vector<Expr> sizes, std::vector<int64_t> shape, Elem elem = Elem::kInt64);
  Value Size(Elem elem, const Expr& size, Shape shape);  // a size as data, in every element
  Value Iota(Elem elem, Shape shape, int axis);

  // --- elementwise, with broadcasting. Axes that are neither provably equal nor provably 1 fail.
  // The error names both expressions and suggests bounds for the dims.
  absl::StatusOr<Shape> BroadcastShape(absl::Span<const Shape> shapes);
  Value Broadcast(const Value& x, const Shape& shape);
  Value Unary(Op op, const Value& x, Attrs attrs = {});
  Value Binary(Op op, const Value& a, const Value& b, Attrs attrs = {});
  Value Select(const Value& condition, const Value& a, const Value& b);
  Value Add(const Value& a, const Value& b) { return Binary(Op::kAdd, a, b); }
  Value Mul(const Value& a, const Value& b) { return Binary(Op::kMul, a, b); }
  Value Min(const Value& a, const Value& b) { return Binary(Op::kMin, a, b); }
  Value Max(const Value& a, const Value& b) { return Binary(Op::kMax, a, b); }
  Value Less(const Value& a, const Value& b) { return Binary(Op::kLessThan, a, b); }
  Value And(const Value& a, const Value& b) { return Binary(Op::kAnd, a, b); }
  Value Or(const Value& a, const Value& b) { return Binary(Op::kOr, a, b); }
  Value Not(const Value& x) { return Unary(Op::kNot, x); }
  Value Sub(const Value& a, const Value& b);
  Value Div(const Value& a, const Value& b);  // integers round towards zero
  Value Neg(const Value& x);
  Value Abs(const Value& x);
  Value Equal(const Value& a, const Value& b);      // false if either is NaN
  Value LessEqual(const Value& a, const Value& b);  // false if either is NaN
  Value IsNaN(const Value& x);
  Value CopySign(const Value& magnitude, const Value& sign);
  Value Clamp(const Value& x, const Value& low, const Value& high);  // keeps NaN
  // Casts as ONNX does, with code types and narrow integers.
  Value Cast(const Value& x, Elem to, const CastMode& mode = {});
  Value Bitcast(const Value& x, Elem to);
  // Casts f16 and bf16 to f32 and leaves other types: for results that are rounded once at the end.
  Value Up(const Value& x);

  // --- movement
  // Returns the elements at `coordinates` (over $0, $1, ... and dims). The caller guarantees that
  // they are inside; if that is not proved, the map gets a fill, which is never read.
  Value Map(const Value& x, Shape shape, std::vector<Expr> coordinates);
  Value MapOr(const Value& x, Shape shape, std::vector<Expr> coordinates, const Value& outside);
  Value Reshape(const Value& x, Shape shape);  // the numbers of elements must be provably equal
  Value Permute(const Value& x, absl::Span<const int> axes);
  Value Squeeze(const Value& x, absl::Span<const int> axes);
  // `axes` are positions in the result.
  Value Unsqueeze(const Value& x, absl::Span<const int> axes);
  Value Slice(const Value& x, int axis, Expr begin, Expr size, int64_t step = 1);
  Value Concat(absl::Span<const Value> parts, int axis);
  Value Reverse(const Value& x, int axis);

  // --- indexing. Indices below 0 count from the end; any other index outside is an error of the
  // request.
  Value Gather(const Value& data, const Value& indices, int axis);
  // result[i, s] = data[at[0][i], at[1][i], ..., s]: `at` has one value of indices per leading axis
  // of data, all of one shape; the other axes are copied whole.
  Value GatherAt(const Value& data, absl::Span<const Value> at);
  Value ScatterAt(const Value& data, absl::Span<const Value> at, const Value& updates,
                  std::string_view mode);

  // --- sums
  Value Reduce(Op op, const Value& x, std::vector<int> axes, bool keepdims);
  Value Mean(const Value& x, std::vector<int> axes, bool keepdims);
  // Returns the positions of the largest or smallest elements, the first or the last of several.
  // NaN counts as largest and as smallest.
  Value ArgExtreme(const Value& x, int axis, bool largest, bool last, bool keepdims);
  Value Contract(std::string_view spec, const Value& a, const Value& b);
  Value MatMul(const Value& a, const Value& b);  // as numpy's

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

  // Number of maps so far whose coordinates were not proved to be inside.
  int64_t unproved() const { return unproved_; }

 private:
  NodeId AddNode(Op op, std::vector<NodeId> inputs, Attrs attrs);
  Value Checked(const Value& index, const Expr& size);  // resolves negatives, applies guards
  // Returns row-major positions for indices per leading axis of `shape`; -1 if an index is outside.
  Value Flat(const Shape& shape, absl::Span<const Value> at);
  Shape Joined(const Shape& shape, size_t leading);  // merges the leading axes

  Graph* graph_;
  GraphBuilder builder_;
  Bounds bounds_;
  MultiplesHints hints_;
  absl::Status status_;
  std::vector<std::pair<Value, bool>> guards_;
  int64_t unproved_ = 0;
  std::set<NodeId> stand_ins_;
  int64_t literal_bytes_ = 0;
};

// Geometry of pooling and convolution, per spatial axis.
struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begin;  // padding before; may be negative
  std::vector<Expr> end;    // padding after, if explicit
  std::vector<Expr> out;    // the result's sizes
};
// Computes the geometry from the attributes that Conv and the pools share; `auto_pad` as in ONNX.
absl::StatusOr<Window> WindowOf(absl::Span<const Expr> sizes, std::vector<int64_t> kernel,
                                std::vector<int64_t> strides, std::vector<int64_t> dilations,
                                std::vector<int64_t> pads, std::string_view auto_pad,
                                bool ceil_mode);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_
