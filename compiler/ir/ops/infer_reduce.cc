// Inference of ops that sum or reduce: reductions, Contract, softmax, norms, attention.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferReduce(const TensorType& input, const Attrs& attrs,
                                       DTypeClass dtype_class) {
  if (absl::Status s = CheckDType("operand 0", input.dtype, dtype_class); !s.ok()) return s;
  const auto& axes = GetAttr<std::vector<int64_t>>(attrs, "axes");
  std::vector<bool> reduced(input.shape.size(), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (absl::Status s = CheckAxis("axes", axes[i], input.shape); !s.ok()) return s;
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

absl::Status CheckLetters(std::string_view what, const std::string& letters, const Shape& shape) {
  if (letters.size() == shape.size()) return absl::OkStatus();
  return Invalid("spec gives ", what, " the axes ", Quoted(letters), ", but it has shape ",
                 ShapeToString(shape), "; it needs one letter per axis");
}

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

absl::Status CheckLeading(std::string_view what_a, const Shape& a, std::string_view what_b,
                          const Shape& b, const Bounds& bounds) {
  const int rank = static_cast<int>(a.size());
  if (absl::Status s = CheckRank(what_b, b, rank); !s.ok()) return s;
  for (int i = 0; i + 2 < rank; ++i) {
    absl::Status s = CheckSameSize(what_a, i, a[i], what_b, i, b[i], bounds);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const TensorType& mask, const TensorType& q, const Expr& keys,
                       const Bounds& bounds) {
  constexpr std::string_view kMask = "mask, operand 3,";
  if (mask.dtype != DType::kBool && mask.dtype != q.dtype) {
    return Invalid(kMask, " has dtype ", DTypeName(mask.dtype),
                   " and must be bool or that of q: "
                   "convert it with Cast(dtype=bool) or Cast(dtype=",
                   DTypeName(q.dtype), ")");
  }
  const int rank = static_cast<int>(mask.shape.size());
  const int full = static_cast<int>(q.shape.size());
  if (rank != 2 && rank != full) {
    return Invalid(kMask, " has shape ", ShapeToString(mask.shape), "; its rank must be 2 or ",
                   full, ", that of q");
  }
  for (int i = 0; i + 2 < rank; ++i) {
    if (mask.shape[i].IsConstant(1)) continue;
    absl::Status s = CheckSameSize("q", i, q.shape[i], kMask, i, mask.shape[i], bounds);
    if (!s.ok()) return s;
  }
  absl::Status s = CheckSameSize("q", full - 2, q.shape[full - 2], kMask, rank - 2,
                                 mask.shape[rank - 2], bounds);
  if (s.ok()) s = CheckSameSize("k", full - 2, keys, kMask, rank - 1, mask.shape[rank - 1], bounds);
  return s;
}

}  // namespace

absl::StatusOr<TensorType> InferSumReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kNumeric);
}

absl::StatusOr<TensorType> InferMaxReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kComputing);
}

absl::StatusOr<TensorType> InferMulReduce(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return InferReduce(inputs[0], attrs, DTypeClass::kNumeric);
}

absl::StatusOr<TensorType> InferContract(TypeSpan inputs, const Attrs& attrs,
                                         const Bounds& bounds) {
  absl::StatusOr<ContractSpec> spec = ContractSpec::Parse(GetAttr<std::string>(attrs, "spec"));
  if (!spec.ok()) return spec.status();
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckSameDType("operand 0", inputs[0].dtype, "operand 1", inputs[1].dtype);
  if (s.ok()) s = CheckLetters("operand 0", spec->lhs, inputs[0].shape);
  if (s.ok()) s = CheckLetters("operand 1", spec->rhs, inputs[1].shape);
  if (!s.ok()) return s;
  std::map<char, Expr> sizes;
  for (size_t i = 0; i < spec->lhs.size(); ++i) sizes[spec->lhs[i]] = inputs[0].shape[i];
  for (size_t i = 0; i < spec->rhs.size(); ++i) {
    const Expr& size = inputs[1].shape[i];
    auto [it, fresh] = sizes.emplace(spec->rhs[i], size);
    if (fresh) continue;
    s = CheckSameSize("operand 0", static_cast<int>(spec->lhs.find(spec->rhs[i])), it->second,
                      "operand 1", static_cast<int>(i), size, bounds);
    if (!s.ok()) return Prefixed(Cat("letter ", std::string(1, spec->rhs[i]), ": "), s);
  }
  TensorType result{inputs[0].dtype, {}};
  for (char letter : spec->result) result.shape.push_back(sizes[letter]);
  return result;
}

absl::StatusOr<TensorType> InferGelu(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const std::string approximate = GetAttrOr<std::string>(attrs, "approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    return Invalid("approximate=", Quoted(approximate), " must be \"none\" or \"tanh\"");
  }
  return InferSame(inputs, bounds, DTypeClass::kFloats);
}

absl::StatusOr<TensorType> InferSoftmax(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  if (absl::Status s = CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), inputs[0].shape);
      !s.ok()) {
    return s;
  }
  return InferSame(inputs, bounds, DTypeClass::kFloats);
}

absl::StatusOr<TensorType> InferLayerNorm(TypeSpan inputs, const Attrs& attrs,
                                          const Bounds& bounds) {
  return InferNorm(inputs, attrs, bounds);
}

absl::StatusOr<TensorType> InferRmsNorm(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  return InferNorm(inputs, attrs, bounds);
}

absl::StatusOr<TensorType> InferAttention(TypeSpan inputs, const Attrs& attrs,
                                          const Bounds& bounds) {
  const TensorType& q = inputs[0];
  const TensorType& k = inputs[1];
  const TensorType& v = inputs[2];
  const int rank = static_cast<int>(q.shape.size());
  if (rank < 2) {
    return Invalid("q, operand 0, has shape ", ShapeToString(q.shape),
                   "; it needs at least the axes [Lq, D]");
  }
  if (attrs.contains("scale") && !std::isfinite(GetAttr<double>(attrs, "scale"))) {
    return Invalid("scale=", GetAttr<double>(attrs, "scale"), " must be finite");
  }
  absl::Status s = CheckDType("q, operand 0,", q.dtype, DTypeClass::kFloats);
  if (s.ok()) s = CheckSameDType("q", q.dtype, "k", k.dtype);
  if (s.ok()) s = CheckSameDType("q", q.dtype, "v", v.dtype);
  if (s.ok()) s = CheckLeading("q", q.shape, "k", k.shape, bounds);
  if (s.ok()) s = CheckLeading("q", q.shape, "v", v.shape, bounds);
  if (s.ok()) {
    s = CheckSameSize("q", rank - 1, q.shape.back(), "k", rank - 1, k.shape.back(), bounds);
  }
  if (s.ok()) {
    s = CheckSameSize("k", rank - 2, k.shape[rank - 2], "v", rank - 2, v.shape[rank - 2], bounds);
  }
  if (s.ok() && inputs.size() > 3) s = CheckMask(inputs[3], q, k.shape[rank - 2], bounds);
  if (!s.ok()) return s;
  TensorType result = q;
  result.shape.back() = v.shape.back();
  return result;
}

}  // namespace athanor
