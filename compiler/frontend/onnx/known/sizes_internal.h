// What the files of sizes.h share: operands as expressions, results out of them.
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

// One call and the bounds that decide what its sizes may be.
struct SizeCall {
  const HandlerContext& c;
  const Bounds& bounds;
  int64_t most;  // elements of a result

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

// Integers and bools; not codes, which are numbers only to casts.
bool IsWhole(Elem elem);
// nullopt above `most`.
std::optional<int64_t> CountOf(const Shape64& shape, int64_t most = kMaxKnownElements);
// nullopt where they are not expressions: floats that are no sizes, integers beyond int64.
std::optional<Cells> CellsOf(const Value& value);
// The value, if each element is one of the type over all dims; floats within exact integers.
std::optional<Value> FromCells(Cells cells, const Bounds& bounds);
Value WithKnown(Elem elem, Known known);
Values One(std::optional<Value> value);
// numpy's; nullopt where they do not fit or it is too large.
std::optional<Shape64> Broadcast(const Shape64& a, const Shape64& b, int64_t most);
// For each element of `to` the position of that of `from`, which is broadcast to it.
std::vector<int64_t> BroadcastIndex(const Shape64& from, const Shape64& to);
// A constant integer vector or scalar operand.
std::optional<std::vector<int64_t>> Numbers(const SizeCall& call, int i);
// An axis as one from 0.
std::optional<int> AxisOf(int64_t axis, size_t rank);
std::optional<std::vector<int>> AxesOf(const std::vector<int64_t>& axes, size_t rank);
// Row-major strides.
Shape64 StridesOf(const Shape64& shape);

// sizes_elementwise.cc, sizes_movement.cc, sizes_make.cc, sizes_reduce.cc: nullopt for ops that are
// not theirs too.
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
