// Handler of LinearAttention: keys write values into a state per head, and queries read it.
#include <cmath>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/networks/handlers_recurrent.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

struct Heads {
  int64_t queries, keys;  // number of heads
  int64_t key_size, value_size;
};

absl::StatusOr<Heads> HeadsOf(const HandlerContext& c) {
  const int64_t queries = c.Int("q_num_heads"), keys = c.Int("kv_num_heads");
  if (queries < 1 || keys < 1 || queries % keys != 0) {
    return Invalid("attribute q_num_heads is ", queries, ", kv_num_heads ", keys,
                   "; the first must be a multiple of the second, and both 1 or more");
  }
  const auto per_head = [&](int operand, int64_t heads) -> int64_t {
    const Value& v = c.In(operand);
    const std::optional<int64_t> size = v.rank() == 3 ? v.shape[2].constant() : std::nullopt;
    return size && *size > 0 && *size % heads == 0 ? *size / heads : 0;
  };
  const Heads h = {queries, keys, per_head(0, queries), per_head(2, keys)};
  if (h.key_size > 0 && per_head(1, keys) == h.key_size && h.value_size > 0) return h;
  return Invalid("query, key and value have shapes ", ShapeToString(c.In(0).shape), ", ",
                 ShapeToString(c.In(1).shape), " and ", ShapeToString(c.In(2).shape),
                 "; they must be [batch, length, heads * size] with ", queries, ", ", keys, " and ",
                 keys, " heads, and one constant size for query and key");
}

// Returns [batch, length, heads * size] as [length, batch, heads, size] in f32.
Value Split(OpBuilder& b, const Value& v, int64_t heads) {
  const Value wide = Cast(b, v, Elem::kFloat);
  const Expr size = FloorDiv(v.shape[2], heads);
  return Permute(b, Reshape(b, wide, {v.shape[0], v.shape[1], heads, size}), {1, 0, 2, 3});
}

absl::Status CheckGiven(const HandlerContext& c, int operand, std::string_view name, bool needed,
                        const std::string& rule) {
  if (c.Has(operand) == needed) return absl::OkStatus();
  return Invalid("update_rule ", Quoted(rule), needed ? " needs " : " takes no ", name);
}

struct Operands {
  Value query, key, value;           // [length, batch, heads, size]
  std::optional<Value> decay, beta;  // [length, batch, heads or 1, size or 1]
};

absl::StatusOr<Operands> OperandsOf(HandlerContext& c, const Heads& h) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(std::string rule,
                   c.OneOf("update_rule", {"linear", "gated", "delta", "gated_delta"}));
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  absl::Status s = CheckGiven(c, 4, "decay", gated, rule);
  if (s.ok()) s = CheckGiven(c, 5, "beta", delta, rule);
  if (!s.ok()) return s;
  Operands o = {Split(b, c.In(0), h.queries), Split(b, c.In(1), h.keys), Split(b, c.In(2), h.keys),
                std::nullopt, std::nullopt};
  if (gated) {
    const Value& decay = c.In(4);
    if (decay.rank() != 3 ||
        !(decay.shape[2].IsConstant(h.keys) || decay.shape[2].IsConstant(h.keys * h.key_size))) {
      return Invalid("decay has shape ", ShapeToString(decay.shape), "; its last axis must be ",
                     h.keys, " or ", h.keys * h.key_size);
    }
    o.decay = Unary(b, Op::kExp, Split(b, decay, h.keys));
  }
  if (delta) {
    const Value& beta = c.In(5);
    if (beta.rank() != 3 || !(beta.shape[2].IsConstant(h.keys) || beta.shape[2].IsConstant(1))) {
      return Invalid("beta has shape ", ShapeToString(beta.shape), "; its last axis must be ",
                     h.keys, " or 1");
    }
    o.beta = Split(b, beta, beta.shape[2].IsConstant(1) ? 1 : h.keys);
  }
  return o;
}

// Slices of Operands' values for one step.
struct Slices {
  Value query, key, value;
  std::optional<Value> decay, beta;
};

// Returns the state after a step, [batch, heads, key_size, value_size].
Value NextState(OpBuilder& b, const Slices& o, Value state) {
  Value value = o.value;
  if (o.decay) state = Mul(b, state, Unsqueeze(b, *o.decay, {3}));
  if (o.beta) {
    const Value held = Contract(b, "bhdm,bhd->bhm", state, o.key);
    value = Mul(b, *o.beta, Sub(b, value, held));
  }
  return Add(b, state, Mul(b, Unsqueeze(b, o.key, {3}), Unsqueeze(b, value, {2})));
}

}  // namespace

absl::Status LinearAttention(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(Heads heads, HeadsOf(c));
  const Heads& h = heads;
  ASSIGN_OR_RETURN(Operands o, OperandsOf(c, h));
  const Expr batch = c.In(0).shape[0];
  const Shape shape = {batch, h.keys, h.key_size, h.value_size};
  Value state = Splat(b, b.Scalar(Elem::kFloat, 0), shape);
  if (c.Has(3)) {
    const Value& past = c.In(3);
    bool fits = past.rank() == 4;
    for (int i = 0; fits && i < 4; ++i) fits = b.bounds().ProvablyEqual(past.shape[i], shape[i]);
    if (!fits) {
      return Invalid("past_state has shape ", ShapeToString(past.shape), "; it must be ",
                     ShapeToString(shape));
    }
    state = Cast(b, past, Elem::kFloat);
  }
  double scale = c.Float("scale");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(h.key_size));
  Tensor factor = Tensor::Zeros(DType::kF32, {});
  StoreScalar(factor, 0, Scalar::Float(DType::kF32, scale));
  const Value by = b.Literal(Elem::kFloat, std::move(factor));
  const Shape grouped = {batch, h.keys, h.queries / h.keys, h.key_size};
  const Shape read_shape = {batch, Expr(h.queries) * h.value_size};
  std::vector<Value> scanned = {o.query, o.key, o.value};
  if (o.decay) scanned.push_back(*o.decay);
  if (o.beta) scanned.push_back(*o.beta);
  const auto step = [&](const Value&, const std::vector<Value>& slices,
                        const std::vector<Value>& states) -> std::vector<Value> {
    Slices at = {slices[0], slices[1], slices[2], std::nullopt, std::nullopt};
    if (o.decay) at.decay = slices[3];
    if (o.beta) at.beta = slices.back();
    const Value next = NextState(b, at, states[0]);
    const Value query = Reshape(b, at.query, grouped);
    return {next, Reshape(b, Contract(b, "bhgd,bhdm->bhgm", query, next), read_shape)};
  };
  Sequence::Ran ran = Sequence(c.In(0).shape[1]).Run(b, scanned, {state}, /*reverse=*/false, step);
  const Value &y = ran.stacked[0], &last = ran.last[0];
  if (c.Wants(0)) c.Set(0, Cast(b, Mul(b, Permute(b, y, {1, 0, 2}), by), c.In(0).elem));
  if (c.Wants(1)) c.Set(1, Cast(b, last, c.Has(3) ? c.In(3).elem : c.In(0).elem));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
