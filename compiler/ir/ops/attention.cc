// Attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckLeading(std::string_view what_a, const Shape& a, std::string_view what_b,
                          const Shape& b, const Bounds& bounds) {
  const int rank = static_cast<int>(a.size());
  RETURN_IF_ERROR(CheckRank(what_b, b, rank));
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
                   "; it must be bool or that of q: "
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

// Element strides of a mask over [batch axes..., Lq, Lk]: aligned at the last axis, zero where the
// mask lacks the axis or has one element.
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

// q [..., Lq, D], k [..., Lk, D], v [..., Lk, Dv], mask [Lq, Lk] or [..., Lq, Lk]; [..., Lq, Dv].
AxisFlow AttentionFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  const int rank = static_cast<int>(flow[0].size());
  // With `causal`, a query sees the keys up to its position among all queries.
  const int query = GetAttrOr<bool>(node.attrs, "causal", false) ? kMixed : rank - 2;
  flow[0][rank - 2] = query;
  flow[0][rank - 1] = flow[1][rank - 1] = kMixed;
  flow[1][rank - 2] = flow[2][rank - 2] = kMixed;
  if (flow.size() < 4) return flow;
  const Shape& mask = graph.node(node.inputs[3]).type.shape;
  const int leading = static_cast<int>(mask.size()) - 2;
  for (int i = 0; i < leading; ++i) {
    if (mask[i].IsConstant(1)) flow[3][i] = kMixed;  // broadcast: no axis of the result
  }
  flow[3][leading] = query;
  flow[3][leading + 1] = kMixed;
  return flow;
}

Cutter::Recipe AttentionRecipe(Cutter& cutter, NodeId n, Cutter::Handle q, Cutter::Handle k,
                               Cutter::Handle v, Cutter::Handle mask, int64_t keys) {
  return [&cutter, n, q, k, v, mask, keys]() -> absl::StatusOr<NodeId> {
    const Node& node = cutter.graph().node(n);
    const absl::Span<const int64_t> shape = cutter.ShapeOf(n);
    const int64_t count = Count(cutter.Wanted(n)), queries = shape[shape.size() - 2];
    Attrs attrs = node.attrs;
    const bool causal = GetAttrOr<bool>(attrs, "causal", false);
    absl::StatusOr<NodeId> hide;
    if (mask >= 0) hide = cutter.Get(mask);
    // Each query stands alone here, so the mask by its position among all queries is written out.
    if (causal) {
      attrs.find("causal")->second = false;
      Tensor seen = Tensor::Zeros(DType::kBool, {count, 1, keys});
      for (int64_t w = 0; w < count; ++w) {
        const int64_t i = cutter.Wanted(n)[w] / shape.back() % queries;
        for (int64_t j = 0; j < keys; ++j) seen.bytes[w * keys + j] = j <= i + keys - queries;
      }
      const DType dtype = mask >= 0 ? cutter.graph().node(node.inputs[3]).type.dtype : DType::kBool;
      Tensor hidden = Tensor::Zeros(dtype, seen.shape);
      for (int64_t i = 0; i < hidden.elements() && dtype != DType::kBool; ++i) {
        StoreScalar(hidden, i, Scalar::Float(dtype, -std::numeric_limits<double>::infinity()));
      }
      hide = mask < 0 ? cutter.Literal(std::move(seen))
                      : cutter.Add(Op::kSelect, {cutter.Literal(std::move(seen)), hide,
                                                 cutter.Literal(std::move(hidden))});
    }
    return cutter.Flatten(
        mask >= 0 || causal
            ? cutter.Add(Op::kAttention, {cutter.Get(q), cutter.Get(k), cutter.Get(v), hide}, attrs)
            : cutter.Add(Op::kAttention, {cutter.Get(q), cutter.Get(k), cutter.Get(v)}, attrs),
        {count, 1, 1});
  };
}

// Each wanted element has a batch of its own: its query, all keys, and its column of their values.
absl::Status SampleAttention(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> q_shape = cutter.ShapeOf(node.inputs[0]),
                                  v_shape = cutter.ShapeOf(node.inputs[2]);
  const size_t rank = q_shape.size();
  const int64_t queries = q_shape[rank - 2], depth = q_shape[rank - 1];
  const int64_t keys = v_shape[rank - 2], columns = v_shape[rank - 1];
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, depth));
  RETURN_IF_ERROR(cutter.Spend(n, count, keys));
  RETURN_IF_ERROR(cutter.Spend(n, count * keys, depth + 1));
  Positions q_bases, k_bases, v_bases, mask_positions;
  std::vector<int64_t> mask_strides(rank, 0);
  if (node.inputs.size() > 3) {
    const absl::Span<const int64_t> mask = cutter.ShapeOf(node.inputs[3]);
    const std::vector<int64_t> own = Strides(mask);
    for (size_t i = 0; i < own.size(); ++i) {
      if (mask[i] != 1) mask_strides[rank - own.size() + i] = own[i];
    }
  }
  for (int64_t p : cutter.Wanted(n)) {
    std::vector<int64_t> at = CoordinatesOf(cutter.ShapeOf(n), p);
    const int64_t query = p / columns, batch = query / queries;
    q_bases.push_back(query * depth);
    k_bases.push_back(batch * keys * depth);
    v_bases.push_back(batch * keys * columns + p % columns);
    for (int64_t j = 0; j < keys && node.inputs.size() > 3; ++j) {
      at.back() = j;
      mask_positions.push_back(Dot(at, mask_strides));
    }
  }
  const Cutter::Handle q =
      cutter.Pull(node.inputs[0], {count, 1, depth}, Sums(q_bases, UpTo(depth)));
  const Cutter::Handle k =
      cutter.Pull(node.inputs[1], {count, keys, depth}, Sums(k_bases, UpTo(keys * depth)));
  const Cutter::Handle v =
      cutter.Pull(node.inputs[2], {count, keys, 1}, Sums(v_bases, UpTo(keys, columns)));
  const Cutter::Handle mask = node.inputs.size() > 3 ? cutter.Pull(node.inputs[3], {count, 1, keys},
                                                                   std::move(mask_positions))
                                                     : -1;
  cutter.RecipeOf(n) = AttentionRecipe(cutter, n, q, k, v, mask, keys);
  return absl::OkStatus();
}

}  // namespace

void AddAttention(Rows* rows) {
  ATHANOR_ROW(
      Attention, kComposite, 3, 4,
      ATHANOR_ATTRS(
          Optional("scale", AttrType::kFloat,
                   "factor of the scores; absent means "
                   "1/sqrt(D)"),
          Optional("causal", AttrType::kBool, "hide keys j > i + (Lk - Lq)", AttrValue(false))),
      InferAttention, 8,
      "Operands q [..., Lq, D], k [..., Lk, D], v [..., Lk, Dv], optional mask; result "
      "[..., Lq, Dv]. Scores are scale * sum(q * k) over D; a mask is [Lq, Lk] or of q's "
      "rank with leading axes equal to q's or 1: bool true means attend, false hides; a "
      "float mask, of q's dtype, is added to the scores, and -inf hides. With `causal` "
      "query i attends keys j <= i + (Lk - Lq) only. The result is softmax of the scores "
      "over the keys that are not hidden, times v; a query whose every key is hidden (or "
      "Lk = 0) gives zeros, by definition. Hidden scores have no influence, whatever they hold; "
      "hidden values must be finite, else the result is unspecified. Where every score that is "
      "not hidden is -inf, the result is NaN or zeros. NaN or +inf in a score "
      "that is not hidden gives NaN. f16 and bf16 compute in f32 throughout and round once.",
      .form = OpForm::kAttention,
      .roles = {OperandRole::kNone, OperandRole::kNone, OperandRole::kNone, OperandRole::kMask},
      .rows = {AttentionFlow, "attends across"}, .sample = SampleAttention);
}

}  // namespace athanor
