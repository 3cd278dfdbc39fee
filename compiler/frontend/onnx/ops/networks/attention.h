// Scaled dot-product attention as defined by ONNX and com.microsoft, over [batch, heads, length,
// size]. Uses our Attention op if it means the same, otherwise its parts.
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
  std::optional<double> scale;  // scale of the scores; default 1/sqrt(size)
  double softcap = 0;           // > 0: scores become softcap * tanh(scores / softcap)
  bool causal = false;          // query i sees only keys j <= i + (keys - queries)
  // Both broadcast to [batch, heads, queries, keys]: a bool mask, and floats that are added.
  std::optional<Value> allowed, bias;
  // Shape [heads, 1, 1]: for each head an additional score in the softmax, whose weight goes to no
  // key.
  std::optional<Value> sink;
  std::optional<Elem> precision;  // type of the softmax, if higher than that of the sums
  // A row whose keys are all hidden by `allowed`, or by -inf in `bias`, gives zeros, as in ONNX.
};

// The scores after the given step, in the element type of q.
struct AttentionScores {
  enum class Step : uint8_t { kProduct, kSoftcap, kBias, kSoftmax } step = Step::kProduct;
  Value scores;
};

// Converts [batch, length, heads * size] to [batch, heads, length, size], and back.
// INVALID_ARGUMENT names `what` if its last axis is no multiple of heads.
absl::StatusOr<Value> SplitHeads(OpBuilder& b, const Value& x, int64_t heads,
                                 std::string_view what);
Value JoinHeads(OpBuilder& b, const Value& x);
// Repeats each head of x so often that the result has `heads` heads.
absl::StatusOr<Value> RepeatHeads(OpBuilder& b, const Value& x, const Expr& heads,
                                  std::string_view what);
// Returns as bools which keys j query i may see: i + offset - left <= j <= i + offset + right; an
// absent bound does not restrict. `offset` is a scalar or [batch, 1, 1, 1], i64.
Value WindowMask(OpBuilder& b, const Expr& queries, const Expr& keys, const Value& offset,
                 std::optional<int64_t> left, std::optional<int64_t> right);
Value Both(OpBuilder& b, const std::optional<Value>& a, const Value& c);

// Returns a value with v's last axis and q's element type. Fills `scores` if it is given.
Value Attend(OpBuilder& b, const Value& q, const Value& k, const Value& v,
             const AttentionSpec& spec, AttentionScores* scores);

// Rotates pairs of elements of x [batch, heads, length, size], as our Rotary op does. cos and sin
// are [batch or 1, 1, length, pairs].
Value Rotated(OpBuilder& b, const Value& x, const Value& cos, const Value& sin, bool interleaved);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_ATTENTION_H_
