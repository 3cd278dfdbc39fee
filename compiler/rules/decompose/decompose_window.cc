// Decomposes ops that slide a window: Conv, Pool.
//
// A window is an IndexMap with an axis for each of the kernel's beside each of the result's, at
// out*stride + kernel*dilation - begin. It is affine, so that a Contract packs it where it lies
// (an implicit im2col) and a reduction reads it where it is.
#include <string>
#include <utility>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

// Letters of a contraction's axes: n, g, m, c, and by spatial axis.
constexpr std::string_view kOutLetters = "uvwxyz", kKernelLetters = "UVWXYZ";

// A window's geometry. A kernel axis with only one element gets no axis of its own.
struct Windows {
  Windows(const Node& node, Shape kernel_sizes)
      : kernel(std::move(kernel_sizes)),
        strides(GetAttr<std::vector<int64_t>>(node.attrs, "strides")),
        dilations(GetAttr<std::vector<int64_t>>(node.attrs, "dilations")),
        begin(GetAttr<Shape>(node.attrs, "begin")),
        out(GetAttr<Shape>(node.attrs, "out")) {
    for (int i = 0; i < static_cast<int>(kernel.size()); ++i) {
      if (!kernel[i].IsConstant(1)) taps.push_back(i);
    }
  }

  Expr FromBegin(int axis, const Expr& o, const Expr& k) const {
    return o * strides[axis] + k * dilations[axis];
  }
  Shape TapSizes() const {
    Shape sizes;
    for (int i : taps) sizes.push_back(kernel[i]);
    return sizes;
  }
  // Returns the kernel's coordinate along each axis, if its own axes in a result start at `first`.
  std::vector<Expr> Taps(int first) const {
    std::vector<Expr> coordinates(kernel.size(), Expr(0));
    for (size_t i = 0; i < taps.size(); ++i) {
      coordinates[taps[i]] = Expr::Axis(first + static_cast<int>(i));
    }
    return coordinates;
  }
  // Returns the operand's coordinates, if the axes of the result's positions start at `first_out`.
  std::vector<Expr> Places(int first_out, int first_tap) const {
    std::vector<Expr> coordinates = Taps(first_tap);
    for (int i = 0; i < static_cast<int>(kernel.size()); ++i) {
      coordinates[i] = FromBegin(i, Expr::Axis(first_out + i), coordinates[i]) - begin[i];
    }
    return coordinates;
  }
  std::string TapLetters() const {
    std::string letters;
    for (int i : taps) letters += kKernelLetters[i];
    return letters;
  }

  Shape kernel;
  std::vector<int64_t> strides, dilations;
  Shape begin, out;
  std::vector<int> taps;  // kernel axes that are kept
};

template <typename T>
void Append(std::vector<T>* to, const std::vector<T>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

std::vector<int64_t> AxesFrom(size_t first, size_t count) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(first + i));
  return axes;
}

Scalar Zero(DType dtype) { return LoadScalar(Tensor::Zeros(dtype, {}), 0); }

// w without the axes of its kernel that have one element; [M, C/g, K...].
NodeId Weights(Expansion& x, NodeId w, const Windows& windows) {
  if (windows.taps.size() == windows.kernel.size()) return w;
  const Shape own = x.Type(w).shape;
  Shape shape = {own[0], own[1]};
  Append(&shape, windows.TapSizes());
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1)};
  Append(&at, windows.Taps(2));
  return x.Map(w, std::move(shape), std::move(at));
}

// Expands a convolution of one group.
NodeId ConvWhole(Expansion& x, const Windows& windows, Inputs in) {
  const Shape own = x.Type(in[0]).shape;
  Shape shape = {own[0], own[1]};
  Append(&shape, windows.TapSizes());
  const int first_out = static_cast<int>(shape.size());
  Append(&shape, windows.out);
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1)};
  Append(&at, windows.Places(first_out, 2));
  bool same = shape == own;
  for (int i = 0; same && i < static_cast<int>(at.size()); ++i) same = at[i] == Expr::Axis(i);
  const NodeId patches =
      same ? in[0] : x.MapOr(in[0], std::move(shape), std::move(at), Zero(x.Type(in[0]).dtype));
  const std::string outs(kOutLetters.substr(0, windows.out.size())), taps = windows.TapLetters();
  return x.Add(Op::kContract, {patches, Weights(x, in[1], windows)},
               {{"spec", "nc" + taps + outs + ",mc" + taps + "->nm" + outs}});
}

// Convolves groups of one channel that give one each. A contraction would not pay off, since
// results share no operand.
NodeId ConvDepthwise(Expansion& x, const Node& node, const Windows& windows, Inputs in) {
  Shape shape = node.type.shape;
  const int first_tap = static_cast<int>(shape.size());
  Append(&shape, windows.TapSizes());
  std::vector<Expr> from = {Expr::Axis(0), Expr::Axis(1)};
  Append(&from, windows.Places(2, first_tap));
  std::vector<Expr> weight = {Expr::Axis(1), Expr(0)};
  Append(&weight, windows.Taps(first_tap));
  const NodeId v = Up(x, in[0]);
  const NodeId patches = x.MapOr(v, shape, std::move(from), Zero(x.Type(v).dtype));
  const NodeId product = x.Add(Op::kMul, {patches, x.Map(Up(x, in[1]), shape, std::move(weight))});
  const NodeId sum = x.Reduce(Op::kSumReduce, product, AxesFrom(first_tap, windows.taps.size()));
  return x.Cast(sum, node.type.dtype);
}

NodeId ConvGrouped(Expansion& x, const Node& node, const Windows& windows, Inputs in,
                   int64_t group) {
  const Scalar zero = Zero(node.type.dtype);
  const Expr batch = node.type.shape[0], maps = FloorDiv(node.type.shape[1], group);
  const Expr channels = x.Type(in[1]).shape[1];
  const Expr g = Expr::Axis(1);
  Shape shape = {batch, group, channels};
  Append(&shape, windows.TapSizes());
  const int first_out = static_cast<int>(shape.size());
  Append(&shape, windows.out);
  std::vector<Expr> at = {Expr::Axis(0), g * channels + Expr::Axis(2)};
  Append(&at, windows.Places(first_out, 3));
  const NodeId patches = x.MapOr(in[0], std::move(shape), std::move(at), zero);
  Shape weight_shape = {group, maps, channels};
  Append(&weight_shape, windows.TapSizes());
  std::vector<Expr> weight_at = {Expr::Axis(0) * maps + g, Expr::Axis(2)};
  Append(&weight_at, windows.Taps(3));
  const NodeId weights = x.MapOr(in[1], std::move(weight_shape), std::move(weight_at), zero);
  const std::string outs(kOutLetters.substr(0, windows.out.size())), taps = windows.TapLetters();
  const NodeId y = x.Add(Op::kContract, {patches, weights},
                         {{"spec", "ngc" + taps + outs + ",gmc" + taps + "->ngm" + outs}});
  std::vector<Expr> result = {Expr::Axis(0), FloorDiv(g, maps), Mod(g, maps)};
  for (int i = 0; i < static_cast<int>(windows.out.size()); ++i)
    result.push_back(Expr::Axis(2 + i));
  return x.MapOr(y, node.type.shape, std::move(result), zero);
}

// Counts the positions of a window that count along an axis, by the result's place; nullopt: all.
std::optional<NodeId> Counts(Expansion& x, const Node& node, const Windows& windows, int axis,
                             const Expr& size, DType dtype) {
  const Bounds bounds = x.DimBounds();
  const Expr &out = windows.out[axis], &kernel = windows.kernel[axis];
  const Expr last = windows.FromBegin(axis, out - 1, kernel - 1);
  const bool counted = node.attrs.contains("counted");
  const Expr limit = counted ? GetAttr<Shape>(node.attrs, "counted")[axis] : Expr(0);
  if (counted && bounds.Less(last, limit)) return std::nullopt;
  const Expr& begin = windows.begin[axis];
  if (bounds.NonNegative(0 - begin) && bounds.Less(last - begin, size)) return std::nullopt;
  const Expr place = windows.FromBegin(axis, Expr::Axis(0), Expr::Axis(1));
  const auto ones = [&](const Expr& count, const Expr& coordinate) {
    return x.MapOr(x.Fill(dtype, 1, {count}), {out, kernel}, {coordinate}, Zero(dtype));
  };
  NodeId is_counted = ones(size, place - begin);
  if (counted) is_counted = x.Add(Op::kMax, {is_counted, ones(MaxOf(limit, 0), place)});
  return x.Reduce(Op::kSumReduce, is_counted, {1});
}

// Returns the number of positions that count in each window, in the result's shape.
NodeId Counts(Expansion& x, const Node& node, const Windows& windows, const Shape& sizes,
              DType dtype) {
  const Shape& shape = node.type.shape;
  Expr constant = 1;
  std::vector<std::pair<int, NodeId>> vectors;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    if (const std::optional<NodeId> v = Counts(x, node, windows, i, sizes[i], dtype)) {
      vectors.emplace_back(i, *v);
    } else {
      constant *= windows.kernel[i];
    }
  }
  if (vectors.empty()) return x.Size(dtype, constant, shape);
  NodeId product = x.Size(dtype, constant, windows.out);
  for (const auto& [axis, vector] : vectors) {
    product = x.Add(Op::kMul, {product, x.Map(vector, windows.out, {Expr::Axis(axis)})});
  }
  std::vector<Expr> at;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) at.push_back(Expr::Axis(2 + i));
  return x.Map(product, shape, std::move(at));
}

// Returns random attributes of a window over `sizes`.
Attrs RandomWindow(ExampleBuilder& e, int rank) {
  std::vector<int64_t> strides, dilations;
  Shape begin, out;
  for (int i = 0; i < rank; ++i) {
    strides.push_back(e.Pick(1, 3));
    dilations.push_back(e.Pick(1, 2));
    begin.push_back(e.Pick(-2, 3));
    out.push_back(e.Size());
  }
  return {{"strides", strides}, {"dilations", dilations}, {"begin", begin}, {"out", out}};
}

// Gives for one group: Contract("ncKO,mcK->nmO") of the windows and w; for several: with the groups
// as a batch axis; where each group is one channel that gives one: products summed over K.
NodeId ExpandConv(Expansion& x, const Node& node, Inputs in) {
  const Shape w = x.Type(in[1]).shape;
  const Windows windows(node, Shape(w.begin() + 2, w.end()));
  const int64_t group = GetAttrOr<int64_t>(node.attrs, "group", 1);
  // There is no element to sum.
  if (w[0].IsConstant(0)) return x.Fill(node.type.dtype, 0, node.type.shape);
  if (group == 1) return ConvWhole(x, windows, in);
  if (w[1].IsConstant(1) && w[0].IsConstant(group)) return ConvDepthwise(x, node, windows, in);
  return ConvGrouped(x, node, windows, in, group);
}

// The maximum or sum over K; a mean divides by a product of vectors, one per axis, since whether a
// position counts is decided axis by axis.
NodeId ExpandPool(Expansion& x, const Node& node, Inputs in) {
  const auto& mode = GetAttr<std::string>(node.attrs, "mode");
  const auto& kernel = GetAttr<std::vector<int64_t>>(node.attrs, "kernel");
  const Windows windows(node, Shape(kernel.begin(), kernel.end()));
  const bool max = mode == "max";
  const NodeId v = max ? in[0] : Up(x, in[0]);
  const DType dtype = x.Type(v).dtype;
  Shape shape = node.type.shape;
  const int first_tap = static_cast<int>(shape.size());
  Append(&shape, windows.TapSizes());
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1)};
  Append(&at, windows.Places(2, first_tap));
  const NodeId patches =
      x.MapOr(v, std::move(shape), std::move(at), max ? LowestScalar(dtype) : Zero(dtype));
  NodeId result = x.Reduce(max ? Op::kMaxReduce : Op::kSumReduce, patches,
                           AxesFrom(first_tap, windows.taps.size()));
  if (mode == "mean") {
    const Shape own = x.Type(in[0]).shape;
    const Shape sizes(own.begin() + 2, own.end());
    result = x.Add(Op::kDiv, {result, Counts(x, node, windows, sizes, dtype)});
  }
  return x.Cast(result, node.type.dtype);
}

void ConvExample(ExampleBuilder& e) {
  const int rank = static_cast<int>(e.Pick(1, 2));
  const int64_t group = e.Pick(1, 3);
  const int64_t channels = e.Coin() ? 1 : e.Pick(0, 3), maps = e.Coin() ? 1 : e.Pick(0, 3);
  Shape x = {e.Pick(0, 2), group * channels}, w = {group * maps, channels};
  for (int i = 0; i < rank; ++i) {
    x.push_back(e.Size());
    w.push_back(e.Pick(0, 3));
  }
  Attrs attrs = RandomWindow(e, rank);
  attrs["group"] = group;
  const NodeId image = e.Input(x);
  e.Output(e.x().Add(Op::kConv, {image, e.Parameter(w)}, std::move(attrs)));
}

void PoolExample(ExampleBuilder& e) {
  const int rank = static_cast<int>(e.Pick(1, 2));
  Shape x = {e.Pick(0, 2), e.Pick(0, 2)};
  std::vector<int64_t> kernel;
  Shape counted;
  for (int i = 0; i < rank; ++i) {
    x.push_back(e.Size());
    kernel.push_back(e.Pick(1, 3));
    counted.push_back(e.Pick(-1, 13));
  }
  Attrs attrs = RandomWindow(e, rank);
  const char* const kModes[] = {"max", "sum", "mean", "mean"};
  const int64_t mode = e.Pick(0, 3);
  attrs["mode"] = std::string(kModes[mode]);
  attrs["kernel"] = kernel;
  if (mode == 3) attrs["counted"] = counted;
  e.Output(e.x().Add(Op::kPool, {e.Input(x)}, std::move(attrs)));
}

constexpr DecompositionRow kRows[] = {
    {Op::kConv, "conv",
     "contraction of windows, or their products summed where a group is a channel", ExpandConv,
     ConvExample},
    {Op::kPool, "pool", "windows reduced, over how many positions count", ExpandPool, PoolExample},
};

}  // namespace

absl::Span<const DecompositionRow> WindowDecompositions() { return kRows; }

}  // namespace athanor
