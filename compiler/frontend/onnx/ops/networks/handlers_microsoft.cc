// Handlers of com.microsoft's ops: activations, normalisations with ops fused before them,
// products.
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/frontend/onnx/ops/math/handlers_layer_norm.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

Value GeluOf(OpBuilder& b, const Value& x, std::string form) {
  return Unary(b, Op::kGelu, x, {{"approximate", std::move(form)}});
}

absl::Status Gelu(HandlerContext& c) {
  c.Set(0, GeluOf(c.b(), c.In(0), "none"));
  return absl::OkStatus();
}
absl::Status BiasGelu(HandlerContext& c) {
  OpBuilder& b = c.b();
  c.Set(0, Cast(b, GeluOf(b, Add(b, Up(b, c.In(0)), Up(b, c.In(1))), "none"), c.In(0).elem));
  return absl::OkStatus();
}
absl::Status FastGelu(HandlerContext& c) {
  OpBuilder& b = c.b();
  Value x = Up(b, c.In(0));
  if (c.Has(1)) x = Add(b, x, Up(b, c.In(1)));
  c.Set(0, Cast(b, GeluOf(b, x, "tanh"), c.In(0).elem));
  return absl::OkStatus();
}
absl::Status QuickGelu(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  const Value gate = Unary(b, Op::kSigmoid, Mul(b, FloatAttr(c, x, "alpha"), x));
  c.Set(0, Cast(b, Mul(b, x, gate), c.In(0).elem));
  return absl::OkStatus();
}
// Multiplies the left half of X + bias by the Gelu of its right half.
absl::Status BiasSplitGelu(HandlerContext& c) {
  OpBuilder& b = c.b();
  const int axis = c.In(0).rank() - 1;
  if (axis < 0) return Invalid("X is a scalar; it needs an axis to be split");
  const Expr size = c.In(0).shape[axis], half = FloorDiv(size, 2);
  if (!b.bounds().ProvablyEqual(half * 2, size)) {
    return Invalid("the last axis of X has size ", size.ToString(), ", which must be even");
  }
  const Value x = Add(b, Up(b, c.In(0)), Up(b, c.In(1)));
  const Value left = Slice(b, x, axis, 0, half), right = Slice(b, x, axis, half, half);
  c.Set(0, Cast(b, Mul(b, left, GeluOf(b, right, "none")), c.In(0).elem));
  return absl::OkStatus();
}

// --- normalisations

// Returns input + skip + bias in f32 or f64. The axes of skip are the last ones of the input and
// may be 1.
Value SkipSum(HandlerContext& c, int bias) {
  OpBuilder& b = c.b();
  Value sum = Add(b, Up(b, c.In(0)), Broadcast(b, Up(b, c.In(1)), c.In(0).shape));
  if (c.Has(bias)) sum = Add(b, sum, Up(b, c.In(bias)));
  return sum;
}

absl::Status SkipLayerNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Elem elem = c.In(0).elem;
  const Value sum = SkipSum(c, 4);
  if (!b.status().ok()) return absl::OkStatus();
  const int axis = sum.rank() - 1;
  if (axis < 0) return Invalid("input is a scalar; it needs an axis to normalise");
  const double epsilon = c.Float("epsilon");
  const Value scale = Up(b, c.In(2)), bias = c.Has(3) ? Up(b, c.In(3)) : Value();
  const Value y = LayerNormOf(b, sum, scale, c.Has(3) ? &bias : nullptr, axis, epsilon);
  if (c.Wants(0)) c.Set(0, Cast(b, y, elem));
  if (c.Wants(1) || c.Wants(2)) {
    const Moments m = MomentsOf(b, sum, {axis});
    if (c.Wants(1)) c.Set(1, Cast(b, m.mean, Elem::kFloat));
    if (c.Wants(2)) c.Set(2, Cast(b, InverseRoot(b, m.variance, epsilon), Elem::kFloat));
  }
  if (c.Wants(3)) c.Set(3, Cast(b, sum, elem));
  return absl::OkStatus();
}

absl::Status SkipRmsNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Elem elem = c.In(0).elem;
  const Value sum = SkipSum(c, 3);
  if (!b.status().ok()) return absl::OkStatus();
  const int axis = sum.rank() - 1;
  if (axis < 0) return Invalid("input is a scalar; it needs an axis to normalise");
  if (c.Wants(1)) {
    return Unimplemented(
        "its result \"mean\" is for training and is not supported; a root mean square has no mean");
  }
  const double epsilon = c.Float("epsilon");
  if (c.Wants(0)) c.Set(0, Cast(b, RmsNormOf(b, sum, Up(b, c.In(2)), axis, epsilon), elem));
  if (c.Wants(2)) c.Set(2, Cast(b, InverseRms(b, sum, axis, epsilon), Elem::kFloat));
  if (c.Wants(3)) c.Set(3, Cast(b, sum, elem));
  return absl::OkStatus();
}

absl::Status SimplifiedLayerNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  const double epsilon = c.Float("epsilon");
  if (c.Wants(0)) c.Set(0, RmsNormOf(b, c.In(0), c.In(1), axis, epsilon));
  if (c.Wants(1)) c.Set(1, Cast(b, InverseRms(b, Up(b, c.In(0)), axis, epsilon), Elem::kFloat));
  return absl::OkStatus();
}

// Sums and normalises the embeddings of words, positions and segments.
absl::Status EmbedLayerNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& ids = c.In(0);
  if (ids.rank() != 2) {
    return Invalid("input_ids has shape ", ShapeToString(ids.shape),
                   "; it must be [batch, sequence]");
  }
  if (c.Has(1) != c.Has(4)) {
    return Invalid("segment_ids and segment_embedding must be given both or neither");
  }
  for (const auto& [i, name] : {std::pair(2, "word_embedding"), std::pair(3, "position_embedding"),
                                std::pair(4, "segment_embedding")}) {
    if (c.Has(i) && c.In(i).rank() != 2) {
      return Invalid(name, " has shape ", ShapeToString(c.In(i).shape),
                     "; it must be [rows, hidden]");
    }
  }
  const Elem elem = c.In(2).elem;
  const Value places = c.Has(8) ? c.In(8) : b.Iota(Elem::kInt32, {ids.shape[1]}, 0);
  Value sum = Add(b, Up(b, Gather(b, c.In(2), ids, 0)), Up(b, Gather(b, c.In(3), places, 0)));
  if (c.Has(1)) sum = Add(b, sum, Up(b, Gather(b, c.In(4), c.In(1), 0)));
  if (!b.status().ok()) return absl::OkStatus();
  const Value scale = Up(b, c.In(5)), bias = Up(b, c.In(6));
  c.Set(0, Cast(b, LayerNormOf(b, sum, scale, &bias, 2, c.Float("epsilon")), elem));
  if (c.Wants(1)) {
    Value count = Splat(b, b.Integer(Elem::kInt32, 0), {ids.shape[0]});
    if (c.Has(7)) {
      const Value word = Equal(b, c.In(7), b.Integer(c.In(7).elem, 1));
      count = Reduce(b, Op::kSumReduce, Cast(b, word, Elem::kInt32), {1}, false);
    }
    c.Set(1, count);
  }
  if (c.Wants(2)) c.Set(2, Cast(b, sum, elem));
  return absl::OkStatus();
}

// --- products

// Unpacks elements of `bits` bits, packed from the lowest up into the last axis of `packed`, into
// u8 of this shape. `at` is the byte of the element at ($0, $1): element $1 of a row whose runs
// start at whole bytes.
Value Unpacked(OpBuilder& b, const Value& packed, int64_t bits, Shape shape, std::vector<Expr> at) {
  const Value bytes = Map(b, packed, shape, std::move(at));
  if (bits == 8) return bytes;
  const int64_t per_byte = 8 / bits;
  Tensor places = Tensor::Zeros(DType::kU8, {per_byte});
  for (int64_t i = 0; i < per_byte; ++i) places.bytes[i] = static_cast<char>(i * bits);
  const Value shift = Map(b, b.Literal(Elem::kUInt8, std::move(places)), std::move(shape),
                          {Mod(Expr::Axis(1), per_byte)});
  return And(b, Binary(b, Op::kShift, bytes, shift, {{"direction", std::string("right")}}),
             b.Integer(Elem::kUInt8, (int64_t{1} << bits) - 1));
}

// B [N, blocks, bytes of a block] and its scales give W [N, K] = (q - zero) * scale in A's type.
// The result is A times the transpose of W.
absl::Status MatMulNBits(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const int64_t k = c.Int("K"), n = c.Int("N"), bits = c.Int("bits"), block = c.Int("block_size");
  if (bits != 2 && bits != 4 && bits != 8) return Invalid("bits=", bits, " must be 2, 4 or 8");
  if (k < 1 || n < 1) return Invalid("K=", k, " and N=", n, " must be at least 1");
  if (block < 16 || (block & (block - 1)) != 0) {
    return Invalid("block_size=", block, " must be a power of 2 and at least 16");
  }
  if (c.Has(4)) return Unimplemented("its operand g_idx is deprecated and not supported");
  if (c.Int("weight_prepacked") != 0) {
    return Unimplemented("weight_prepacked=", c.Int("weight_prepacked"),
                         " is a layout of another backend; export the weights as they are");
  }
  if (x.rank() < 1 || !b.bounds().ProvablyEqual(x.shape.back(), k)) {
    return Invalid("A has shape ", ShapeToString(x.shape), "; its last axis must be K=", k);
  }
  const int64_t blocks = (k - 1) / block + 1, per_byte = 8 / bits;
  const int64_t zero_bytes = (blocks - 1) / per_byte + 1;
  const Expr row = Expr::Axis(0), column = Expr::Axis(1), of_block = FloorDiv(column, block);
  const Shape shape = {n, k};
  // Some files store them with fewer axes.
  const Value packed = Reshape(b, c.In(1), {n, blocks, block / per_byte});
  const Value q =
      Unpacked(b, packed, bits, shape, {row, of_block, FloorDiv(Mod(column, block), per_byte)});
  const Value scale = Up(b, Map(b, Reshape(b, c.In(2), {n, blocks}), shape, {row, of_block}));
  Value zero = b.Scalar(scale.elem, static_cast<double>(int64_t{1} << (bits - 1)));
  if (c.Has(3) && c.In(3).elem == Elem::kUInt8) {
    const Value all = Unpacked(b, Reshape(b, c.In(3), {n, zero_bytes}), bits, {n, blocks},
                               {row, FloorDiv(column, per_byte)});
    zero = Cast(b, Map(b, all, shape, {row, of_block}), scale.elem);
  } else if (c.Has(3)) {
    zero = Cast(b, Map(b, Reshape(b, c.In(3), {n, blocks}), shape, {row, of_block}), scale.elem);
  }
  const Value w = Cast(b, Mul(b, Sub(b, Cast(b, q, scale.elem), zero), scale), x.elem);
  Value y = MatMul(b, x, Permute(b, w, std::vector<int>{1, 0}));
  if (c.Has(5)) y = Add(b, y, c.In(5));
  c.Set(0, y);
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {kDomain, "BiasGelu", 1, BiasGelu},
    {kDomain, "BiasSplitGelu", 1, BiasSplitGelu},
    {kDomain, "EmbedLayerNormalization", 1, EmbedLayerNorm},
    {kDomain, "FastGelu", 1, FastGelu},
    {kDomain, "Gelu", 1, Gelu},
    {kDomain, "MatMulNBits", 1, MatMulNBits},
    {kDomain, "QuickGelu", 1, QuickGelu},
    {kDomain, "SkipLayerNormalization", 1, SkipLayerNorm},
    {kDomain, "SkipSimplifiedLayerNormalization", 1, SkipRmsNorm},
    // Written by ONNX Runtime, though in ONNX's domain.
    {"", "SimplifiedLayerNormalization", 1, SimplifiedLayerNorm},
};

}  // namespace

absl::Span<const HandlerRow> MicrosoftRows() {
  static const auto& rows = *[] {
    auto* all = new std::vector<HandlerRow>;
    for (const auto part : {absl::Span<const HandlerRow>(kRows), MicrosoftQuantisedRows()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace athanor::onnx
