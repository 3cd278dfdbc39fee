// Ops of transformer models besides attention: Rotary, Dequantize.
#include <algorithm>
#include <vector>

#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

// Returns the element strides of cos and sin over x's leading axes and L: aligned at the last axis;
// zero if they have one element.
std::vector<int64_t> AngleStrides(const Tensor& cos, size_t rank) {
  const std::vector<int64_t> own = Strides(cos.shape);
  const size_t missing = rank - cos.shape.size();
  std::vector<int64_t> strides(rank, 0);
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    if (cos.shape[i] != 1 || i + 2 == own.size()) strides[missing + i] = own[i];
  }
  return strides;
}

// Returns element `index` of a row that packs elements of `bits` bits into integers, lowest first.
int64_t Unpacked(const Tensor& packed, int64_t row, int64_t index, int64_t bits) {
  const int64_t per = 8 * DTypeBytes(packed.dtype) / bits;
  const Scalar whole = LoadScalar(packed, row + index / per);
  if (per == 1) return IsSigned(packed.dtype) ? whole.i : static_cast<int64_t>(whole.u);
  const uint64_t code = whole.u >> (index % per * bits) & ((uint64_t{1} << bits) - 1);
  const bool negative = IsSigned(packed.dtype) && (code >> (bits - 1)) != 0;
  return static_cast<int64_t>(code) - (negative ? int64_t{1} << bits : 0);
}

int64_t LoadInteger(const Tensor& t, int64_t i) {
  const Scalar s = LoadScalar(t, i);
  return IsSigned(t.dtype) ? s.i : static_cast<int64_t>(s.u);
}

}  // namespace

absl::Status ReferenceRotary(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                             const Expr::Env& dims, Tensor* result) {
  const Tensor &x = *inputs[0], &cos = *inputs[1], &sin = *inputs[2];
  const bool interleaved = GetAttrOr<bool>(attrs, "interleaved", false);
  const int64_t half = cos.shape.back(), width = x.shape.back();
  const std::vector<int64_t> strides = AngleStrides(cos, x.shape.size());
  std::vector<int64_t> rows = x.shape;
  rows.back() = 1;
  result->bytes = x.bytes;
  WithReal(x.dtype, [&](auto zero) {
    using Real = decltype(zero);
    ForEachElement(rows, [&](int64_t row, const std::vector<int64_t>& at) {
      int64_t angles = 0;
      for (size_t i = 0; i < at.size(); ++i) angles += at[i] * strides[i];
      for (int64_t i = 0; i < half; ++i) {
        const int64_t a = row * width + (interleaved ? 2 * i : i), b = a + (interleaved ? 1 : half);
        const Real c = LoadScalar(cos, angles + i).f, s = LoadScalar(sin, angles + i).f;
        const Real first = LoadScalar(x, a).f, second = LoadScalar(x, b).f;
        StoreReal(result, a, first * c - second * s);
        StoreReal(result, b, second * c + first * s);
      }
    });
  });
  return absl::OkStatus();
}

absl::Status ReferenceDequantize(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                 const Expr::Env& dims, Tensor* result) {
  const Tensor &packed = *inputs[0], &scale = *inputs[1];
  const int64_t bits = GetAttrOr<int64_t>(attrs, "bits", 8 * DTypeBytes(packed.dtype));
  const int64_t axis = GetAttrOr<int64_t>(attrs, "axis", 0);
  const int64_t block = GetAttrOr<int64_t>(attrs, "block", 0);
  const std::vector<int64_t> strides = Strides(scale.shape);
  const bool scalar = result->shape.empty();
  const int64_t stored = scalar ? 1 : packed.shape.back();
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    ForEachElement(result->shape, [&](int64_t i, const std::vector<int64_t>& at) {
      int64_t place = 0;  // position of the scale
      for (size_t a = 0; a < scale.shape.size(); ++a) {
        const bool counted = block > 0 && static_cast<int64_t>(a) == axis;
        place += (block == 0 ? at[axis] : counted ? at[a] / block : at[a]) * strides[a];
      }
      const int64_t row = scalar ? 0 : i / result->shape.back() * stored;
      int64_t value = Unpacked(packed, row, scalar ? 0 : at.back(), bits);
      if (inputs.size() > 2) value -= LoadInteger(*inputs[2], place);
      StoreReal(result, i,
                static_cast<Real>(value) * static_cast<Real>(LoadScalar(scale, place).f));
    });
  });
  return absl::OkStatus();
}

}  // namespace athanor
