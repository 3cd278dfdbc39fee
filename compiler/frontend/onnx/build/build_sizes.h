// Sizes as data: expressions over dims that nodes compute at run time.
//
//   const Value mean = Div(b, sum, Size(b, sum.elem, x.shape[axis], sum.shape));
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SIZES_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SIZES_H_

#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

// Returns a size in every element of `shape`.
Value Size(OpBuilder& b, Elem elem, const Expr& size, Shape shape);

// Adds the nodes that compute a value whose sizes are known. REQUIRES: v.known has no literal.
Value KnownSizes(OpBuilder& b, const Value& v);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_SIZES_H_
