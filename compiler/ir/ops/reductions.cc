// Reductions: SumReduce, MaxReduce, MulReduce.
#include <algorithm>
#include <limits>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferReduce(const TensorType& input, const Attrs& attrs,
                                       DTypeClass dtype_class) {
  RETURN_IF_ERROR(CheckDType("operand 0", input.dtype, dtype_class));
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  std::vector<bool> reduced(input.shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    RETURN_IF_ERROR(CheckAxis("axes", axes[i], input.shape));
    if (i > 0 && axes[i] <= axes[i - 1]) {
      return Invalid("axes holds ", axes[i], " after ", axes[i - 1],
                     "; axes must be listed once each, in ascending order");
    }
    reduced[axes[i]] = true;
  }
  TensorType result{input.dtype, {}};
  for (size_t i = 0; i < input.shape.size(); ++i) {
    if (!reduced[i]) result.shape.push_back(input.shape[i]);
  }
  return result;
}

absl::StatusOr<TensorType> InferSumReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kNumeric);
}

absl::StatusOr<TensorType> InferMaxReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kComputing);
}

absl::StatusOr<TensorType> InferMulReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kNumeric);
}

// Returns strides over operand axes that lead to the result element into which an operand element
// is reduced: zero for reduced axes.
std::vector<int64_t> ResultStrides(absl::Span<const int64_t> shape,
                                   absl::Span<const int64_t> reduced) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int64_t axis : reduced) strides[axis] = 0;
  int64_t next = 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    if (strides[i] == 0) continue;
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

template <typename Value, typename Function>
std::vector<Value> Fold(const Tensor& operand, const std::vector<Value>& values,
                        absl::Span<const int64_t> reduced, int64_t result_elements, Value initial,
                        Function function) {
  const std::vector<int64_t> strides = ResultStrides(operand.shape, reduced);
  std::vector<Value> result(result_elements, initial);
  ForEachOffset(operand.shape, strides, [&](int64_t position, int64_t target) {
    result[target] = function(result[target], values[position]);
  });
  return result;
}

// Reduces with an operation on floats and on bit patterns of integers; `initial` is its identity.
template <typename Function>
void Accumulate(const Tensor& operand, const Attrs& attrs, int initial, Function function,
                Tensor* result) {
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(Fold(operand, LoadBitPatterns(operand), axes, result->elements(),
                          static_cast<uint64_t>(initial), function),
                     result);
    return;
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(Fold(operand, LoadReals<Real>(operand), axes, result->elements(),
                    static_cast<Real>(initial), function),
               result);
  });
}

absl::Status ReferenceSumReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  Accumulate(*inputs[0], attrs, 0, [](auto sum, auto value) { return sum + value; }, result);
  return absl::OkStatus();
}

absl::Status ReferenceMulReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  Accumulate(
      *inputs[0], attrs, 1, [](auto product, auto value) { return product * value; }, result);
  return absl::OkStatus();
}

absl::Status ReferenceMaxReduce(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                const Expr::Env& dims, Tensor* result) {
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  const int64_t elements = result->elements();
  if (IsFloat(result->dtype)) {
    StoreReals(Fold(*inputs[0], LoadReals<double>(*inputs[0]), axes, elements,
                    -std::numeric_limits<double>::infinity(), MaxOfReals<double>),
               result);
    return absl::OkStatus();
  }
  const bool is_signed = IsSigned(result->dtype);
  const int unused = 64 - 8 * DTypeBytes(result->dtype);
  const int64_t minimum = std::numeric_limits<int64_t>::min() >> unused;
  const auto maximum = [is_signed](uint64_t a, uint64_t b) {
    if (!is_signed) return std::max(a, b);
    return static_cast<uint64_t>(std::max(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  };
  StoreBitPatterns(Fold(*inputs[0], LoadBitPatterns(*inputs[0]), axes, elements,
                        is_signed ? static_cast<uint64_t>(minimum) : uint64_t{0}, maximum),
                   result);
  return absl::OkStatus();
}

ValueFacts SumValues(const ValueQuery& query) {
  return Derived({.nonnegative = query.operands[0].nonnegative,
                  .magnitude = MagnitudeOfSum(query.operands[0].magnitude, query.terms)},
                 query);
}

}  // namespace

void AddReductions(Rows* rows) {
  const AttrSpec axes =
      Required("axes", AttrType::kInts, "the axes to remove, ascending, each at most once");
  ATHANOR_ROW(
      SumReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferSumReduce, 0,
      "The sum over `axes`, which leave the shape; 0 where they are empty. Integers wrap; "
      "f16 and bf16 accumulate in f32 and round once; f32 in f32, f64 in f64, in any order. "
      "No axes: the operand. To count bools, Cast them to an integer first.",
      .errors = ErrorRule::kSum, .rows = {.mixes = "sums across"}, .values = SumValues);
  ATHANOR_ROW(MaxReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferMaxReduce, 0,
              "The maximum over `axes`, which leave the shape, by the order of Max: any NaN gives "
              "NaN. Where they are empty: -inf, the integer minimum (0 for unsigned), false. No "
              "axes: the operand.",
              .rounding = Rounding::kChooses, .errors = ErrorRule::kLargest,
              .rows = {.mixes = "takes the maximum across"});
  ATHANOR_ROW(MulReduce, kReduction, 1, 1, ATHANOR_ATTRS(axes), InferMulReduce, 0,
              "The product over `axes`, which leave the shape; 1 where they are empty. Integers "
              "wrap; f16 and bf16 accumulate in f32 and round once; f32 in f32, f64 in f64, in any "
              "order: a product of some elements that leaves the range may make the result 0, "
              "infinite or NaN where another order's does not. No axes: the operand. For bool use "
              "Not of MaxReduce of Not.",
              .errors = ErrorRule::kProduct, .rows = {.mixes = "multiplies across"},
              .values = NonNegativeAsOperand);
}

}  // namespace athanor
