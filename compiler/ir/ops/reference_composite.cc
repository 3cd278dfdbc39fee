// Composite ops, each written as its definition; none is decomposed into other ops' rounded
// results.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

template <typename Function>
absl::Status Map(absl::Span<const Tensor* const> inputs, Tensor* result, Function function) {
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    for (int64_t i = 0; i < result->elements(); ++i) {
      StoreReal(result, i, function(static_cast<Real>(LoadScalar(*inputs[0], i).f)));
    }
  });
  return absl::OkStatus();
}

// Gelu and Silu are x times a gate that vanishes at -inf faster than x grows. The limit is -0, but
// the formula alone would give NaN.
template <typename Real>
Real GateLimit(Real x, Real product) {
  return std::isinf(x) && x < 0 ? static_cast<Real>(-0.0) : product;
}

// Returns epsilon rounded to the dtype in which the norm is accumulated.
double RoundedEpsilon(const Attrs& attrs, DType dtype) {
  const DType accumulator = AccumulatorOf(dtype);
  return DecodeFloat(accumulator, EncodeFloat(accumulator, GetAttr<double>(attrs, "epsilon")));
}

template <typename Real>
void SoftmaxRow(Real* row, int64_t length, int64_t stride) {
  Real maximum = -std::numeric_limits<Real>::infinity();
  for (int64_t i = 0; i < length; ++i) maximum = std::max(maximum, row[i * stride]);
  Real sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    row[i * stride] = std::exp(row[i * stride] - maximum);
    sum += row[i * stride];
  }
  for (int64_t i = 0; i < length; ++i) row[i * stride] /= sum;
}

// Returns the element strides of a mask over [batch axes..., Lq, Lk]: aligned at the last axis;
// zero if the mask lacks the axis or has one element.
std::vector<int64_t> BroadcastStrides(const Tensor& mask, absl::Span<const int64_t> shape) {
  const std::vector<int64_t> own = Strides(mask.shape);
  const size_t missing = shape.size() - mask.shape.size();
  std::vector<int64_t> strides(shape.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    if (mask.shape[i] != 1) strides[missing + i] = own[i];
  }
  return strides;
}

// Attention's mask: tells whether key j is hidden from query i, and otherwise the value to add to
// their score.
class AttentionMask {
 public:
  AttentionMask(const Tensor* mask, std::vector<int64_t> score_shape, bool causal)
      : mask_(mask), shape_(std::move(score_shape)), causal_(causal) {
    if (mask_ != nullptr) strides_ = BroadcastStrides(*mask_, shape_);
  }

  std::optional<double> Addend(int64_t batch, int64_t i, int64_t j) const {
    const int64_t queries = shape_[shape_.size() - 2];
    const int64_t keys = shape_.back();
    if (causal_ && j > i + keys - queries) return std::nullopt;
    if (mask_ == nullptr) return 0;
    const std::vector<int64_t> at = CoordinatesOf(shape_, (batch * queries + i) * keys + j);
    int64_t position = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) position += at[axis] * strides_[axis];
    const Scalar value = LoadScalar(*mask_, position);
    if (mask_->dtype == DType::kBool) return value.u ? std::optional<double>(0) : std::nullopt;
    const bool hidden = value.f == -std::numeric_limits<double>::infinity();
    return hidden ? std::nullopt : std::optional<double>(value.f);
  }

 private:
  const Tensor* mask_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  bool causal_;
};

// Hidden keys are skipped entirely: neither their scores nor their values are read.
template <typename Real>
void AttendRow(const Real* q, const Real* k, const Real* v, int64_t depth, int64_t value_depth,
               Real scale, const std::vector<std::optional<double>>& addends, Real* out) {
  std::vector<Real> weights;
  std::vector<int64_t> attended;
  for (size_t j = 0; j < addends.size(); ++j) {
    if (!addends[j]) continue;
    Real dot = 0;
    for (int64_t d = 0; d < depth; ++d) dot += q[d] * k[j * depth + d];
    weights.push_back(dot * scale + *addends[j]);
    attended.push_back(j);
  }
  SoftmaxRow(weights.data(), weights.size(), 1);
  for (int64_t d = 0; d < value_depth; ++d) {
    Real sum = 0;
    for (size_t n = 0; n < attended.size(); ++n)
      sum += weights[n] * v[attended[n] * value_depth + d];
    out[d] = sum;
  }
}

// The ids of one bag are those in [first, last).
struct Bag {
  int64_t first, last;
};

absl::Status CheckOffsets(const Tensor& offsets, int64_t ids) {
  int64_t previous = 0;
  for (int64_t i = 0; i < offsets.elements(); ++i) {
    const int64_t offset = LoadIndex(offsets, i);
    std::string must;
    if (i == 0 && offset != 0) {
      must = "must be 0";
    } else if (offset < 0 || offset > ids) {
      must = absl::StrFormat("is outside [0, %d], the number of ids", ids);
    } else if (offset < previous) {
      must = absl::StrFormat("is less than %d before it; offsets must not decrease", previous);
    }
    if (!must.empty()) {
      return absl::OutOfRangeError(
          absl::StrFormat("offset %d at position [%d] of the offsets %s", offset, i, must));
    }
    previous = offset;
  }
  if (ids > 0 && offsets.elements() == 0) {
    return absl::OutOfRangeError(
        absl::StrFormat("there are %d ids but no offsets, so no bag holds them", ids));
  }
  return absl::OkStatus();
}

Bag BagAt(const Tensor& offsets, int64_t bag, int64_t ids) {
  return {LoadIndex(offsets, bag),
          bag + 1 < offsets.elements() ? LoadIndex(offsets, bag + 1) : ids};
}

absl::Status CheckIds(const Tensor& table, const Tensor& ids) {
  for (int64_t i = 0; i < ids.elements(); ++i) {
    const int64_t id = LoadIndex(ids, i);
    if (id >= 0 && id < table.shape[0]) continue;
    return absl::OutOfRangeError(
        absl::StrFormat("id %d at position [%d] of the ids is outside the table, which has %d rows",
                        id, i, table.shape[0]));
  }
  return absl::OkStatus();
}

template <typename Real>
Real ReduceBag(const Tensor& table, const Tensor& ids, Bag bag, int64_t column,
               const std::string& mode) {
  if (bag.first == bag.last) return 0;
  Real sum = 0;
  Real maximum = -std::numeric_limits<Real>::infinity();
  for (int64_t i = bag.first; i < bag.last; ++i) {
    const Real value = LoadScalar(table, LoadIndex(ids, i) * table.shape[1] + column).f;
    sum += value;
    maximum = MaxOfReals(maximum, value);
  }
  if (mode == "max") return maximum;
  return mode == "mean" ? sum / (bag.last - bag.first) : sum;
}

}  // namespace

#define ATHANOR_REFERENCE(name)                                                         \
  absl::Status Reference##name([[maybe_unused]] absl::Span<const Tensor* const> inputs, \
                               [[maybe_unused]] const Attrs& attrs,                     \
                               [[maybe_unused]] const Expr::Env& dims, Tensor* result)

ATHANOR_REFERENCE(Sigmoid) {
  return Map(inputs, result, [](auto x) { return 1 / (1 + std::exp(-x)); });
}

ATHANOR_REFERENCE(Silu) {
  return Map(inputs, result, [](auto x) { return GateLimit(x, x / (1 + std::exp(-x))); });
}

ATHANOR_REFERENCE(Gelu) {
  if (GetAttrOr<std::string>(attrs, "approximate", "none") == "tanh") {
    // Computes x/2 * (1 + tanh(u)) as x / (1 + exp(-2u)), which does not cancel for negative u.
    return Map(inputs, result, [](auto x) {
      using Real = decltype(x);
      const Real two_over_sqrt_pi = 2 * std::numbers::inv_sqrtpi_v<Real>;
      const Real u = two_over_sqrt_pi / std::numbers::sqrt2_v<Real> *
                     (x + static_cast<Real>(0.044715L) * x * x * x);
      return GateLimit(x, x / (1 + std::exp(-2 * u)));
    });
  }
  // Computes x/2 * (1 + erf(x/sqrt(2))) with erfc, which does not cancel.
  return Map(inputs, result, [](auto x) {
    using Real = decltype(x);
    return GateLimit(x, x / 2 * std::erfc(-x / std::numbers::sqrt2_v<Real>));
  });
}

ATHANOR_REFERENCE(Relu) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    Scalar x = LoadScalar(*inputs[0], i);
    if (IsFloat(x.dtype) && x.f <= 0) x.f = 0;  // -0 too
    if (IsSigned(x.dtype) && x.i < 0) x.i = 0;
    StoreScalar(*result, i, x);
  }
  return absl::OkStatus();
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

ATHANOR_REFERENCE(Attention) {
  const absl::Span<const int64_t> q_shape = inputs[0]->shape;
  const absl::Span<const int64_t> v_shape = inputs[2]->shape;
  const size_t rank = q_shape.size();
  const int64_t queries = q_shape[rank - 2], depth = q_shape[rank - 1];
  const int64_t keys = v_shape[rank - 2], value_depth = v_shape[rank - 1];
  const int64_t batches = Product(q_shape.subspan(0, rank - 2));
  std::vector<int64_t> score_shape(q_shape.begin(), q_shape.end());
  score_shape[rank - 1] = keys;
  const AttentionMask mask(inputs.size() > 3 ? inputs[3] : nullptr, score_shape,
                           GetAttrOr<bool>(attrs, "causal", false));
  const auto given_scale = attrs.find("scale");
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    const Real scale = given_scale == attrs.end() ? 1 / std::sqrt(static_cast<Real>(depth))
                                                  : std::get<double>(given_scale->second);
    const std::vector<Real> q = LoadReals<Real>(*inputs[0]);
    const std::vector<Real> k = LoadReals<Real>(*inputs[1]);
    const std::vector<Real> v = LoadReals<Real>(*inputs[2]);
    std::vector<Real> out(result->elements());
    std::vector<std::optional<double>> addends(keys);
    for (int64_t row = 0; row < batches * queries; ++row) {
      const int64_t batch = row / queries;
      for (int64_t j = 0; j < keys; ++j) addends[j] = mask.Addend(batch, row % queries, j);
      AttendRow(q.data() + row * depth, k.data() + batch * keys * depth,
                v.data() + batch * keys * value_depth, depth, value_depth, scale, addends,
                out.data() + row * value_depth);
    }
    StoreReals(out, result);
  });
  return absl::OkStatus();
}

ATHANOR_REFERENCE(EmbeddingBag) {
  const Tensor& table = *inputs[0];
  const Tensor& ids = *inputs[1];
  const Tensor& offsets = *inputs[2];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  if (absl::Status status = CheckIds(table, ids); !status.ok()) return status;
  if (absl::Status status = CheckOffsets(offsets, ids.elements()); !status.ok()) return status;
  const int64_t columns = table.shape[1];
  for (int64_t b = 0; b < offsets.elements(); ++b) {
    const Bag bag = BagAt(offsets, b, ids.elements());
    WithReal(result->dtype, [&](auto zero) {
      for (int64_t column = 0; column < columns; ++column) {
        StoreReal(result, b * columns + column,
                  ReduceBag<decltype(zero)>(table, ids, bag, column, mode));
      }
    });
  }
  return absl::OkStatus();
}

#undef ATHANOR_REFERENCE

}  // namespace athanor
