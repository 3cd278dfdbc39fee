// Normalisation: Softmax, LayerNorm, RmsNorm.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckEpsilon(const Attrs& attrs) {
  const double epsilon = GetAttr<double>(attrs, "epsilon");
  if (std::isfinite(epsilon) && epsilon >= 0) return absl::OkStatus();
  return Invalid("epsilon=", epsilon, " must be finite and not negative");
}

// x has rank 1 or more; `scale` and `bias` are vectors of the size of x's last axis.
absl::StatusOr<TensorType> InferNorm(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  static constexpr std::string_view kNames[] = {"x, operand 0,", "scale, operand 1,",
                                                "bias, operand 2,"};
  const TensorType& x = inputs[0];
  absl::Status s = CheckEpsilon(attrs);
  if (s.ok()) s = CheckDType(kNames[0], x.dtype, DTypeClass::kFloats);
  if (s.ok() && x.shape.empty())
    s = Invalid(kNames[0], " has rank 0; it needs an axis to normalise");
  for (size_t i = 1; i < inputs.size() && s.ok(); ++i) {
    s = CheckSameDType(kNames[0], x.dtype, kNames[i], inputs[i].dtype);
    if (s.ok()) s = CheckRank(kNames[i], inputs[i].shape, 1);
    if (s.ok()) {
      s = CheckSameSize(kNames[0], static_cast<int>(x.shape.size()) - 1, x.shape.back(), kNames[i],
                        0, inputs[i].shape[0], bounds);
    }
  }
  if (!s.ok()) return s;
  return x;
}

absl::StatusOr<TensorType> InferSoftmax(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  RETURN_IF_ERROR(CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), inputs[0].shape));
  return InferSame(inputs, bounds, DTypeClass::kFloats);
}

absl::StatusOr<TensorType> InferLayerNorm(TypeSpan inputs, const Attrs& attrs,
                                          const Bounds& bounds) {
  return InferNorm(inputs, attrs, bounds);
}

absl::StatusOr<TensorType> InferRmsNorm(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  return InferNorm(inputs, attrs, bounds);
}

// Returns epsilon rounded to the dtype in which the norm is accumulated.
double RoundedEpsilon(const Attrs& attrs, DType dtype) {
  const DType accumulator = AccumulatorOf(dtype);
  return DecodeFloat(accumulator, EncodeFloat(accumulator, GetAttr<double>(attrs, "epsilon")));
}

ATHANOR_REFERENCE(Softmax) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const absl::Span<const int64_t> shape = result->shape;
  const int64_t inner = Product(shape.subspan(axis + 1));
  const int64_t outer = Product(shape.subspan(0, axis));
  const int64_t length = shape[axis];
  if (length == 0) return absl::OkStatus();
  WithReal(result->dtype, [&](auto zero) {
    auto values = LoadReals<decltype(zero)>(*inputs[0]);
    for (int64_t row = 0; row < outer * inner; ++row) {
      SoftmaxRow(values.data() + row / inner * length * inner + row % inner, length, inner);
    }
    StoreReals(values, result);
  });
  return absl::OkStatus();
}

ATHANOR_REFERENCE(LayerNorm) {
  const int64_t length = result->shape.back();
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real epsilon = RoundedEpsilon(attrs, result->dtype);
    std::vector<Real> x = LoadReals<Real>(*inputs[0]);
    const std::vector<Real> scale = LoadReals<Real>(*inputs[1]);
    const std::vector<Real> bias = LoadReals<Real>(*inputs[2]);
    for (Real* row = x.data(); row < x.data() + x.size(); row += length) {
      Real mean = 0;
      for (int64_t i = 0; i < length; ++i) mean += row[i];
      mean /= length;
      // In a pass of its own: the mean of the squares less the square of the mean would cancel.
      Real variance = 0;
      for (int64_t i = 0; i < length; ++i) variance += (row[i] - mean) * (row[i] - mean);
      variance /= length;
      for (int64_t i = 0; i < length; ++i) {
        row[i] = (row[i] - mean) / std::sqrt(variance + epsilon) * scale[i] + bias[i];
      }
    }
    StoreReals(x, result);
  });
  return absl::OkStatus();
}

ATHANOR_REFERENCE(RmsNorm) {
  const int64_t length = result->shape.back();
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real epsilon = RoundedEpsilon(attrs, result->dtype);
    std::vector<Real> x = LoadReals<Real>(*inputs[0]);
    const std::vector<Real> scale = LoadReals<Real>(*inputs[1]);
    for (Real* row = x.data(); row < x.data() + x.size(); row += length) {
      Real mean_square = 0;
      for (int64_t i = 0; i < length; ++i) mean_square += row[i] * row[i];
      mean_square /= length;
      for (int64_t i = 0; i < length; ++i) {
        row[i] = row[i] / std::sqrt(mean_square + epsilon) * scale[i];
      }
    }
    StoreReals(x, result);
  });
  return absl::OkStatus();
}

// Mixes the last axis of each operand, which for scale and bias is the only one.
AxisFlow NormFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  for (std::vector<int>& axes : flow) axes.back() = kMixed;
  return flow;
}

}  // namespace

void AddNorms(Rows* rows) {
  const AttrSpec epsilon =
      Required("epsilon", AttrType::kFloat, "added under the root; finite, not negative");
  ATHANOR_ROW(
      Softmax, kComposite, 1, 1,
      ATHANOR_ATTRS(Required("axis", AttrType::kInt, "the axis that sums to 1")), InferSoftmax, 4,
      "exp(x - m) / sum(exp(x - m)) along `axis`, m its maximum. f16 and bf16 compute in "
      "f32 and round once. A row that holds NaN or +inf, or -inf only, is NaN throughout, "
      "as the definition gives; -inf beside finite values gives 0. An empty axis gives an "
      "empty result.",
      .linear = true, .rows = {AcrossAxisFlow, "normalises across"}, .sample = SampleAlongAxis);
  ATHANOR_ROW(
      LayerNorm, kComposite, 3, 3, ATHANOR_ATTRS(epsilon), InferLayerNorm, 4,
      "Operands x, scale, bias; over the last axis: (x - mean) / sqrt(variance + epsilon) * "
      "scale + bias, with variance = mean((x - mean)^2), not that of a sample. f16 and "
      "bf16 compute in f32 and round once. epsilon is rounded to the accumulator's dtype.",
      .linear = true, .roles = {OperandRole::kNone, OperandRole::kFactor, OperandRole::kTerm},
      .rows = {NormFlow, "normalises across"}, .sample = SampleAlongLast);
  ATHANOR_ROW(RmsNorm, kComposite, 2, 2, ATHANOR_ATTRS(epsilon), InferRmsNorm, 4,
              "Operands x, scale; over the last axis: x / sqrt(mean(x^2) + epsilon) * scale. "
              "Accumulation and epsilon as LayerNorm.",
              .linear = true, .roles = {OperandRole::kNone, OperandRole::kFactor},
              .rows = {NormFlow, "normalises across"}, .sample = SampleAlongLast);
}

}  // namespace athanor
