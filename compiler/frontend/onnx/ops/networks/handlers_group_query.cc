// Handler of com.microsoft's GroupQueryAttention: attention over a cache of keys and values. New
// keys and values are added in each row of the batch behind that row's last one.
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
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/frontend/onnx/ops/networks/attention.h"
#include "compiler/frontend/onnx/ops/networks/handlers_microsoft_attention.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

enum Operand {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLengths,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm
};

class GroupQuery {
 public:
  explicit GroupQuery(HandlerContext& c) : c_(c), b_(c.b()) {}

  absl::Status Run() {
    absl::Status s = CheckServed();
    if (s.ok()) s = Heads();
    if (s.ok()) s = Normalise();
    if (s.ok()) s = Lengths();
    if (s.ok()) s = Rotate();
    if (s.ok()) s = Cache();
    return s.ok() ? Finish() : s;
  }

 private:
  absl::Status CheckServed() const;
  absl::Status Heads();
  absl::Status Normalise();
  absl::Status Lengths();
  absl::Status Rotate();
  absl::Status Cache();
  absl::Status Finish();
  Value Present(const Value& past, const Value& fresh);

  HandlerContext& c_;
  OpBuilder& b_;
  Value q_, k_,
      v_;                  // [batch, heads, length, size]; k and v of this step, then of all
  Expr past_ = 0;          // length of the cache
  Expr present_ = 0;       // number of keys and values that are used and returned
  bool appended_ = false;  // in every row, new keys directly follow the cache
  Value total_;            // [batch, 1, 1, 1]: number of keys of each row, if not appended
  Value before_;           // ... of these, the number before the new ones
};

absl::Status GroupQuery::CheckServed() const {
  if (const int64_t slides = c_.Int("sliding_window_cache"); slides > 0) {
    return Unimplemented("attribute sliding_window_cache is ", slides, "; only 0 is supported");
  }
  if (const int64_t kept = c_.Int("qk_output"); kept < 0 || kept > 2) {
    return Invalid("attribute qk_output is ", kept, "; it must be 0, 1 or 2");
  }
  for (const std::string_view name : {"k_quant_type", "v_quant_type"}) {
    const std::string type = c_.String(name);
    if (!type.empty() && type != "NONE") {
      return Unimplemented("attribute ", name, " is ", Quoted(type),
                           "; quantised caches are not supported");
    }
  }
  for (const auto& [operand, name] : {std::pair(kKeyScale, "k_scale"), {kValueScale, "v_scale"}}) {
    if (c_.Has(operand))
      return Unimplemented("operand ", name, " is given, which is not supported");
  }
  if (c_.Has(kPastKey) != c_.Has(kPastValue)) {
    return Invalid("past_key and past_value go together; one of them is given");
  }
  if (c_.Has(kQueryNorm) != c_.Has(kKeyNorm)) {
    return Invalid("q_norm_weight and k_norm_weight go together; one of them is given");
  }
  return absl::OkStatus();
}

absl::Status GroupQuery::Heads() {
  const int64_t heads = c_.Int("num_heads"), groups = c_.Int("kv_num_heads");
  if (heads < 1 || groups < 1 || heads % groups != 0) {
    return Invalid("num_heads is ", heads, " and kv_num_heads ", groups,
                   "; the second must divide the first");
  }
  Value q = c_.In(kQuery);
  if (q.rank() != 3) return Invalid("query has rank ", q.rank(), "; it must be 3");
  if (c_.Has(kKey) != c_.Has(kValue)) return Invalid("key and value go together");
  Value k, v;
  if (c_.Has(kKey)) {
    k = c_.In(kKey), v = c_.In(kValue);
    if (k.rank() != 3 || v.rank() != 3) return Invalid("key and value must have rank 3");
  } else {
    const std::optional<int64_t> width = q.shape[2].constant();
    const std::optional<int64_t> parts = (Expr(heads) + Expr(2) * groups).constant();
    if (!width || !parts || *width % *parts != 0) {
      return Invalid("query has ", q.shape[2].ToString(),
                     " elements along axis 2; packed, it has "
                     "(num_heads + 2 * kv_num_heads) * size");
    }
    const int64_t size = *width / *parts;
    k = Slice(b_, q, 2, heads * size, groups * size);
    v = Slice(b_, q, 2, (heads + groups) * size, groups * size);
    q = Slice(b_, q, 2, 0, heads * size);
  }
  absl::StatusOr<Value> split = SplitHeads(b_, q, heads, "query");
  if (split.ok()) q_ = *split, split = SplitHeads(b_, k, groups, "key");
  if (split.ok()) k_ = *split, split = SplitHeads(b_, v, groups, "value");
  if (split.ok()) v_ = *split;
  return split.status();
}

// Divides each head by the root of its mean of squares, before the rotation.
absl::Status GroupQuery::Normalise() {
  if (!c_.Has(kQueryNorm)) return absl::OkStatus();
  const auto norm = [&](Value* x, int weight, std::string_view name) -> absl::Status {
    const Value& w = c_.In(weight);
    if (w.rank() != 1 || !b_.bounds().ProvablyEqual(w.shape[0], x->shape[3])) {
      return Invalid(name, " has shape ", ShapeToString(w.shape), "; it must be [",
                     x->shape[3].ToString(), "], the size of a head");
    }
    const Value up = Up(b_, *x);
    const Value mean = Mean(b_, Mul(b_, up, up), {3}, /*keepdims=*/true);
    const Value root = Unary(b_, Op::kSqrt, Add(b_, mean, FloatAttr(c_, up, "qk_norm_epsilon")));
    *x = Cast(b_, Mul(b_, Div(b_, up, root), Cast(b_, w, up.elem)), x->elem);
    return b_.TakeStatus();
  };
  absl::Status s = norm(&q_, kQueryNorm, "q_norm_weight");
  return s.ok() ? norm(&k_, kKeyNorm, "k_norm_weight") : s;
}

absl::Status GroupQuery::Lengths() {
  const Bounds& bounds = b_.bounds();
  const Expr& batch = q_.shape[0];
  const Expr& fresh = k_.shape[2];
  if (c_.Has(kPastKey)) {
    if (c_.In(kPastKey).rank() != 4 || c_.In(kPastValue).rank() != 4) {
      return Invalid(
          "past_key and past_value must have rank 4, [batch, heads, "
          "length, size]");
    }
    past_ = c_.In(kPastKey).shape[2];
  }
  if (!bounds.ProvablyEqual(q_.shape[2], fresh)) {
    return Unimplemented("query has ", q_.shape[2].ToString(), " positions and key ",
                         fresh.ToString(), "; they must be equal");
  }
  ASSIGN_OR_RETURN(Expr total, c_.OneSize(kTotal, "total_sequence_length"));
  const bool grows = bounds.ProvablyEqual(total, past_ + fresh);
  if (grows) {
    present_ = past_ + fresh;
  } else if (c_.Has(kPastKey) && bounds.NonNegative(past_ - total)) {
    present_ = past_;  // a buffer for all future keys
  } else {
    return Unimplemented("total_sequence_length is ", total.ToString(), ", the cache has ",
                         past_.ToString(), " positions, and ", fresh.ToString(),
                         " are new; it must be their sum, or at most the cache's");
  }
  const Value& lengths = c_.In(kLengths);
  if (lengths.rank() > 2 || lengths.rank() < 1 || !bounds.ProvablyEqual(lengths.shape[0], batch)) {
    return Invalid("seqlens_k has shape ", ShapeToString(lengths.shape), "; it must be [batch], [",
                   batch.ToString(), "]");
  }
  // The total is the length of the longest row, so it is also that of a single row.
  appended_ = grows && (bounds.ProvablyEqual(batch, 1) || bounds.ProvablyEqual(present_, 1));
  const Value flat = lengths.rank() == 2 ? Squeeze(b_, lengths, {1}) : lengths;
  total_ =
      Unsqueeze(b_, Add(b_, Cast(b_, flat, Elem::kInt64), b_.Integer(Elem::kInt64, 1)), {1, 2, 3});
  // A prompt's rows may be shorter than its length.
  before_ =
      Max(b_, Sub(b_, total_, Size(b_, Elem::kInt64, fresh, {})), b_.Integer(Elem::kInt64, 0));
  if (appended_) before_ = Size(b_, Elem::kInt64, past_, {1, 1, 1, 1});
  return b_.TakeStatus();
}

absl::Status GroupQuery::Rotate() {
  if (c_.Int("do_rotary") == 0) return absl::OkStatus();
  if (!c_.Has(kCos) || !c_.Has(kSin)) {
    return Invalid("do_rotary is 1; cos_cache and sin_cache must be given");
  }
  const Value& cos = c_.In(kCos);
  const Value& sin = c_.In(kSin);
  const std::optional<int64_t> half = cos.rank() == 2 ? cos.shape[1].constant() : std::nullopt;
  if (!half || sin.rank() != 2 || !b_.bounds().ProvablyEqual(sin.shape[1], *half) ||
      !b_.bounds().NonNegative(q_.shape[3] - 2 * *half)) {
    return Invalid("cos_cache and sin_cache have shapes ", ShapeToString(cos.shape), " and ",
                   ShapeToString(sin.shape), "; they must be [positions, size / 2], of heads of ",
                   q_.shape[3].ToString());
  }
  Value at;
  if (c_.Has(kPositions)) {
    at = Cast(b_, c_.In(kPositions), Elem::kInt64);
    if (at.rank() != 2) return Invalid("position_ids must have rank 2, [batch, length]");
  } else {
    at = Add(b_, b_.Iota(Elem::kInt64, {1, q_.shape[2]}, 1), Squeeze(b_, before_, {2, 3}));
  }
  const auto rows = [&](const Value& cache) {
    return Unsqueeze(b_, Gather(b_, cache, at, 0), {1});
  };
  const Value c = rows(cos), s = rows(sin);
  const bool interleaved = c_.Int("rotary_interleaved") != 0;
  q_ = Rotated(b_, q_, c, s, interleaved);
  k_ = Rotated(b_, k_, c, s, interleaved);
  return b_.TakeStatus();
}

// Returns for each row of the batch the first `before_` elements of the cache, then the new ones.
// Elements behind these come from the cache or from this step, and are never read.
Value GroupQuery::Present(const Value& past, const Value& fresh) {
  const Value all = Concat(b_, {past, fresh}, 2);
  if (appended_ || !b_.status().ok()) return all;
  // Gathers whole positions: [batch * (past + fresh), heads, size].
  const Expr length = all.shape[2];
  const Value rows = Reshape(b_, Permute(b_, all, {0, 2, 1, 3}),
                             {all.shape[0] * length, all.shape[1], all.shape[3]});
  const Value j = b_.Iota(Elem::kInt64, {1, present_}, 1);
  const Value before = Squeeze(b_, before_, {2, 3});
  const Value step = Sub(b_, j, before);
  const Value is_fresh =
      And(b_, LessEqual(b_, before, j), Less(b_, step, Size(b_, Elem::kInt64, fresh.shape[2], {})));
  const Value at =
      Select(b_, is_fresh, Add(b_, step, Size(b_, Elem::kInt64, past.shape[2], {})), j);
  const Value first =
      Mul(b_, b_.Iota(Elem::kInt64, {all.shape[0], 1}, 0), Size(b_, Elem::kInt64, length, {}));
  const Value picked = Gather(b_, rows, Add(b_, first, at), 0);  // [batch, present, heads, size]
  return Permute(b_, picked, {0, 2, 1, 3});
}

absl::Status GroupQuery::Cache() {
  if (c_.Has(kPastKey)) {
    k_ = Present(c_.In(kPastKey), k_);
    v_ = Present(c_.In(kPastValue), v_);
  }
  if (!b_.status().ok()) return b_.TakeStatus();
  if (c_.Wants(1)) c_.Set(1, k_);
  if (c_.Wants(2)) c_.Set(2, v_);
  return absl::OkStatus();
}

absl::Status GroupQuery::Finish() {
  AttentionSpec spec;
  if (c_.Given("scale") && c_.Float("scale") != 0) spec.scale = c_.Float("scale");
  spec.softcap = c_.Float("softcap");
  if (c_.Has(kBias)) spec.bias = c_.In(kBias);
  if (c_.Has(kSink)) {
    const Value& sink = c_.In(kSink);
    if (sink.rank() != 1 || !b_.bounds().ProvablyEqual(sink.shape[0], q_.shape[1])) {
      return Invalid("head_sink has shape ", ShapeToString(sink.shape), "; it must be [",
                     q_.shape[1].ToString(), "], one for each head");
    }
    spec.sink = Unsqueeze(b_, sink, {1, 2});
  } else if (c_.Int("smooth_softmax") > 0) {
    spec.sink = b_.Scalar(q_.elem, 0);
  }
  const Expr& queries = q_.shape[2];
  const Expr& keys = k_.shape[2];
  const int64_t window = c_.Int("local_window_size");
  const bool causal = c_.Int("causal") != 0;
  std::optional<int64_t> left;
  if (window >= 0) left = window - 1;  // number of visible keys besides the query's own
  if (appended_) {
    spec.causal = causal;
    if (left) spec.allowed = WindowMask(b_, queries, keys, before_, left, std::nullopt);
  } else {
    spec.allowed = Less(b_, b_.Iota(Elem::kInt64, {1, keys}, 1), total_);
    if (causal || left) {
      const std::optional<int64_t> right = causal ? std::optional<int64_t>(0) : std::nullopt;
      spec.allowed = Both(b_, spec.allowed, WindowMask(b_, queries, keys, before_, left, right));
    }
  }
  absl::StatusOr<Value> k = RepeatHeads(b_, k_, q_.shape[1], "key");
  absl::StatusOr<Value> v = RepeatHeads(b_, v_, q_.shape[1], "value");
  if (!k.ok()) return k.status();
  if (!v.ok()) return v.status();
  using Step = AttentionScores::Step;
  const int64_t kept = c_.Int("qk_output");
  AttentionScores scores{.step = kept == 1 ? Step::kBias : Step::kSoftmax, .scores = {}};
  const bool wanted = kept != 0 && c_.Wants(3);
  if (c_.Wants(3) && !wanted)
    return Invalid("result 3 is used, but qk_output is 0; it must be 1 or 2");
  c_.Set(0, JoinHeads(b_, Attend(b_, q_, *k, *v, spec, wanted ? &scores : nullptr)));
  if (wanted && b_.status().ok()) {
    // Hidden scores are returned as 0, also before the softmax.
    const Value& s = scores.scores;
    const Value hidden = Equal(b_, s, b_.Scalar(s.elem, -std::numeric_limits<double>::infinity()));
    c_.Set(3, Select(b_, hidden, b_.Scalar(s.elem, 0), s));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status GroupQueryAttention(HandlerContext& c) { return GroupQuery(c).Run(); }

}  // namespace athanor::onnx
