// Helpers that the sources of sizes.h share: operands as expressions, and results made from them.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_INTERNAL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_INTERNAL_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/known/sizes.h"

namespace athanor::onnx {

using Values = std::optional<std::vector<Value>>;
using Shape64 = std::vector<int64_t>;

// A call, and the bounds of the dims in its sizes.
struct SizeCall {
  const HandlerContext& c;
  const Bounds& bounds;
  int64_t most;  // largest number of elements of a result

  int64_t version() const { return c.version(); }
  const Known& known(int i) const { return *c.In(i).known; }
  const Shape64& shape(int i) const { return known(i).shape; }
};

// Elements as expressions over one divisor (1 for integers and bools).
struct Cells {
  Elem elem = Elem::kInt64;
  Shape64 shape;
  std::vector<Expr> sizes;
  int64_t divisor = 1;
};

// True for integers and bools; false for codes, whose numeric meaning only casts know.
bool IsWhole(Elem elem);
// Returns nullopt above `most`.
std::optional<int64_t> CountOf(const Shape64& shape, int64_t most = kMaxKnownElements);
// Returns nullopt if the elements are not expressions: floats that are no sizes, integers outside
// int64.
std::optional<Cells> CellsOf(const Value& value);
// Returns the value if each element is representable in the type over all dims; floats within the
// range of exact integers.
std::optional<Value> FromCells(Cells cells, const Bounds& bounds);
Value WithKnown(Elem elem, Known known);
Values One(std::optional<Value> value);
// Broadcasts as numpy does; nullopt if the shapes do not fit or the result is too large.
std::optional<Shape64> Broadcast(const Shape64& a, const Shape64& b, int64_t most);
// Returns, for each element of `to`, the position of the element of `from` that is broadcast to it.
std::vector<int64_t> BroadcastIndex(const Shape64& from, const Shape64& to);
// Returns the elements of a constant integer vector or scalar operand.
std::optional<std::vector<int64_t>> Numbers(const SizeCall& call, int i);
// Returns the axis counted from 0.
std::optional<int> AxisOf(int64_t axis, size_t rank);
std::optional<std::vector<int>> AxesOf(const std::vector<int64_t>& axes, size_t rank);
// Row-major strides.
Shape64 StridesOf(const Shape64& shape);

// Each returns nullopt also for ops of the other files: sizes_elementwise.cc, sizes_movement.cc,
// sizes_make.cc, sizes_reduce.cc.
Values KnownElementwise(const SizeCall& call);
Values KnownMovement(const SizeCall& call);
Values KnownMade(const SizeCall& call);
Values KnownReduce(const SizeCall& call);
absl::Span<const std::string_view> ElementwiseOps();
absl::Span<const std::string_view> MovementOps();
absl::Span<const std::string_view> MadeOps();
absl::Span<const std::string_view> ReduceOps();

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_INTERNAL_H_
