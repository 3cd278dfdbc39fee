// Builds what ONNX's ops mean out of the op table's rows: numpy's broadcasting, casts that are
// written out, indices that count from the end, windows. The functions have the names and meanings
// of the SDK's, in which the same is written.
//
//   OpBuilder b(&graph, limits);
//   Value y = b.Add(b.MatMul(x, w), bias);
//   if (!b.status().ok()) return b.status();     // the first thing that did not fit
//
// A failing step is remembered and makes the rest no-ops, which return FailedValue. Helpers of
// one family are free functions over an OpBuilder, in build_<family>.h beside it. Not thread-safe.
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

// How a cast treats what its type cannot hold; only of casts to f8, f4 and e8m0.
struct CastMode {
  bool saturate = true;
  enum class Round : uint8_t { kUp, kDown, kNearest } round = Round::kUp;  // to float8e8m0
  bool fnuz_keeps_infinity = false;  // opsets 19 to 23: infinities give NaN in FNUZ types
};

class OpBuilder {
 public:
  // Both outlive the builder; the graph's dims are complete.
  OpBuilder(Graph* graph, const GraphLimits& limits);

  const absl::Status& status() const { return status_; }
  void Fail(absl::Status status);  // kept if it is the first
  // The status, and none from here on: the next node starts afresh.
  absl::Status TakeStatus() { return std::exchange(status_, absl::OkStatus()); }
  const Bounds& bounds() const { return bounds_; }
  const Graph& graph() const { return *graph_; }
  MultiplesHints& hints() { return hints_; }

  // --- nodes and literals
  NodeId Node(const Value& v);       // made from `known` where it is not yet
  Value At(NodeId node, Elem elem);  // a node as a value
  Value Raw(Op op, absl::Span<const Value> inputs, Attrs attrs, Elem elem);  // one row, as it is
  Value OfNodes(Op op, std::vector<NodeId> inputs, Attrs attrs, Elem elem);  // without sources
  // What stands for a value that is there in each step of a loop only (build_scan.h). It is an
  // Input of the graph, but not one of its interface.
  Value StandIn(TensorType type, Elem elem);
  bool IsStandIn(NodeId node) const { return stand_ins_.contains(node); }
  Value Scalar(Elem elem, double value);  // exact, else a failure
  Value Integer(Elem elem, int64_t value);
  Value Literal(Elem elem, Tensor value);
  Value Splat(const Value& scalar, Shape shape);  // never materialised
  Value Sizes(std::vector<Expr> sizes, std::vector<int64_t> shape, Elem elem = Elem::kInt64);
  Value Size(Elem elem, const Expr& size, Shape shape);  // a size as data in every element
  Value Iota(Elem elem, Shape shape, int axis);

  // --- elementwise, with broadcasting. Axes that are neither provably equal nor provably 1 fail,
  // with both expressions and what to say of the dims.
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
  Value Div(const Value& a, const Value& b);  // floats; integers towards zero
  Value Neg(const Value& x);
  Value Abs(const Value& x);
  Value Equal(const Value& a, const Value& b);      // false where either is NaN
  Value LessEqual(const Value& a, const Value& b);  // false where either is NaN
  Value IsNaN(const Value& x);
  Value CopySign(const Value& magnitude, const Value& sign);
  Value Clamp(const Value& x, const Value& low, const Value& high);  // NaN stays
  // ONNX's cast, code types and narrow integers too.
  Value Cast(const Value& x, Elem to, const CastMode& mode = {});
  Value Bitcast(const Value& x, Elem to);
  // f16 and bf16 as f32, others as they are: for what is to be rounded once at the end.
  Value Up(const Value& x);

  // --- movement
  // The element at `coordinates` (over $0, $1, ... and dims), which the caller knows to be inside:
  // where that is not proved the map gets a fill, which is never read.
  Value Map(const Value& x, Shape shape, std::vector<Expr> coordinates);
  Value MapOr(const Value& x, Shape shape, std::vector<Expr> coordinates, const Value& outside);
  Value Reshape(const Value& x, Shape shape);  // equal numbers of elements, proved
  Value Permute(const Value& x, absl::Span<const int> axes);
  Value Squeeze(const Value& x, absl::Span<const int> axes);
  Value Unsqueeze(const Value& x, absl::Span<const int> axes);  // positions in the result
  Value Slice(const Value& x, int axis, Expr begin, Expr size, int64_t step = 1);
  Value Concat(absl::Span<const Value> parts, int axis);
  Value Reverse(const Value& x, int axis);

  // --- indexing; indices below 0 count from the end, any other outside is an error of the request
  Value Gather(const Value& data, const Value& indices, int axis);
  // result[i, s] = data[at[0][i], at[1][i], ..., s]: one value of indices per leading axis of data,
  // alike in shape; the other axes come whole.
  Value GatherAt(const Value& data, absl::Span<const Value> at);
  Value ScatterAt(const Value& data, absl::Span<const Value> at, const Value& updates,
                  std::string_view mode);

  // --- sums
  Value Reduce(Op op, const Value& x, std::vector<int> axes, bool keepdims);
  Value Mean(const Value& x, std::vector<int> axes, bool keepdims);
  // Positions of the largest or smallest, the first or the last; NaN counts as either.
  Value ArgExtreme(const Value& x, int axis, bool largest, bool last, bool keepdims);
  Value Contract(std::string_view spec, const Value& a, const Value& b);
  Value MatMul(const Value& a, const Value& b);  // numpy's

  // --- inside a branch that may not be taken: where `condition` is not `when`, indices are taken
  // for 0, so that no error is raised for what nobody asked for.
  class Guard {
   public:
    Guard(OpBuilder* b, Value condition, bool when);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    OpBuilder* b_;
  };

  // Maps whose inside was not proved, by the node at hand: for notes.
  int64_t unproved() const { return unproved_; }

 private:
  NodeId AddNode(Op op, std::vector<NodeId> inputs, Attrs attrs);
  Value Checked(const Value& index, const Expr& size);  // negatives resolved, guards applied
  // Row-major positions at indices per leading axis of `shape`; -1 where one is outside.
  Value Flat(const Shape& shape, absl::Span<const Value> at);
  Shape Joined(const Shape& shape, size_t leading);  // with its leading axes as one

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

// Pooling's and convolution's geometry: per spatial axis.
struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<Expr> begin;  // padding before; may be negative
  std::vector<Expr> end;    // after; of explicit padding
  std::vector<Expr> out;    // the result's sizes
};
// From the attributes that Conv and the pools share. `auto_pad` as in ONNX.
absl::StatusOr<Window> WindowOf(absl::Span<const Expr> sizes, std::vector<int64_t> kernel,
                                std::vector<int64_t> strides, std::vector<int64_t> dilations,
                                std::vector<int64_t> pads, std::string_view auto_pad,
                                bool ceil_mode);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_H_
