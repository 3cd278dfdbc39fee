// Sums, extremes and contractions.
//
//   const Value scores = MatMul(b, q, Permute(b, k, {0, 2, 1}));
//   const Value highest = Reduce(b, Op::kMaxReduce, scores, {2}, /*keepdims=*/true);
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_REDUCE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_REDUCE_H_

#include <string_view>
#include <vector>

#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

Value Reduce(OpBuilder& b, Op op, const Value& x, std::vector<int> axes, bool keepdims);
Value Mean(OpBuilder& b, const Value& x, std::vector<int> axes, bool keepdims);
// Returns the positions of the largest or smallest elements, the first or the last of several. NaN
// counts as largest and as smallest.
Value ArgExtreme(OpBuilder& b, const Value& x, int axis, bool largest, bool last, bool keepdims);
Value Contract(OpBuilder& b, std::string_view spec, const Value& x, const Value& y);
Value MatMul(OpBuilder& b, const Value& x, const Value& y);  // as numpy's

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_REDUCE_H_
