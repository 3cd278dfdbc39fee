// Handlers of com.microsoft: Attention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding. A
// mask does not hide a key but adds `mask_filter_value` to its score, by default -10000. So a row
// whose keys are all padding attends equally to all of them. Causality does hide keys.
#include "compiler/frontend/onnx/ops/networks/handlers_microsoft_attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/networks/attention.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

bool SameSize(const OpBuilder& b, const Expr& x, const Expr& y) {
  return b.bounds().ProvablyEqual(x, y);
}

absl::Status NotServed(const HandlerContext& c, std::string_view attribute, int64_t otherwise) {
  const int64_t value = c.Int(attribute);
  if (value == otherwise) return absl::OkStatus();
  return Unimplemented("attribute ", attribute, " is ", value, "; only ", otherwise,
                       " is supported");
}

absl::Status NotGiven(const HandlerContext& c, int operand, std::string_view name) {
  if (!c.Has(operand)) return absl::OkStatus();
  return Unimplemented("operand ", operand, ", ", name, ", is given, which is not supported");
}

// Size of half a head; small enough to avoid overflow.
constexpr int64_t kMaxHalf = int64_t{1} << 31;

// Returns the value that an integer mask adds to the scores of [batch, heads, queries, keys]: 0 for
// mask elements that are not 0. The mask may also hold lengths, or ends and then starts, for each
// row of the batch.
absl::StatusOr<Value> FilterOf(OpBuilder& b, const Value& mask, const Expr& batch,
                               const Expr& queries, const Expr& keys, double filter, Elem elem) {
  if (!IsInteger(mask.dtype()) && mask.elem != Elem::kBool) {
    return Invalid("the mask is of type ", ElemName(mask.elem), "; it must be of an integer type");
  }
  std::optional<Value> visible;
  const auto row = [&](const Expr& begin) {  // [batch, 1, 1, 1]
    return Unsqueeze(b, Cast(b, Slice(b, mask, 0, begin, batch), Elem::kInt64), {1, 2, 3});
  };
  const Value j = b.Iota(Elem::kInt64, {1, keys}, 1);
  if (mask.rank() == 1 && SameSize(b, mask.shape[0], batch)) {
    visible = Less(b, j, row(0));
  } else if (mask.rank() == 1 && SameSize(b, mask.shape[0], 2 * batch)) {
    visible = And(b, Less(b, j, row(0)), LessEqual(b, row(batch), j));
  } else if (mask.rank() == 2 && SameSize(b, mask.shape[1], keys)) {
    visible = Unsqueeze(b, mask, {1, 2});
  } else if (mask.rank() == 3 && SameSize(b, mask.shape[1], queries) &&
             SameSize(b, mask.shape[2], keys)) {
    visible = Unsqueeze(b, mask, {1});
  } else {
    return Unimplemented("the mask has shape ", ShapeToString(mask.shape), "; [batch], [2*batch], ",
                         "[batch, keys] and [batch, queries, keys] are supported, with batch ",
                         batch.ToString(), ", queries ", queries.ToString(), " and keys ",
                         keys.ToString());
  }
  const Value shown = visible->elem == Elem::kBool ? *visible : Cast(b, *visible, Elem::kBool);
  const double rounded = DecodeFloat(CarrierOf(elem), EncodeFloat(CarrierOf(elem), filter));
  return Select(b, shown, b.Scalar(elem, 0), b.Scalar(elem, rounded));
}

Value Sum(OpBuilder& b, const std::optional<Value>& x, const Value& y) {
  return x ? Add(b, *x, y) : y;
}

// The schema has no default.
double FilterValue(const HandlerContext& c) {
  return c.Given("mask_filter_value") ? c.Float("mask_filter_value") : -10000.0;
}

void SetScale(const HandlerContext& c, AttentionSpec* spec) {
  if (c.Given("scale") && c.Float("scale") != 0) spec->scale = c.Float("scale");
}

// Returns element `which` of axis `axis`, which is removed.
Value Part(OpBuilder& b, const Value& x, int axis, int64_t which) {
  return Squeeze(b, Slice(b, x, axis, which, 1), {axis});
}

// Takes x of [batch, length, heads, n, size]. Returns one of the n as [batch, heads, length, size].
Value Packed(OpBuilder& b, const Value& x, int64_t which) {
  return Permute(b, Part(b, x, 3, which), {0, 2, 1, 3});
}

}  // namespace

absl::Status MicrosoftAttention(HandlerContext& c) {
  OpBuilder& b = c.b();
  absl::Status s = NotServed(c, "do_rotary", 0);
  if (s.ok()) s = NotServed(c, "past_present_share_buffer", 0);
  if (s.ok()) s = NotGiven(c, 6, "past_sequence_length");
  if (!s.ok()) return s;
  const int64_t heads = c.Int("num_heads");
  const Value& x = c.In(0);
  const Value& w = c.In(1);
  if (x.rank() != 3 || w.rank() != 2) {
    return Invalid("input and weights have ranks ", x.rank(), " and ", w.rank(),
                   "; 3 and 2 are meant");
  }
  Value all = MatMul(b, x, w);
  if (c.Has(2)) all = Add(b, all, c.In(2));
  if (!b.status().ok()) return b.TakeStatus();
  std::vector<int64_t> sizes;
  if (c.Given("qkv_hidden_sizes")) {
    sizes = c.Ints("qkv_hidden_sizes");
  } else if (const std::optional<int64_t> width = w.shape[1].constant()) {
    sizes = {*width / 3, *width / 3, *width - 2 * (*width / 3)};
  }
  if (sizes.size() != 3 || !SameSize(b, w.shape[1], Expr(sizes[0]) + sizes[1] + sizes[2]) ||
      sizes[0] != sizes[1]) {
    return Invalid("weights have ", w.shape[1].ToString(),
                   " columns; they must be the columns of query, key and value together, as many "
                   "for key as for query");
  }
  std::array<Value, 3> qkv;
  int64_t begin = 0;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(qkv[i],
                     SplitHeads(b, Slice(b, all, 2, begin, sizes[i]), heads, "the projection"));
    begin += sizes[i];
  }
  auto& [q, k, v] = qkv;
  if (c.Has(4)) {
    const Value& past = c.In(4);
    if (past.rank() != 5) return Invalid("past has rank ", past.rank(), "; it must be 5");
    k = Concat(b, {Part(b, past, 0, 0), k}, 2);
    v = Concat(b, {Part(b, past, 0, 1), v}, 2);
    if (!b.status().ok()) return b.TakeStatus();
  }
  AttentionSpec spec;
  SetScale(c, &spec);
  if (c.Has(3)) {
    ASSIGN_OR_RETURN(spec.bias, FilterOf(b, c.In(3), x.shape[0], q.shape[2], k.shape[2],
                                         FilterValue(c), q.elem));
  }
  if (c.Has(5)) spec.bias = Sum(b, spec.bias, c.In(5));
  spec.causal = c.Int("unidirectional") != 0;
  c.Set(0, JoinHeads(b, Attend(b, q, k, v, spec, nullptr)));
  if (c.Wants(1)) c.Set(1, Concat(b, {Unsqueeze(b, k, {0}), Unsqueeze(b, v, {0})}, 0));
  return absl::OkStatus();
}

absl::Status MultiHeadAttention(HandlerContext& c) {
  OpBuilder& b = c.b();
  absl::Status s = NotGiven(c, 8, "past_sequence_length");
  if (s.ok()) s = NotGiven(c, 9, "cache_indirection");
  if (!s.ok()) return s;
  const int64_t heads = c.Int("num_heads");
  std::array<Value, 3> qkv;
  if (c.In(0).rank() == 5 && !c.Has(1) && !c.Has(2)) {
    for (int i = 0; i < 3; ++i) qkv[i] = Packed(b, c.In(0), i);
  } else if (c.Has(1) && c.In(1).rank() == 5 && !c.Has(2)) {
    qkv[0] = c.In(0);
    for (int i = 0; i < 2; ++i) qkv[i + 1] = Packed(b, c.In(1), i);
  } else if (c.Has(1) && c.Has(2)) {
    for (int i = 0; i < 3; ++i) qkv[i] = c.In(i);
  } else {
    return Invalid("query has rank ", c.In(0).rank(),
                   "; key and value must be given, or be packed in query or "
                   "key of rank 5");
  }
  if (!b.status().ok()) return b.TakeStatus();
  if (c.Has(3)) {
    if (std::any_of(qkv.begin(), qkv.end(), [](const Value& v) { return v.rank() != 3; })) {
      return Unimplemented("a bias of packed or split keys is not supported");
    }
    Expr begin = 0;
    for (Value& part : qkv) {
      part = Add(b, part, Slice(b, c.In(3), 0, begin, part.shape[2]));
      begin += part.shape[2];
    }
    if (!b.status().ok()) return b.TakeStatus();
  }
  constexpr std::string_view kNames[] = {"query", "key", "value"};
  for (int i = 0; i < 3; ++i) {
    if (qkv[i].rank() == 4) continue;
    if (qkv[i].rank() != 3) {
      return Invalid(kNames[i], " has rank ", qkv[i].rank(), "; it must be 3 or 4");
    }
    ASSIGN_OR_RETURN(qkv[i], SplitHeads(b, qkv[i], heads, kNames[i]));
  }
  auto& [q, k, v] = qkv;
  if (c.Has(6) != c.Has(7)) return Invalid("past_key and past_value go together");
  if (c.Has(6)) {
    k = Concat(b, {c.In(6), k}, 2);
    v = Concat(b, {c.In(7), v}, 2);
    if (!b.status().ok()) return b.TakeStatus();
  }
  AttentionSpec spec;
  SetScale(c, &spec);
  if (c.Has(4)) {
    ASSIGN_OR_RETURN(spec.bias, FilterOf(b, c.In(4), q.shape[0], q.shape[2], k.shape[2],
                                         FilterValue(c), q.elem));
  }
  if (c.Has(5)) spec.bias = Sum(b, spec.bias, c.In(5));
  if (c.Int("unidirectional") != 0) {
    // Query i sees the keys up to its own position behind the past, so the last query sees all
    // keys.
    const Expr past = c.Has(6) ? c.In(6).shape[2] : Expr(0);
    spec.causal = SameSize(b, k.shape[2], q.shape[2] + past);
    if (!spec.causal) {
      const Expr& queries = q.shape[2];
      const auto size = [&](const Expr& e) { return Size(b, Elem::kInt64, e, {}); };
      const Value last = Equal(b, b.Iota(Elem::kInt64, {queries, 1}, 0), size(queries - 1));
      spec.allowed = Or(b, WindowMask(b, queries, k.shape[2], size(past), std::nullopt, 0), last);
    }
  }
  AttentionScores scores{.step = AttentionScores::Step::kBias, .scores = {}};
  c.Set(0, JoinHeads(b, Attend(b, q, k, v, spec, c.Wants(3) ? &scores : nullptr)));
  if (c.Wants(3) && b.status().ok()) {
    // Scores that causality hides become the lowest number.
    const Value& kept = scores.scores;
    const double lowest = kept.dtype() == DType::kF16    ? -65504
                          : kept.dtype() == DType::kBF16 ? -0x1.FEp127
                                                         : -0x1.FFFFFEp127;
    c.Set(3, Max(b, kept, b.Scalar(kept.elem, lowest)));
  }
  if (c.Wants(1)) c.Set(1, k);
  if (c.Wants(2)) c.Set(2, v);
  return absl::OkStatus();
}

absl::Status MicrosoftRotaryEmbedding(HandlerContext& c) {
  OpBuilder& b = c.b();
  absl::Status s = NotServed(c, "is_packed_batching", 0);
  if (!s.ok()) return s;
  if (c.Given("scale") && c.Float("scale") != 1) {
    return Unimplemented("attribute scale is ", c.Float("scale"), "; only 1 is supported");
  }
  Value x = c.In(0);
  const Value& positions = c.In(1);
  const Value& cos = c.In(2);
  const Value& sin = c.In(3);
  const std::optional<int64_t> half = cos.rank() == 2 ? cos.shape[1].constant() : std::nullopt;
  const bool fits = half && *half >= 1 && *half <= kMaxHalf;
  if (!fits || sin.rank() != 2 || !SameSize(b, sin.shape[1], *half)) {
    return Invalid("cos_cache and sin_cache have shapes ", ShapeToString(cos.shape), " and ",
                   ShapeToString(sin.shape), "; they must be [positions, size / 2], of 1 to ",
                   kMaxHalf, " columns");
  }
  const bool flat = x.rank() == 3;
  if (!flat && x.rank() != 4) return Invalid("input has rank ", x.rank(), "; it must be 3 or 4");
  if (flat) {
    int64_t heads = c.Int("num_heads");
    if (heads == 0 && x.shape[2].constant()) heads = *x.shape[2].constant() / (2 * *half);
    ASSIGN_OR_RETURN(x, SplitHeads(b, x, heads, "input"));
  }
  if (!b.bounds().NonNegative(x.shape[3] - 2 * *half)) {
    return Invalid("the caches rotate ", 2 * *half, " elements of each head, which has ",
                   x.shape[3].ToString());
  }
  Value at = Cast(b, positions, Elem::kInt64);
  if (positions.rank() == 1) {  // one offset for all rows
    at = Add(b, b.Iota(Elem::kInt64, {1, x.shape[2]}, 1), at);
  }
  const auto rows = [&](const Value& cache) { return Unsqueeze(b, Gather(b, cache, at, 0), {1}); };
  const Value y = Rotated(b, x, rows(cos), rows(sin), c.Int("interleaved") != 0);
  c.Set(0, flat ? JoinHeads(b, y) : y);
  return absl::OkStatus();
}

}  // namespace athanor::onnx
