// Activations: Sigmoid, Gelu, Silu, Relu.
#include <cmath>
#include <numbers>
#include <string>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferGelu(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const std::string approximate = GetAttrOr<std::string>(attrs, "approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return Invalid("approximate=", Quoted(approximate), " must be \"none\" or \"tanh\"");
  }
  return InferSame(inputs, bounds, DTypeClass::kFloats);
}

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

ATHANOR_REFERENCE(Sigmoid) {
  return Map(inputs, result, [](auto x) { return 1 / (1 + std::exp(-x)); });
}

ATHANOR_REFERENCE(Silu) {
  return Map(inputs, result, [](auto x) { return GateLimit(x, x / (1 + std::exp(-x))); });
}

ATHANOR_REFERENCE(Gelu) {
  if (GetAttrOr<std::string>(attrs, "approximate", "none") == "tanh") {
    // x/2 * (1 + tanh(u)) as x / (1 + exp(-2u)), which does not cancel for negative u.
    return Map(inputs, result, [](auto x) {
      using Real = decltype(x);
      const Real two_over_sqrt_pi = 2 * std::numbers::inv_sqrtpi_v<Real>;
      const Real u = two_over_sqrt_pi / std::numbers::sqrt2_v<Real> *
                     (x + static_cast<Real>(0.044715L) * x * x * x);
      return GateLimit(x, x / (1 + std::exp(-2 * u)));
    });
  }
  // x/2 * (1 + erf(x/sqrt(2))), which does not cancel when written with erfc.
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

}  // namespace

void AddActivations(Rows* rows) {
  ATHANOR_ROW(Sigmoid, kComposite, 1, 1, {}, InferElementwise<C::kFloats>, 4,
              "1 / (1 + exp(-x)). -inf gives 0, +inf gives 1, NaN gives NaN.", .linear = true,
              .rows = {AlikeFlow}, .sample = SampleElementwise);
  ATHANOR_ROW(Gelu, kComposite, 1, 1,
              ATHANOR_ATTRS(Optional("approximate", AttrType::kString, "\"none\" or \"tanh\"",
                                     AttrValue(std::string("none")))),
              InferGelu, 8,
              "none: x * (1 + erf(x / sqrt(2))) / 2. tanh: x * (1 + tanh(sqrt(2 / pi) * (x + "
              "0.044715 * x^3))) / 2. -inf gives -0, +inf gives +inf, NaN gives NaN. Where the "
              "result is smaller than the operand the error bound is in units of the operand's "
              "last place.",
              .linear = true, .rows = {AlikeFlow}, .sample = SampleElementwise);
  ATHANOR_ROW(Silu, kComposite, 1, 1, {}, InferElementwise<C::kFloats>, 4,
              "x / (1 + exp(-x)). -inf gives -0, +inf gives +inf, NaN gives NaN.", .linear = true,
              .rows = {AlikeFlow}, .sample = SampleElementwise);
  ATHANOR_ROW(
      Relu, kComposite, 1, 1, {}, InferElementwise<C::kNumeric>, 0,
      "Max(x, 0): NaN gives NaN, -0 gives a zero of either sign. Integers too; unsigned ones "
      "stay themselves.",
      .rounding = Rounding::kChooses, .linear = true, .rows = {AlikeFlow},
      .sample = SampleElementwise);
}

}  // namespace athanor
