// Parts of transformer models besides attention: Rotary, Dequantize.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr std::string_view kCos = "cos, operand 1,", kSin = "sin, operand 2,";

// Checks that cos is of rank 2, or of x's rank with leading axes equal to x's or 1.
absl::Status CheckAngles(const TensorType& cos, const TensorType& x, const Bounds& bounds) {
  const int full = static_cast<int>(x.shape.size()), rank = static_cast<int>(cos.shape.size());
  if (rank != 2 && rank != full) {
    return Invalid(kCos, " has shape ", ShapeToString(cos.shape), "; its rank must be 2 or ", full,
                   ", that of x");
  }
  for (int i = 0; i + 2 < rank; ++i) {
    if (cos.shape[i].IsConstant(1)) continue;
    absl::Status s = CheckSameSize("x", i, x.shape[i], kCos, i, cos.shape[i], bounds);
    if (!s.ok()) return s;
  }
  absl::Status s =
      CheckSameSize("x", full - 2, x.shape[full - 2], kCos, rank - 2, cos.shape[rank - 2], bounds);
  if (!s.ok()) return s;
  const Expr rotated = 2 * cos.shape.back();
  if (bounds.NonNegative(x.shape.back() - rotated)) return absl::OkStatus();
  return Invalid(kCos, " rotates ", rotated.ToString(),
                 " elements, twice its last axis, which is "
                 "not provably at most ",
                 x.shape.back().ToString(), ", the last axis of x");
}

// Returns the result's shape for Dequantize.
absl::StatusOr<Shape> UnpackedShape(const TensorType& packed, const Attrs& attrs,
                                    const Bounds& bounds) {
  const int64_t width = 8 * DTypeBytes(packed.dtype);
  const int64_t bits = GetAttrOr<int64_t>(attrs, "bits", width);
  const bool split = width == 8 && (bits == 2 || bits == 4);
  if (bits != width && !split) {
    return Invalid("bits=", bits, " must be ", width, ", the width of ", DTypeName(packed.dtype),
                   width == 8 ? ", or 4 or 2, packed" : "; fewer are packed in u8 or i8");
  }
  Shape shape = packed.shape;
  if (!split) {
    if (!attrs.contains("size")) return shape;
    return Invalid("has the attribute size, but nothing is packed: leave it out");
  }
  if (shape.empty()) return Invalid("packed, operand 0, has rank 0; it needs an axis to unpack");
  shape.back() *= width / bits;
  if (!attrs.contains("size")) return shape;
  const Shape& size = GetAttr<Shape>(attrs, "size");
  if (size.size() != 1) return Invalid("size holds ", size.size(), " sizes; it must hold one");
  if (!bounds.NonNegative(shape.back() - size[0])) {
    return Invalid("size=", size[0].ToString(), " is not provably at most ",
                   shape.back().ToString(), ", the number of elements packed along the last axis");
  }
  shape.back() = size[0];
  return shape;
}

absl::Status CheckScale(const TensorType& scale, const Shape& result, const Attrs& attrs,
                        const Bounds& bounds) {
  constexpr std::string_view kScale = "scale, operand 1,";
  const int64_t block = GetAttrOr<int64_t>(attrs, "block", 0);
  RETURN_IF_ERROR(CheckDType(kScale, scale.dtype, DTypeClass::kFloats));
  if (block < 0) return Invalid("block=", block, " must not be negative");
  if (scale.shape.empty()) {
    if (block == 0) return absl::OkStatus();
    return Invalid(kScale, " has rank 0, so it has no blocks: leave out block");
  }
  const int64_t axis = GetAttrOr<int64_t>(attrs, "axis", 0);
  RETURN_IF_ERROR(CheckAxis("axis", axis, result));
  if (block == 0) {
    RETURN_IF_ERROR(CheckRank(kScale, scale.shape, 1));
    return CheckSameSize("the result", static_cast<int>(axis), result[axis], kScale, 0,
                         scale.shape[0], bounds);
  }
  Shape blocks = result;
  blocks[axis] = CeilDiv(result[axis], block);
  return CheckSameShape(kScale, scale.shape, "the result's blocks", blocks, bounds);
}

absl::StatusOr<TensorType> InferRotary(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& x = inputs[0];
  if (x.shape.size() < 2) {
    return Invalid("x, operand 0, has shape ", ShapeToString(x.shape),
                   "; it needs at least the axes [L, D]");
  }
  absl::Status s = CheckDType("x, operand 0,", x.dtype, DTypeClass::kFloats);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "cos", inputs[1].dtype);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "sin", inputs[2].dtype);
  if (s.ok()) s = CheckSameShape(kCos, inputs[1].shape, kSin, inputs[2].shape, bounds);
  if (s.ok()) s = CheckAngles(inputs[1], x, bounds);
  if (!s.ok()) return s;
  return x;
}

absl::StatusOr<TensorType> InferDequantize(TypeSpan inputs, const Attrs& attrs,
                                           const Bounds& bounds) {
  const TensorType& packed = inputs[0];
  const DType dtype = GetAttr<DType>(attrs, "dtype");
  absl::Status s = CheckDType("packed, operand 0,", packed.dtype, DTypeClass::kIntegers);
  if (s.ok() && DTypeBytes(packed.dtype) > 4) {
    s = Unimplemented("packed, operand 0, has dtype ", DTypeName(packed.dtype),
                      ", but the op takes integers of up to 32 bits: convert it with "
                      "Cast(dtype=i32)");
  }
  if (s.ok()) s = CheckDType("the result", dtype, DTypeClass::kFloats);
  if (!s.ok()) return s;
  ASSIGN_OR_RETURN(Shape shape, UnpackedShape(packed, attrs, bounds));
  s = CheckScale(inputs[1], shape, attrs, bounds);
  if (s.ok() && inputs.size() > 2) {
    s = CheckSameDType("packed", packed.dtype, "zero, operand 2,", inputs[2].dtype);
    if (s.ok()) {
      s = CheckSameShape("scale", inputs[1].shape, "zero, operand 2,", inputs[2].shape, bounds);
    }
  }
  if (!s.ok()) return s;
  return TensorType{dtype, std::move(shape)};
}

// Element strides of cos and sin over x's leading axes and L: aligned at the last axis, zero where
// they have one element.
std::vector<int64_t> AngleStrides(const Tensor& cos, size_t rank) {
  const std::vector<int64_t> own = Strides(cos.shape);
  const size_t missing = rank - cos.shape.size();
  std::vector<int64_t> strides(rank, 0);
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    if (cos.shape[i] != 1 || i + 2 == own.size()) strides[missing + i] = own[i];
  }
  return strides;
}

// Returns element `index` of a row that packs elements of `bits` bits into integers, lowest first.
int64_t Unpacked(const Tensor& packed, int64_t row, int64_t index, int64_t bits) {
  const int64_t per = 8 * DTypeBytes(packed.dtype) / bits;
  const Scalar whole = LoadScalar(packed, row + index / per);
  if (per == 1) return IsSigned(packed.dtype) ? whole.i : static_cast<int64_t>(whole.u);
  const uint64_t code = whole.u >> (index % per * bits) & ((uint64_t{1} << bits) - 1);
  const bool negative = IsSigned(packed.dtype) && (code >> (bits - 1)) != 0;
  return static_cast<int64_t>(code) - (negative ? int64_t{1} << bits : 0);
}

int64_t LoadInteger(const Tensor& t, int64_t i) {
  const Scalar s = LoadScalar(t, i);
  return IsSigned(t.dtype) ? s.i : static_cast<int64_t>(s.u);
}

absl::Status ReferenceRotary(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                             const Expr::Env& dims, Tensor* result) {
  const Tensor &x = *inputs[0], &cos = *inputs[1], &sin = *inputs[2];
  const bool interleaved = GetAttrOr<bool>(attrs, "interleaved", false);
  const int64_t half = cos.shape.back(), width = x.shape.back();
  const std::vector<int64_t> strides = AngleStrides(cos, x.shape.size());
  std::vector<int64_t> rows = x.shape;
  rows.back() = 1;
  result->bytes = x.bytes;
  WithReal(x.dtype, [&](auto zero) {
    using Real = decltype(zero);
    ForEachElement(rows, [&](int64_t row, const std::vector<int64_t>& at) {
      int64_t angles = 0;
      for (size_t i = 0; i < at.size(); ++i) angles += at[i] * strides[i];
      for (int64_t i = 0; i < half; ++i) {
        const int64_t a = row * width + (interleaved ? 2 * i : i), b = a + (interleaved ? 1 : half);
        const Real c = LoadScalar(cos, angles + i).f, s = LoadScalar(sin, angles + i).f;
        const Real first = LoadScalar(x, a).f, second = LoadScalar(x, b).f;
        StoreReal(result, a, first * c - second * s);
        StoreReal(result, b, second * c + first * s);
      }
    });
  });
  return absl::OkStatus();
}

absl::Status ReferenceDequantize(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                                 const Expr::Env& dims, Tensor* result) {
  const Tensor &packed = *inputs[0], &scale = *inputs[1];
  const int64_t bits = GetAttrOr<int64_t>(attrs, "bits", 8 * DTypeBytes(packed.dtype));
  const int64_t axis = GetAttrOr<int64_t>(attrs, "axis", 0);
  const int64_t block = GetAttrOr<int64_t>(attrs, "block", 0);
  const std::vector<int64_t> strides = Strides(scale.shape);
  const bool scalar = result->shape.empty();
  const int64_t stored = scalar ? 1 : packed.shape.back();
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    ForEachElement(result->shape, [&](int64_t i, const std::vector<int64_t>& at) {
      int64_t place = 0;  // position of the scale
      for (size_t a = 0; a < scale.shape.size(); ++a) {
        const bool counted = block > 0 && static_cast<int64_t>(a) == axis;
        place += (block == 0 ? at[axis] : counted ? at[a] / block : at[a]) * strides[a];
      }
      const int64_t row = scalar ? 0 : i / result->shape.back() * stored;
      int64_t value = Unpacked(packed, row, scalar ? 0 : at.back(), bits);
      if (inputs.size() > 2) value -= LoadInteger(*inputs[2], place);
      StoreReal(result, i,
                static_cast<Real>(value) * static_cast<Real>(LoadScalar(scale, place).f));
    });
  });
  return absl::OkStatus();
}

// x [..., L, D], cos and sin [L, R/2] or [..., L, R/2]; x's shape.
AxisFlow RotaryFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  const int rank = static_cast<int>(flow[0].size());
  flow[0][rank - 1] = kMixed;
  for (int operand : {1, 2}) {
    const Shape& angles = graph.node(node.inputs[operand]).type.shape;
    const int leading = static_cast<int>(angles.size()) - 2;
    for (int i = 0; i < leading; ++i) {
      if (angles[i].IsConstant(1)) flow[operand][i] = kMixed;  // broadcast: no axis of the result
    }
    flow[operand][leading] = rank - 2;
    flow[operand][leading + 1] = kMixed;
  }
  return flow;
}

// Elements are packed along the last axis. If scale blocks hold more than one element each, no
// block may end within a row.
AxisFlow DequantizeFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  const int64_t width = 8 * DTypeBytes(graph.node(node.inputs[0]).type.dtype);
  const bool packed = GetAttrOr<int64_t>(node.attrs, "bits", width) != width;
  if (packed) flow[0].back() = kMixed;
  const auto axis = static_cast<size_t>(GetAttrOr<int64_t>(node.attrs, "axis", 0));
  const bool blocks = GetAttrOr<int64_t>(node.attrs, "block", 0) > 0;
  if (blocks) flow[0][axis] = kMixed;
  for (size_t i = 1; i < flow.size(); ++i) {
    if (blocks) {
      flow[i][axis] = kMixed;
    } else if (!flow[i].empty()) {
      flow[i] = {static_cast<int>(axis)};
    }
  }
  return flow;
}

// Pulls whole rows of x with their angles, as [rows, 1, D] and [rows, 1, R/2].
absl::Status SampleRotary(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> shape = cutter.ShapeOf(n), cos = cutter.ShapeOf(node.inputs[1]);
  const int64_t width = shape.back(), half = cos.back();
  const std::vector<int64_t> own = Strides(cos);
  std::vector<int64_t> strides(shape.size(), 0);
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    const bool spread = cos[i] == 1 && i + 2 < own.size();
    if (!spread) strides[shape.size() - own.size() + i] = own[i];
  }
  Positions firsts, picks, angles;
  for (int64_t p : cutter.Wanted(n)) {  // ascending
    const int64_t first = p - p % width;
    if (firsts.empty() || firsts.back() != first) firsts.push_back(first);
    picks.push_back((Count(firsts) - 1) * width + p % width);
  }
  const int64_t rows = Count(firsts);
  RETURN_IF_ERROR(cutter.Spend(n, rows, width));
  RETURN_IF_ERROR(cutter.Spend(n, rows, 2 * half));
  for (int64_t first : firsts) angles.push_back(Dot(CoordinatesOf(shape, first), strides));
  const Cutter::Handle x = cutter.Pull(node.inputs[0], {rows, 1, width}, Sums(firsts, UpTo(width)));
  const Cutter::Handle c = cutter.Pull(node.inputs[1], {rows, 1, half}, Sums(angles, UpTo(half)));
  const Cutter::Handle s = cutter.Pull(node.inputs[2], {rows, 1, half}, Sums(angles, UpTo(half)));
  cutter.RecipeOf(n) = [&cutter, n, rows, width, x, c, s, picks = std::move(picks)] {
    return cutter.Add(
        Op::kGather,
        {cutter.Flatten(cutter.Add(Op::kRotary, {cutter.Get(x), cutter.Get(c), cutter.Get(s)},
                                   cutter.graph().node(n).attrs),
                        {rows, 1, width}),
         cutter.IndexLiteral({Count(picks)}, picks)},
        {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

// Pulls the packed integers that hold each element, as [count, 1], and its scale and zero, as
// vectors.
absl::Status SampleDequantize(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> shape = cutter.ShapeOf(n), scale = cutter.ShapeOf(node.inputs[1]);
  const int64_t width = 8 * DTypeBytes(cutter.graph().node(node.inputs[0]).type.dtype);
  const int64_t per = width / GetAttrOr<int64_t>(node.attrs, "bits", width);
  const int64_t axis = GetAttrOr<int64_t>(node.attrs, "axis", 0);
  const int64_t block = GetAttrOr<int64_t>(node.attrs, "block", 0);
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, static_cast<int64_t>(node.inputs.size())));
  const std::vector<int64_t> strides = Strides(scale);
  const int64_t last = shape.empty() ? 1 : shape.back();
  const int64_t stored = shape.empty() ? 1 : cutter.ShapeOf(node.inputs[0]).back();
  Positions packed, picks, scales;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t p = cutter.Wanted(n)[w];
    std::vector<int64_t> at = CoordinatesOf(shape, p);
    packed.push_back(p / last * stored + p % last / per);
    picks.push_back(w * per + p % last % per);
    if (block > 0) at[axis] /= block;
    scales.push_back(scale.empty() ? 0 : block > 0 ? Dot(at, strides) : at[axis]);
  }
  std::vector<Cutter::Handle> operands = {
      cutter.Pull(node.inputs[0], {count, 1}, std::move(packed))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    operands.push_back(cutter.Pull(node.inputs[i], {count}, scales));
  }
  cutter.RecipeOf(n) = [&cutter, n, count, per, operands,
                        picks = std::move(picks)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Cutter::Handle operand : operands) {
      ASSIGN_OR_RETURN(NodeId id, cutter.Get(operand));
      ids.push_back(id);
    }
    Attrs attrs = cutter.graph().node(n).attrs;
    attrs.erase("block");
    attrs.erase("size");
    attrs["axis"] = int64_t{0};
    return cutter.Add(
        Op::kGather,
        {cutter.Flatten(cutter.builder().Add(Op::kDequantize, std::move(ids), std::move(attrs)),
                        {count, per}),
         cutter.IndexLiteral({Count(picks)}, picks)},
        {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

}  // namespace

void AddTransformers(Rows* rows) {
  ATHANOR_ROW(
      Rotary, kComposite, 3, 3,
      ATHANOR_ATTRS(Optional("interleaved", AttrType::kBool,
                             "pairs are neighbours, not of two halves", AttrValue(false))),
      InferRotary, 0,
      "Operands x [..., L, D], cos and sin [L, R/2] or of x's rank with leading axes equal to "
      "x's or 1; R is twice their last axis and at most D. The first R elements of each row "
      "are pairs, i and i + R/2, with `interleaved` 2i and 2i + 1: (a, b) becomes (a * cos - "
      "b * sin, b * cos + a * sin) with element i of cos and sin. The others stay, bit for "
      "bit. f16 and bf16 compute in f32 and round once.",
      .rows = {RotaryFlow, "rotates across"}, .sample = SampleRotary);
  ATHANOR_ROW(
      Dequantize, kComposite, 2, 3,
      ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "the result's dtype, a float"),
                    Optional("bits", AttrType::kInt,
                             "of an element: packed's width; or 4 or 2, packed in u8 or i8"),
                    Optional("size", AttrType::kShape,
                             "one size: the last axis of what is packed; else all of it"),
                    Optional("axis", AttrType::kInt,
                             "the result's axis that scales differ "
                             "along",
                             AttrValue(int64_t{0})),
                    Optional("block", AttrType::kInt,
                             "elements along `axis` that share a scale; 0: each has its own",
                             AttrValue(int64_t{0}))),
      InferDequantize, 1,
      "Operands packed (integers of up to 32 bits), scale (a float), optional zero (packed's "
      "dtype, scale's shape): (value - zero) * scale. Of fewer `bits` than packed's, values "
      "lie along the last axis, lowest bits first, signed if packed's dtype is. scale has "
      "rank 0, or rank 1 and the size of `axis`, or with `block` the result's rank and, "
      "along `axis`, one element per block, the last of which may be short. The difference "
      "is exact; it and scale are converted to the result's dtype, of f16 and bf16 to f32, "
      "multiplied there and rounded to the result's dtype.",
      .rows = {DequantizeFlow, "unpacks or shares a scale across"}, .sample = SampleDequantize);
}

}  // namespace athanor
