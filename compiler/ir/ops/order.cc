// Ops that run along an axis: Sort, TopK, Cumulate.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Highest rank for Cumulate: its decomposition adds an axis, to pair the axis with itself.
constexpr size_t kMostAxes = 15;

absl::Status CheckAxisOf(const TensorType& x, const Attrs& attrs) {
  return CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), x.shape);
}

absl::Status CheckRankOf(const TensorType& x) {
  if (x.shape.size() <= kMostAxes) return absl::OkStatus();
  return Invalid("operand 0 has rank ", x.shape.size(), "; it must be at most ", kMostAxes);
}

absl::StatusOr<TensorType> InferSort(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kComputing);
  if (s.ok()) s = CheckAxisOf(inputs[0], attrs);
  if (!s.ok()) return s;
  return TensorType{DType::kI64, inputs[0].shape};
}

absl::StatusOr<TensorType> InferTopK(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  absl::StatusOr<TensorType> type = InferSort(inputs, attrs, bounds);
  if (!type.ok()) return type;
  const Shape& k = GetAttr<Shape>(attrs, "k");
  if (k.size() != 1) return Invalid("k holds ", k.size(), " sizes; it must hold one");
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  Expr& size = type->shape[axis];
  if (!bounds.NonNegative(size - k[0])) {
    return Invalid("k=", k[0].ToString(), " is not provably at most ", size.ToString(),
                   ", the size of axis ", axis, ": give a smaller k, or tighten the dims' bounds");
  }
  size = k[0];
  return type;
}

absl::StatusOr<TensorType> InferCumulate(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const std::string& op = GetAttr<std::string>(attrs, "op");
  if (op != "add" && op != "mul") {
    return Invalid("op=", Quoted(op), " must be \"add\" or \"mul\"");
  }
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckAxisOf(inputs[0], attrs);
  if (s.ok()) s = CheckRankOf(inputs[0]);
  if (!s.ok()) return s;
  return inputs[0];
}

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
    // Equal elements stay in the order of their positions, when descending too.
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

}  // namespace

void AddOrder(Rows* rows) {
  const AttrSpec axis = Required("axis", AttrType::kInt, "the axis along which it runs");
  ATHANOR_ROW(
      Sort, kMovement, 1, 1,
      ATHANOR_ATTRS(axis,
                    Optional("descending", AttrType::kBool, "the largest first", AttrValue(false))),
      InferSort, 0,
      "Positions along `axis`, i64, in the order of their elements; equal elements in the "
      "order of their positions, either way. NaN is above all numbers and equal to NaN: "
      "last, or with `descending` first. -0 and +0 are equal, false is below true. An empty "
      "axis gives an empty result.",
      .form = OpForm::kOrder, .rounding = Rounding::kKeeps, .errors = ErrorRule::kOrder,
      .rows = {AcrossAxisFlow, "sorts across"}, .sample = SampleAlongAxis);
  ATHANOR_ROW(
      TopK, kComposite, 1, 1,
      ATHANOR_ATTRS(
          axis,
          Required("k", AttrType::kShape, "one size: how many; provably at most that of the axis"),
          Optional("largest", AttrType::kBool, "the largest, not the smallest", AttrValue(true))),
      InferTopK, 0,
      "The first k positions, i64, of Sort along `axis`, descending for `largest`: of equal "
      "elements those of the lowest positions, and NaN before every number for `largest`, "
      "after them else.",
      .form = OpForm::kOrder, .rounding = Rounding::kKeeps, .linear = true,
      .rows = {AcrossAxisFlow, "selects across"}, .sample = SampleAlongAxis);
  ATHANOR_ROW(
      Cumulate, kComposite, 1, 1,
      ATHANOR_ATTRS(
          axis, Required("op", AttrType::kString, "\"add\" or \"mul\""),
          Optional("exclusive", AttrType::kBool, "without the element itself", AttrValue(false)),
          Optional("reverse", AttrType::kBool, "from the last to the first", AttrValue(false))),
      InferCumulate, 0,
      "Each element becomes the sum or product of the elements up to it along `axis`; with "
      "`exclusive` of those before it, of none 0 or 1. Only what it includes has influence. "
      "Integers wrap; f16 and bf16 accumulate in f32 and round each result once; f32 in "
      "f32, f64 in f64, in any order, as SumReduce and MulReduce.",
      .rows = {AcrossAxisFlow, "accumulates across"}, .values = NonNegativeAsOperand,
      .sample = SampleAlongAxis);
}

}  // namespace athanor
