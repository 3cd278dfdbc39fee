// Decomposes Rotary and Dequantize.
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

std::vector<Expr> AxesOf(size_t rank) {
  std::vector<Expr> axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(Expr::Axis(static_cast<int>(i)));
  return axes;
}

NodeId FilledMap(Expansion& x, NodeId n, const Shape& shape, std::vector<Expr> coordinates) {
  return x.Add(Op::kIndexMap, {n},
               {{"map", IndexMap{shape, std::move(coordinates)}},
                {"fill", Tensor::Zeros(x.Type(n).dtype, {})}});
}

// Returns the element at `last` on the last axis, in the same row; 0 if there is none.
NodeId AlongRow(Expansion& x, NodeId n, const Expr& last) {
  const Shape shape = x.Type(n).shape;
  std::vector<Expr> coordinates = AxesOf(shape.size());
  coordinates.back() = last;
  return FilledMap(x, n, shape, std::move(coordinates));
}

// Returns the same for cos and sin, at x's rows.
NodeId Angle(Expansion& x, NodeId n, const Shape& shape, const Expr& last) {
  const Shape& own = x.Type(n).shape;
  std::vector<Expr> coordinates;
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    const auto axis = static_cast<int>(i + shape.size() - own.size());
    const bool spread = own[i].IsConstant(1) && i + 2 < own.size();
    coordinates.push_back(spread ? Expr(0) : Expr::Axis(axis));
  }
  coordinates.push_back(last);
  return FilledMap(x, n, shape, std::move(coordinates));
}

NodeId Positions(Expansion& x, const Shape& shape, int64_t axis, DType dtype) {
  return x.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", dtype}});
}

// Broadcasts a scale or zero point: per block of `axis`, per element of `axis`, or one for all.
NodeId PerBlock(Expansion& x, NodeId n, const Shape& shape, const Attrs& attrs) {
  const int64_t axis = GetAttrOr<int64_t>(attrs, "axis", 0);
  const int64_t block = GetAttrOr<int64_t>(attrs, "block", 0);
  if (x.Type(n).shape.empty()) return x.Map(n, shape, {});
  if (block == 0) return x.Map(n, shape, {Expr::Axis(static_cast<int>(axis))});
  std::vector<Expr> coordinates = AxesOf(shape.size());
  coordinates[axis] = FloorDiv(coordinates[axis], block);
  return x.Map(n, shape, std::move(coordinates));
}

// Unpacks elements of `bits` bits from u8 or i8, lowest first; signed ones keep their sign.
NodeId Unpack(Expansion& x, NodeId packed, const Shape& shape, int64_t bits) {
  const DType dtype = x.Type(packed).dtype;
  const int64_t per = 8 / bits, last = static_cast<int64_t>(shape.size()) - 1;
  std::vector<Expr> coordinates = AxesOf(shape.size());
  coordinates.back() = FloorDiv(coordinates.back(), per);
  NodeId whole = x.Map(packed, shape, std::move(coordinates));
  NodeId position = Positions(x, shape, last, DType::kI32);
  NodeId within = x.Add(Op::kMod, {position, x.FillLike(position, static_cast<double>(per))});
  NodeId from =
      x.Cast(x.Add(Op::kMul, {within, x.FillLike(within, static_cast<double>(bits))}), dtype);
  const auto shift = [&](NodeId n, NodeId by, const char* direction) {
    return x.Add(Op::kShift, {n, by}, {{"direction", std::string(direction)}});
  };
  if (!IsSigned(dtype)) {
    return x.Add(Op::kAnd, {shift(whole, from, "right"),
                            x.FillLike(whole, static_cast<double>((1 << bits) - 1))});
  }
  NodeId rest = x.FillLike(from, static_cast<double>(8 - bits));
  return shift(shift(whole, x.Sub(rest, from), "left"), rest, "right");
}

// x * cos + partner * sin: the partner of an element of the first half of what is rotated is in the
// second, and counts negatively.
NodeId ExpandRotary(Expansion& x, const Node& node, Inputs in) {
  const Shape shape = node.type.shape;
  const int64_t axis = static_cast<int64_t>(shape.size()) - 1;
  const Expr half = x.Type(in[1]).shape.back(), last = Expr::Axis(static_cast<int>(axis));
  const DType wide = AccumulatorOf(node.type.dtype);
  NodeId v = x.Cast(in[0], wide), cos = x.Cast(in[1], wide), sin = x.Cast(in[2], wide);
  NodeId position = Positions(x, shape, axis, DType::kI64);
  NodeId first, c, s, up, down;
  if (GetAttrOr<bool>(node.attrs, "interleaved", false)) {
    NodeId parity = x.Add(Op::kMod, {position, x.FillLike(position, 2)});
    first = x.Add(Op::kLessThan, {parity, x.FillLike(parity, 1)});
    up = AlongRow(x, v, last + 1);
    down = AlongRow(x, v, last - 1);
    c = Angle(x, cos, shape, FloorDiv(last, 2));
    s = Angle(x, sin, shape, FloorDiv(last, 2));
  } else {
    first = x.Add(Op::kLessThan, {position, x.Size(DType::kI64, half, shape)});
    up = AlongRow(x, v, last + half);
    down = AlongRow(x, v, last - half);
    const auto either = [&](NodeId n) {
      return x.Add(Op::kSelect, {first, Angle(x, n, shape, last), Angle(x, n, shape, last - half)});
    };
    c = either(cos);
    s = either(sin);
  }
  NodeId partner = x.Add(Op::kSelect, {first, up, down});
  NodeId minus = x.Add(Op::kMul, {s, x.FillLike(s, -1)});
  NodeId sum = x.Add(Op::kAdd, {x.Add(Op::kMul, {v, c}),
                                x.Add(Op::kMul, {partner, x.Add(Op::kSelect, {first, minus, s})})});
  NodeId rotated = x.Cast(sum, node.type.dtype);
  if ((shape.back() - 2 * half).IsConstant(0)) return rotated;
  NodeId inside = x.Add(Op::kLessThan, {position, x.Size(DType::kI64, 2 * half, shape)});
  return x.Add(Op::kSelect, {inside, rotated, in[0]});
}

NodeId ExpandDequantize(Expansion& x, const Node& node, Inputs in) {
  const Shape shape = node.type.shape;
  const DType packed = x.Type(in[0]).dtype, wide = AccumulatorOf(node.type.dtype);
  const int64_t width = 8 * DTypeBytes(packed);
  const int64_t bits = GetAttrOr<int64_t>(node.attrs, "bits", width);
  // Differences of 32-bit integers need one more bit.
  const DType exact = width == 32 ? DType::kI64 : DType::kI32;
  NodeId value = x.Cast(bits == width ? in[0] : Unpack(x, in[0], shape, bits), exact);
  if (in.size() > 2) value = x.Sub(value, x.Cast(PerBlock(x, in[2], shape, node.attrs), exact));
  NodeId scale = x.Cast(PerBlock(x, in[1], shape, node.attrs), wide);
  return x.Cast(x.Add(Op::kMul, {x.Cast(value, wide), scale}), node.type.dtype);
}

void RotaryExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), length = e.Size();
  const int64_t half = e.ConstantSize();
  const NodeId x = e.Input({batch, length, 2 * half + e.Pick(0, 2)});
  const Shape angles = e.Coin() ? Shape{length, half} : Shape{1, length, half};
  const NodeId cos = e.FiniteInput(angles);
  e.Output(e.x().Add(Op::kRotary, {x, cos, e.FiniteInput(angles)}, {{"interleaved", e.Coin()}}));
}

void DequantizeExample(ExampleBuilder& e) {
  const int64_t rows = e.ConstantSize(), columns = e.ConstantSize();
  const NodeId packed = e.Input({rows, columns}, e.Coin() ? DType::kU8 : DType::kI8);
  e.Output(e.x().Add(Op::kDequantize, {packed, e.Input({rows})},
                     {{"dtype", e.dtype()}, {"bits", int64_t{e.Coin() ? 4 : 8}}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kRotary, "rotary", "x * cos + partner * sin", ExpandRotary, RotaryExample},
    {Op::kDequantize, "dequantize", "(unpacked - zero) * scale", ExpandDequantize,
     DequantizeExample},
};

}  // namespace

absl::Span<const DecompositionRow> TransformerDecompositions() { return kRows; }

}  // namespace athanor
