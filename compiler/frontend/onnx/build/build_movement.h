// Movement: every function is one index map, or several index maps and selections between them.
//
//   const Value rows = Permute(b, Reshape(b, x, {batch, heads, size}), {1, 0, 2});
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_MOVEMENT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_MOVEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

// Returns the elements at `coordinates` (over $0, $1, ... and dims). The caller guarantees that
// they are inside; if that is not proved, the map gets a fill, which is never read.
Value Map(OpBuilder& b, const Value& x, Shape shape, std::vector<Expr> coordinates);
// Same, but an element whose coordinates are not inside is that of the scalar `outside`.
Value MapOr(OpBuilder& b, const Value& x, Shape shape, std::vector<Expr> coordinates,
            const Value& outside);
// Repeats a scalar, as an IndexMap, not a literal.
Value Splat(OpBuilder& b, const Value& scalar, Shape shape);
Value Reshape(OpBuilder& b, const Value& x, Shape shape);  // as many elements, provably
Value Permute(OpBuilder& b, const Value& x, absl::Span<const int> axes);
Value Squeeze(OpBuilder& b, const Value& x, absl::Span<const int> axes);
// `axes` are positions in the result.
Value Unsqueeze(OpBuilder& b, const Value& x, absl::Span<const int> axes);
Value Slice(OpBuilder& b, const Value& x, int axis, Expr begin, Expr size, int64_t step = 1);
Value Reverse(OpBuilder& b, const Value& x, int axis);
Value Concat(OpBuilder& b, absl::Span<const Value> parts, int axis);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_MOVEMENT_H_
