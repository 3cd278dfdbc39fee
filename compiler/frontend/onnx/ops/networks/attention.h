// Scaled dot-product attention as ONNX and com.microsoft have it, over [batch, heads, length,
// size]: our Attention row where it says the same, else its parts.
//
//   AttentionSpec spec;  spec.scale = 0.125;  spec.allowed = causal;
//   Value y = Attend(b, q, k, v, spec, nullptr);
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_ATTENTION_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_ATTENTION_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

struct AttentionSpec {
  std::optional<double> scale;  // of the scores; 1/sqrt(size) if not
  double softcap = 0;           // > 0: scores become softcap * tanh(scores / softcap)
  bool causal = false;          // keys j <= i + (keys - queries) only
  // Both broadcast to [batch, heads, queries, keys]: bool, and a float that is added.
  std::optional<Value> allowed, bias;
  // Of each head, [heads, 1, 1]: a score more in the softmax, whose weight goes to no key.
  std::optional<Value> sink;
  std::optional<Elem> precision;  // of the softmax, if more than that of the sums
  // Of a row whose keys are all hidden by `allowed` or -inf in `bias`: zeros, as ONNX has it.
};

// What the scores are after each step, of the element type of q.
struct AttentionScores {
  enum class Step : uint8_t { kProduct, kSoftcap, kBias, kSoftmax } step = Step::kProduct;
  Value scores;
};

// [batch, length, heads * size] as [batch, heads, length, size], and back. INVALID_ARGUMENT names
// `what` if its last axis is no multiple of heads.
absl::StatusOr<Value> SplitHeads(OpBuilder& b, const Value& x, int64_t heads,
                                 std::string_view what);
Value JoinHeads(OpBuilder& b, const Value& x);
// Each head of x as often as it takes to have `heads`.
absl::StatusOr<Value> RepeatHeads(OpBuilder& b, const Value& x, const Expr& heads,
                                  std::string_view what);
// Positions of the keys that query i may see, as bools: i + offset - left <= j <= i + offset +
// right, of those bounds that are there. `offset` is a scalar or [batch, 1, 1, 1], i64.
Value WindowMask(OpBuilder& b, const Expr& queries, const Expr& keys, const Value& offset,
                 std::optional<int64_t> left, std::optional<int64_t> right);
Value Both(OpBuilder& b, const std::optional<Value>& a, const Value& c);

// The result has v's last axis and q's element type. `scores`, if given, is filled.
Value Attend(OpBuilder& b, const Value& q, const Value& k, const Value& v,
             const AttentionSpec& spec, AttentionScores* scores);

// Rotates pairs of elements of x [batch, heads, length, size], as our Rotary does. cos and sin are
// [batch or 1, 1, length, pairs].
Value Rotated(OpBuilder& b, const Value& x, const Value& cos, const Value& sin, bool interleaved);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_ATTENTION_H_
