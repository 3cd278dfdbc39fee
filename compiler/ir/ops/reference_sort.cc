// Ops that order or accumulate along one axis: Sort, TopK, Cumulate.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

// Order of Sort: NaN is above all numbers and equal to NaN.
bool Before(const Scalar& a, const Scalar& b) {
  if (IsFloat(a.dtype)) return std::isnan(a.f) ? false : std::isnan(b.f) || a.f < b.f;
  return IsSigned(a.dtype) ? a.i < b.i : a.u < b.u;
}

// Calls row(operand_start, result_start, stride) for each row along `axis`: the index of its first
// element in the operand, that in a result of `length` along the axis, and the distance of
// neighbours.
template <typename Row>
void ForEachRow(const Tensor& x, int64_t axis, int64_t length, Row row) {
  const absl::Span<const int64_t> shape = x.shape;
  const int64_t inner = Product(shape.subspan(axis + 1));
  const int64_t outer = Product(shape.subspan(0, axis));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      row(o * shape[axis] * inner + i, o * length * inner + i, inner);
    }
  }
}

// Writes the first elements of each row's order, as many as the result has along the axis.
void FirstInOrder(const Tensor& x, int64_t axis, bool descending, Tensor* result) {
  const int64_t length = x.shape[axis], wanted = result->shape[axis];
  ForEachRow(x, axis, wanted, [&](int64_t from, int64_t to, int64_t step) {
    std::vector<Scalar> values;
    for (int64_t i = 0; i < length; ++i) values.push_back(LoadScalar(x, from + i * step));
    std::vector<int64_t> order(length);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const Scalar &first = values[descending ? b : a], &second = values[descending ? a : b];
      return Before(first, second) || (!Before(second, first) && a < b);
    });
    for (int64_t i = 0; i < wanted; ++i) result->data<int64_t>()[to + i * step] = order[i];
  });
}

template <typename Value>
std::vector<Value> Cumulated(const Tensor& x, std::vector<Value> values, const Attrs& attrs) {
  const bool add = GetAttr<std::string>(attrs, "op") == "add";
  const bool exclusive = GetAttrOr<bool>(attrs, "exclusive", false);
  const bool reverse = GetAttrOr<bool>(attrs, "reverse", false);
  const int64_t axis = GetAttr<int64_t>(attrs, "axis"), length = x.shape[axis];
  ForEachRow(x, axis, length, [&](int64_t first, int64_t, int64_t step) {
    Value so_far = static_cast<Value>(add ? 0 : 1);
    for (int64_t i = 0; i < length; ++i) {
      Value& at = values[first + (reverse ? length - 1 - i : i) * step];
      const Value own = at;
      if (exclusive) at = so_far;
      so_far = add ? so_far + own : so_far * own;
      if (!exclusive) at = so_far;
    }
  });
  return values;
}

}  // namespace

absl::Status ReferenceSort(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  FirstInOrder(*inputs[0], GetAttr<int64_t>(attrs, "axis"),
               GetAttrOr<bool>(attrs, "descending", false), result);
  return absl::OkStatus();
}

absl::Status ReferenceTopK(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  FirstInOrder(*inputs[0], GetAttr<int64_t>(attrs, "axis"), GetAttrOr<bool>(attrs, "largest", true),
               result);
  return absl::OkStatus();
}

absl::Status ReferenceCumulate(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                               const Expr::Env& dims, Tensor* result) {
  const Tensor& x = *inputs[0];
  if (!IsFloat(x.dtype)) {
    StoreBitPatterns(Cumulated(x, LoadBitPatterns(x), attrs), result);
    return absl::OkStatus();
  }
  WithReal(x.dtype, [&](auto zero) {
    StoreReals(Cumulated(x, LoadReals<decltype(zero)>(x), attrs), result);
  });
  return absl::OkStatus();
}

}  // namespace athanor
