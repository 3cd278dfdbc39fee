// Geometry of pooling and convolution: sizes as expressions, for every form of padding.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_WINDOW_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_WINDOW_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/expr/expr.h"

namespace athanor::onnx {

// Per spatial axis.
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

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_WINDOW_H_
