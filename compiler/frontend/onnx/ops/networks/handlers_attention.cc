// Handlers: Attention, RotaryEmbedding; also the rows of com.microsoft's family.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/frontend/onnx/ops/networks/attention.h"
#include "compiler/frontend/onnx/ops/networks/handlers_microsoft_attention.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int kMask = 3, kPastKey = 4, kPastValue = 5,
              kLengths = 6;  // Attention's operands

bool SameSize(const OpBuilder& b, const Expr& x, const Expr& y) {
  return b.bounds().ProvablyEqual(x, y);
}

// Converts one Attention node.
class AttentionNode {
 public:
  explicit AttentionNode(HandlerContext& c) : c_(c), b_(c.b()) {}

  absl::Status Run() {
    absl::Status s = Heads();
    if (s.ok()) s = Cache();
    if (s.ok()) s = Mask();
    if (s.ok()) s = Positions();
    return s.ok() ? Finish() : s;
  }

 private:
  absl::Status Heads();
  absl::Status Cache();
  absl::Status Mask();
  absl::Status Positions();
  absl::Status Finish();

  HandlerContext& c_;
  OpBuilder& b_;
  bool flat_ = false;  // heads and sizes share one axis
  Value q_, k_, v_;    // [batch, heads, length, size]
  std::optional<Expr> past_;
  AttentionSpec spec_;
};

absl::Status AttentionNode::Heads() {
  const Value& q = c_.In(0);
  const Value& k = c_.In(1);
  const Value& v = c_.In(2);
  if (q.rank() != k.rank() || q.rank() != v.rank() || (q.rank() != 3 && q.rank() != 4)) {
    return Invalid("Q, K and V have ranks ", q.rank(), ", ", k.rank(), " and ", v.rank(),
                   "; all must be 3, [batch, length, heads * size], or 4, "
                   "[batch, heads, length, "
                   "size]");
  }
  flat_ = q.rank() == 3;
  const bool given = c_.Given("q_num_heads") || c_.Given("kv_num_heads");
  if (!flat_) {
    if (given && c_.version() >= 25) {
      return Invalid(
          "q_num_heads and kv_num_heads are given, but Q has rank 4 "
          "and with it the heads");
    }
    q_ = q, k_ = k, v_ = v;
    return absl::OkStatus();
  }
  if (!c_.Given("q_num_heads") || !c_.Given("kv_num_heads")) {
    return Invalid("q_num_heads and kv_num_heads must be given where Q has rank 3");
  }
  absl::StatusOr<Value> split = SplitHeads(b_, q, c_.Int("q_num_heads"), "Q");
  if (split.ok()) q_ = *split, split = SplitHeads(b_, k, c_.Int("kv_num_heads"), "K");
  if (split.ok()) k_ = *split, split = SplitHeads(b_, v, c_.Int("kv_num_heads"), "V");
  if (split.ok()) v_ = *split;
  return split.status();
}

// Prepends past keys and values to those given.
absl::Status AttentionNode::Cache() {
  if (c_.Has(kPastKey) != c_.Has(kPastValue)) {
    return Invalid("past_key and past_value go together; one of them is given");
  }
  if (c_.Has(kPastKey)) {
    if (c_.Has(kLengths)) {
      return Invalid(
          "nonpad_kv_seqlen and past_key are given; the lengths are "
          "of a cache outside");
    }
    if (c_.In(kPastKey).rank() != 4 || c_.In(kPastValue).rank() != 4) {
      return Invalid(
          "past_key and past_value must have rank 4, [batch, heads, "
          "length, size]");
    }
    past_ = c_.In(kPastKey).shape[2];
    k_ = Concat(b_, {c_.In(kPastKey), k_}, 2);
    v_ = Concat(b_, {c_.In(kPastValue), v_}, 2);
    if (!b_.status().ok()) return b_.TakeStatus();
  }
  if (c_.Wants(1)) c_.Set(1, k_);
  if (c_.Wants(2)) c_.Set(2, v_);
  return absl::OkStatus();
}

absl::Status AttentionNode::Mask() {
  if (!c_.Has(kMask)) return absl::OkStatus();
  Value mask = c_.In(kMask);
  const bool is_bool = mask.elem == Elem::kBool;
  if (!is_bool && mask.elem != q_.elem) {
    return Invalid("attn_mask is of type ", ElemName(mask.elem), "; it must be bool or Q's, ",
                   ElemName(q_.elem));
  }
  if (mask.rank() < 1 || mask.rank() > 4) {
    return Invalid("attn_mask has rank ", mask.rank(),
                   "; it must broadcast to [batch, heads, queries, keys]");
  }
  // Keys beyond the mask's end are hidden.
  const Expr& keys = k_.shape[2];
  const Expr& last = mask.shape.back();
  if (!SameSize(b_, last, keys)) {
    if (!b_.bounds().NonNegative(keys - last)) {
      return Invalid("attn_mask's last axis has ", last.ToString(), " elements, and there are ",
                     keys.ToString(), " keys; it must not be longer for any size of the dims");
    }
    Shape shape = mask.shape;
    shape.back() = keys;
    std::vector<Expr> coordinates;
    for (int i = 0; i < mask.rank(); ++i) coordinates.push_back(Expr::Axis(i));
    const Value outside = is_bool ? b_.Integer(Elem::kBool, 0)
                                  : b_.Scalar(mask.elem, -std::numeric_limits<double>::infinity());
    mask = MapOr(b_, mask, shape, coordinates, outside);
  }
  (is_bool ? spec_.allowed : spec_.bias) = mask;
  return b_.TakeStatus();
}

// Adds causality, windows and the lengths of an external cache.
absl::Status AttentionNode::Positions() {
  const Expr& queries = q_.shape[2];
  const Expr& keys = k_.shape[2];
  std::optional<int64_t> left, right;
  if (c_.version() >= 25) {
    for (const auto& [name, bound] :
         {std::pair("left_window_size", &left), std::pair("right_window_size", &right)}) {
      const int64_t size = c_.Int(name);
      if (size < -1) return Invalid(name, " is ", size, "; it must be -1 or at least 0");
      if (size >= 0) *bound = size;
    }
  }
  bool causal = c_.Int("is_causal") != 0;
  if (causal && !c_.Has(kLengths) && SameSize(b_, past_.value_or(0), keys - queries)) {
    spec_.causal = true;  // the same meaning as in our Attention op
    causal = false;
  }
  if (causal) right = right ? std::min<int64_t>(*right, 0) : 0;
  Value lengths;
  if (c_.Has(kLengths)) {
    lengths = c_.In(kLengths);
    if (lengths.rank() != 1 || !SameSize(b_, lengths.shape[0], q_.shape[0])) {
      return Invalid("nonpad_kv_seqlen has shape ", ShapeToString(lengths.shape),
                     "; it must be [batch], [", q_.shape[0].ToString(), "]");
    }
    lengths = Unsqueeze(b_, Cast(b_, lengths, Elem::kInt64), {1, 2, 3});
    spec_.allowed = Both(b_, spec_.allowed, Less(b_, b_.Iota(Elem::kInt64, {1, keys}, 1), lengths));
  }
  if (left || right) {
    const Value offset = c_.Has(kLengths) ? Sub(b_, lengths, Size(b_, Elem::kInt64, queries, {}))
                                          : Size(b_, Elem::kInt64, past_.value_or(0), {});
    spec_.allowed = Both(b_, spec_.allowed, WindowMask(b_, queries, keys, offset, left, right));
  }
  return b_.TakeStatus();
}

absl::Status AttentionNode::Finish() {
  if (c_.Given("scale")) spec_.scale = c_.Float("scale");
  spec_.softcap = c_.Float("softcap");
  if (spec_.softcap < 0) return Invalid("softcap is ", spec_.softcap, "; it must be at least 0");
  if (c_.Given("softmax_precision")) {
    const int64_t number = c_.Int("softmax_precision");
    const std::optional<Elem> elem = ElemOf(number);
    if (number < 1 || number > 100 || !elem || !IsFloat(CarrierOf(*elem)) ||
        !Computes(CarrierOf(*elem))) {
      return Invalid("softmax_precision is ", number,
                     "; it must be 1 (float), 10 (float16), 11 (double) or 16 (bfloat16)");
    }
    spec_.precision = *elem;
  }
  const Expr heads = q_.shape[1];
  absl::StatusOr<Value> k = RepeatHeads(b_, k_, heads, "K");
  absl::StatusOr<Value> v = RepeatHeads(b_, v_, heads, "V");
  if (!k.ok()) return k.status();
  if (!v.ok()) return v.status();
  AttentionScores scores;
  if (c_.Wants(3)) {
    const int64_t mode = c_.Int("qk_matmul_output_mode");
    if (mode < 0 || mode > 3) {
      return Invalid("qk_matmul_output_mode is ", mode, "; it must be 0, 1, 2 or 3");
    }
    scores.step = static_cast<AttentionScores::Step>(mode);
  }
  const Value y = Attend(b_, q_, *k, *v, spec_, c_.Wants(3) ? &scores : nullptr);
  c_.Set(0, flat_ ? JoinHeads(b_, y) : y);
  if (c_.Wants(3)) c_.Set(3, scores.scores);
  return absl::OkStatus();
}

absl::Status Attention(HandlerContext& c) { return AttentionNode(c).Run(); }

// REQUIRES: the operands are X, cos_cache, sin_cache, position_ids.
absl::Status RotaryEmbedding(HandlerContext& c) {
  OpBuilder& b = c.b();
  Value x = c.In(0);
  const bool flat = x.rank() == 3;
  if (!flat && x.rank() != 4) {
    return Invalid("X has rank ", x.rank(),
                   "; it must be 3, [batch, length, heads * size], or 4, "
                   "[batch, heads, length, "
                   "size]");
  }
  if (flat) {
    if (!c.Given("num_heads")) return Invalid("num_heads must be given where X has rank 3");
    ASSIGN_OR_RETURN(x, SplitHeads(b, x, c.Int("num_heads"), "X"));
  }
  const std::optional<int64_t> whole = x.shape[3].constant();
  if (!whole)
    return Unimplemented("its head size is ", x.shape[3].ToString(), "; it must be a number");
  const int64_t stated = c.Int("rotary_embedding_dim");
  const int64_t size = stated == 0 ? *whole : stated;
  if (size < 2 || size % 2 != 0 || size > *whole) {
    return Invalid(size, " elements of each head, which has ", *whole,
                   ", are to be rotated; the number must be even and not more");
  }
  std::vector<Value> caches;
  for (const int i : {1, 2}) {
    Value cache = c.In(i);
    const int rank = c.Has(3) ? 2 : 3;
    if (cache.rank() != rank || !SameSize(b, cache.shape.back(), size / 2)) {
      return Invalid(i == 1 ? "cos_cache" : "sin_cache", " has shape ", ShapeToString(cache.shape),
                     "; it must be ", rank == 2 ? "[positions, " : "[batch, length, ", size / 2,
                     "]");
    }
    if (c.Has(3)) cache = Gather(b, cache, c.In(3), 0);
    caches.push_back(Unsqueeze(b, cache, {1}));
  }
  const Value y = Rotated(b, x, caches[0], caches[1], c.Int("interleaved") != 0);
  c.Set(0, flat ? JoinHeads(b, y) : y);
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "Attention", 23, Attention},
    {"", "RotaryEmbedding", 23, RotaryEmbedding},
    {"com.microsoft", "Attention", 1, MicrosoftAttention},
    {"com.microsoft", "GroupQueryAttention", 1, GroupQueryAttention},
    {"com.microsoft", "MultiHeadAttention", 1, MultiHeadAttention},
    {"com.microsoft", "RotaryEmbedding", 1, MicrosoftRotaryEmbedding},
};

}  // namespace

absl::Span<const HandlerRow> AttentionRows() { return kRows; }

}  // namespace athanor::onnx
