// What a user can say of dims at upload so that sizes that a model needs equal are: convolutions
// and poolings round down, so a network that goes down and up again meets its own sizes for
// multiples only.
//
//   // "; they are equal for multiples of 32: give dims={\"height\": \"32*h\", \"h\": (1, 16)}"
//   std::string hint = MultiplesHint({{2 * FloorDiv(h, 32), FloorDiv(h, 16)}}, graph.dims);
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MULTIPLES_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MULTIPLES_H_

#include <string>
#include <utility>

#include "absl/types/span.h"
#include "compiler/ir/graph.h"

namespace athanor::onnx {

using SizePair = std::pair<Expr, Expr>;

// For messages about pairs that are not provably equal: the least factors of their dims for which
// all of them are, with the bounds that are left. Empty where there are no such factors, or none
// are needed.
std::string MultiplesHint(absl::Span<const SizePair> pairs, absl::Span<const Dim> dims);
// Axis by axis from the last, where neither is 1.
std::string MultiplesHint(const Shape& a, const Shape& b, absl::Span<const Dim> dims);
// Of an `a` that is not provably a multiple of `b`.
std::string DivisibleHint(const Expr& a, const Expr& b, absl::Span<const Dim> dims);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MULTIPLES_H_
