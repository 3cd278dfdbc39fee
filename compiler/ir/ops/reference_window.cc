// Conv and Pool: loops over the elements of each result element's window.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/ops/window.h"

namespace athanor {
namespace {

// Elements outside x are 0 and are multiplied too, so 0 * inf is NaN.
template <typename Value>
std::vector<Value> Convolved(const Tensor& x, const Tensor& w, const Tensor& result,
                             const WindowPlaces& places, int64_t group,
                             const std::vector<Value>& xs, const std::vector<Value>& ws) {
  const absl::Span<const int64_t> sizes = absl::MakeConstSpan(x.shape).subspan(2);
  const int64_t block = Product(sizes), channels = w.shape[1], taps = Product(places.kernel);
  std::vector<Value> values(result.elements());
  ForEachElement(result.shape, [&](int64_t position, const std::vector<int64_t>& at) {
    const std::vector<int64_t> offsets = places.Offsets(sizes, absl::MakeConstSpan(at).subspan(2));
    const int64_t first = at[1] / (w.shape[0] / group) * channels;
    const Value* weight = ws.data() + at[1] * channels * taps;
    Value sum = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const Value* of_channel = xs.data() + (at[0] * x.shape[1] + first + c) * block;
      for (const int64_t offset : offsets) {
        sum += (offset < 0 ? Value(0) : of_channel[offset]) * *weight++;
      }
    }
    values[position] = sum;
  });
  return values;
}

// Computes fold(the window's elements in x, the number of positions that count) for each element of
// the result.
template <typename Value, typename Fold>
std::vector<Value> Pooled(const Tensor& x, const Tensor& result, const WindowPlaces& places,
                          const std::vector<Value>& xs, Fold fold) {
  const absl::Span<const int64_t> sizes = absl::MakeConstSpan(x.shape).subspan(2);
  const int64_t block = Product(sizes);
  std::vector<Value> values(result.elements());
  ForEachElement(result.shape, [&](int64_t position, const std::vector<int64_t>& at) {
    const absl::Span<const int64_t> out = absl::MakeConstSpan(at).subspan(2);
    std::vector<Value> window;
    for (const int64_t offset : places.Inside(sizes, out)) {
      window.push_back(xs[(at[0] * x.shape[1] + at[1]) * block + offset]);
    }
    values[position] = fold(window, places.Count(sizes, out));
  });
  return values;
}

template <typename Value>
Value SumOf(const std::vector<Value>& window) {
  Value sum = 0;
  for (const Value& value : window) sum += value;
  return sum;
}

void PoolIntegers(const Tensor& x, const std::string& mode, const WindowPlaces& places,
                  Tensor* result) {
  const bool is_signed = IsSigned(x.dtype);
  const auto below = [is_signed](uint64_t a, uint64_t b) {
    return is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  };
  const auto fold = [&](const std::vector<uint64_t>& window, int64_t) {
    if (mode == "sum") return SumOf(window);
    uint64_t maximum = LowestScalar(x.dtype).u;
    for (uint64_t value : window) maximum = std::max(maximum, value, below);
    return maximum;
  };
  StoreBitPatterns(Pooled(x, *result, places, LoadBitPatterns(x), fold), result);
}

template <typename Real>
void PoolReals(const Tensor& x, const std::string& mode, const WindowPlaces& places,
               Tensor* result) {
  const auto fold = [&](const std::vector<Real>& window, int64_t count) {
    if (mode == "sum") return SumOf(window);
    if (mode == "mean") {
      return count == 0 ? std::numeric_limits<Real>::quiet_NaN() : SumOf(window) / count;
    }
    Real maximum = -std::numeric_limits<Real>::infinity();
    for (const Real& value : window) maximum = MaxOfReals(maximum, value);
    return maximum;
  };
  StoreReals(Pooled(x, *result, places, LoadReals<Real>(x), fold), result);
}

}  // namespace

absl::Status ReferenceConv(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const Tensor &x = *inputs[0], &w = *inputs[1];
  const int64_t group = GetAttrOr<int64_t>(attrs, "group", 1);
  absl::StatusOr<WindowPlaces> places =
      WindowPlaces::Of(attrs, {w.shape.begin() + 2, w.shape.end()}, dims);
  if (!places.ok()) return places.status();
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(
        Convolved(x, w, *result, *places, group, LoadBitPatterns(x), LoadBitPatterns(w)), result);
    return absl::OkStatus();
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(Convolved(x, w, *result, *places, group, LoadReals<Real>(x), LoadReals<Real>(w)),
               result);
  });
  return absl::OkStatus();
}

absl::Status ReferencePool(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const Tensor& x = *inputs[0];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  absl::StatusOr<WindowPlaces> places =
      WindowPlaces::Of(attrs, GetAttr<std::vector<int64_t>>(attrs, "kernel"), dims);
  if (!places.ok()) return places.status();
  if (!IsFloat(x.dtype)) {
    PoolIntegers(x, mode, *places, result);
    return absl::OkStatus();
  }
  WithReal(x.dtype, [&](auto zero) { PoolReals<decltype(zero)>(x, mode, *places, result); });
  return absl::OkStatus();
}

}  // namespace athanor
