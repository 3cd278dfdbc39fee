// Type inference: checks that the `infer` functions of the ops' families share.
//
//   if (absl::Status s = CheckRank("ids, operand 1,", ids.shape, 1); !s.ok()) return s;
//
// Whoever calls `infer` has checked the number of operands and the presence and type of attributes.
// Errors name operands by position; the caller prefixes the node. A dtype that an op does not take
// is UNIMPLEMENTED, everything else that is wrong is INVALID_ARGUMENT.
#ifndef ATHANOR_COMPILER_IR_OPS_INFER_H_
#define ATHANOR_COMPILER_IR_OPS_INFER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

using TypeSpan = absl::Span<const TensorType>;

// Sets of dtypes that ops accept.
enum class DTypeClass : uint8_t {
  kFloats,     // f16 bf16 f32 f64
  kIntegers,   // i8 to u64
  kNumeric,    // floats and integers
  kLogical,    // bool and integers
  kComputing,  // bool, integers and floats; not the storage-only f8 types
};
bool InClass(DType dtype, DTypeClass dtype_class);

// `what` names the tensor in messages, as in "operand 0" or "ids".
absl::Status CheckDType(std::string_view what, DType dtype, DTypeClass dtype_class);
absl::Status CheckSameDType(std::string_view what_a, DType a, std::string_view what_b, DType b);
absl::Status CheckRank(std::string_view what, const Shape& shape, int rank);
absl::Status CheckAxis(std::string_view attr, int64_t axis, const Shape& shape);
// Checks that two axes, or two whole shapes, are provably equal.
absl::Status CheckSameSize(std::string_view what_a, int axis_a, const Expr& a,
                           std::string_view what_b, int axis_b, const Expr& b,
                           const Bounds& bounds);
absl::Status CheckSameShape(std::string_view what_a, const Shape& a, std::string_view what_b,
                            const Shape& b, const Bounds& bounds);

// Infers for one or more operands of equal shape and dtype; the result has the same type.
absl::StatusOr<TensorType> InferSame(TypeSpan inputs, const Bounds& bounds, DTypeClass dtype_class);
template <DTypeClass kClass>
absl::StatusOr<TensorType> InferElementwise(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  return InferSame(inputs, bounds, kClass);
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_INFER_H_
