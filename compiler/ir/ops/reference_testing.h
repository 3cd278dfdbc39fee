// Helpers of the reference tests: run one op on literal tensors.
//
//   Tensor y = RunOp(Op::kAdd, {Of(DType::kF32, {2}, {1, 2}), x});   // {2} + x, its type inferred
#ifndef ATHANOR_COMPILER_IR_OPS_REFERENCE_TESTING_H_
#define ATHANOR_COMPILER_IR_OPS_REFERENCE_TESTING_H_

#include <initializer_list>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/op.h"
#include "deploy/bazel/libs/status_macros.h"
#include "gtest/gtest.h"

namespace athanor {

// Makes a tensor of any dtype from numbers, rounded or wrapped to it.
inline Tensor Of(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  EXPECT_EQ(static_cast<size_t>(t.elements()), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    StoreScalar(t, i,
                IsFloat(dtype)    ? Scalar::Float(dtype, values[i])
                : IsSigned(dtype) ? Scalar::Signed(dtype, static_cast<int64_t>(values[i]))
                                  : Scalar::Unsigned(dtype, static_cast<uint64_t>(values[i])));
  }
  return t;
}

inline std::vector<double> ValuesOf(const Tensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const Scalar s = LoadScalar(t, i);
    values.push_back(IsFloat(t.dtype)    ? s.f
                     : IsSigned(t.dtype) ? static_cast<double>(s.i)
                                         : static_cast<double>(s.u));
  }
  return values;
}

inline Tensor OfCode(DType dtype, uint64_t code) {
  Tensor t = Tensor::Zeros(dtype, {});
  for (size_t i = 0; i < t.bytes.size(); ++i) t.bytes[i] = static_cast<char>(code >> (8 * i));
  return t;
}

// Infers the result's type with the op table, so that a test cannot state a wrong one.
inline absl::StatusOr<Tensor> TryOp(Op op, const std::vector<Tensor>& inputs,
                                    const Attrs& attrs = {}, const Expr::Env& dims = {}) {
  std::vector<TensorType> types;
  std::vector<const Tensor*> operands;
  for (const Tensor& input : inputs) {
    types.push_back({input.dtype, Shape(input.shape.begin(), input.shape.end())});
    operands.push_back(&input);
  }
  Bounds bounds;
  for (const auto& [name, size] : dims) bounds.Set(name, size, size);
  ASSIGN_OR_RETURN(TensorType type, OpInfo(op).infer(types, attrs, bounds));
  std::vector<int64_t> shape;
  for (const Expr& size : type.shape) shape.push_back(size.Evaluate(dims).value());
  Tensor result = Tensor::Zeros(type.dtype, shape);
  absl::Status status = OpInfo(op).reference(operands, attrs, dims, &result);
  if (!status.ok()) return status;
  return result;
}

inline Tensor RunOp(Op op, const std::vector<Tensor>& inputs, const Attrs& attrs = {},
                    const Expr::Env& dims = {}) {
  absl::StatusOr<Tensor> result = TryOp(op, inputs, attrs, dims);
  EXPECT_TRUE(result.ok()) << OpName(op) << ": " << result.status();
  return result.ok() ? *std::move(result) : Tensor();
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_REFERENCE_TESTING_H_
