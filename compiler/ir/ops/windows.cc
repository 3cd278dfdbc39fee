// Ops that slide a window: Conv, Pool.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/window.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int kMaxSpatial = 6;

// Limit on window positions, so that they and every step of their computation fit well inside 64
// bits.
constexpr int64_t kMaxPosition = int64_t{1} << 60;

// Limit on a pool's window, which no operand's size bounds.
constexpr int64_t kMaxTaps = int64_t{1} << 24;

absl::Status CheckSpatialRank(const Shape& x) {
  const int spatial = static_cast<int>(x.size()) - 2;
  if (spatial >= 1 && spatial <= kMaxSpatial) return absl::OkStatus();
  return Invalid("x, operand 0, has shape ", ShapeToString(x),
                 "; it needs the axes [N, C] and 1 to ", kMaxSpatial, " spatial axes after them");
}

absl::Status CheckCount(std::string_view attr, size_t count, size_t spatial) {
  if (count == spatial) return absl::OkStatus();
  return Invalid(attr, " holds ", count, " values; x has ", spatial,
                 " spatial axes, and it needs one for each");
}

absl::Status CheckSteps(std::string_view attr, const Attrs& attrs, size_t spatial) {
  const auto& steps = GetAttr<std::vector<int64_t>>(attrs, attr);
  RETURN_IF_ERROR(CheckCount(attr, steps.size(), spatial));
  for (int64_t step : steps) {
    if (step < 1) return Invalid(attr, " holds ", step, "; each must be 1 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckPosition(std::string_view attr, size_t axis, const Expr& e,
                           const Bounds& bounds) {
  const std::optional<int64_t> least = bounds.Minimum(e), most = bounds.Maximum(e);
  if (least && most && *least >= -kMaxPosition && *most <= kMaxPosition) return absl::OkStatus();
  return Invalid(attr, " gives spatial axis ", axis, " positions up to ", e.ToString(),
                 ", which can be beyond 2^60; lower it, or tighten the dims' bounds");
}

// Checks the attributes that Conv and Pool share, for a window of shape `kernel`. Returns the
// result's shape.
absl::StatusOr<Shape> InferWindow(const Shape& x, const Shape& kernel, const Expr& channels,
                                  const Attrs& attrs, const Bounds& bounds) {
  const size_t spatial = x.size() - 2;
  absl::Status s = CheckSteps("strides", attrs, spatial);
  if (s.ok()) s = CheckSteps("dilations", attrs, spatial);
  for (std::string_view attr : {"begin", "out", "counted"}) {
    if (s.ok() && attrs.contains(attr)) {
      s = CheckCount(attr, GetAttr<Shape>(attrs, attr).size(), spatial);
    }
  }
  if (!s.ok()) return s;
  const auto& out = GetAttr<Shape>(attrs, "out");
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t stride = GetAttr<std::vector<int64_t>>(attrs, "strides")[i];
    const int64_t dilation = GetAttr<std::vector<int64_t>>(attrs, "dilations")[i];
    s = CheckPosition("strides", i, out[i] * stride, bounds);
    if (s.ok()) s = CheckPosition("dilations", i, kernel[i] * dilation, bounds);
    if (s.ok()) s = CheckPosition("begin", i, GetAttr<Shape>(attrs, "begin")[i], bounds);
    if (s.ok() && attrs.contains("counted")) {
      s = CheckPosition("counted", i, GetAttr<Shape>(attrs, "counted")[i], bounds);
    }
    if (!s.ok()) return s;
  }
  Shape result = {x[0], channels};
  result.insert(result.end(), out.begin(), out.end());
  return result;
}

absl::StatusOr<TensorType> InferConv(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType &x = inputs[0], &w = inputs[1];
  absl::Status s = CheckDType("x, operand 0,", x.dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "w", w.dtype);
  if (s.ok()) s = CheckSpatialRank(x.shape);
  if (s.ok()) s = CheckRank("w, operand 1,", w.shape, static_cast<int>(x.shape.size()));
  if (!s.ok()) return s;
  const int64_t group = GetAttrOr<int64_t>(attrs, "group", 1);
  if (group < 1) return Invalid("group=", group, " must be 1 or more");
  const Expr& maps = w.shape[0];
  if (!bounds.ProvablyEqual(group * w.shape[1], x.shape[1])) {
    return Invalid("x has ", x.shape[1].ToString(), " channels (axis 1), w takes ",
                   w.shape[1].ToString(), " (axis 1) in each of ", group,
                   " groups; x must provably have group times as many");
  }
  if (!bounds.ProvablyEqual(group * FloorDiv(maps, group), maps)) {
    return Invalid("w gives ", maps.ToString(), " channels (axis 0), which group=", group,
                   " does not provably divide");
  }
  ASSIGN_OR_RETURN(Shape shape, InferWindow(x.shape, Shape(w.shape.begin() + 2, w.shape.end()),
                                            maps, attrs, bounds));
  return TensorType{x.dtype, std::move(shape)};
}

absl::StatusOr<TensorType> InferPool(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& x = inputs[0];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  if (mode != "max" && mode != "mean" && mode != "sum") {
    return Invalid("mode=", Quoted(mode), " must be \"max\", \"mean\" or \"sum\"");
  }
  if (mode != "mean" && attrs.contains("counted")) {
    return Invalid("counted sets the divisor of a mean; mode=", Quoted(mode),
                   " has none: leave it out");
  }
  absl::Status s = CheckDType("x, operand 0,", x.dtype,
                              mode == "max"   ? DTypeClass::kComputing
                              : mode == "sum" ? DTypeClass::kNumeric
                                              : DTypeClass::kFloats);
  if (s.ok()) s = CheckSpatialRank(x.shape);
  if (s.ok()) s = CheckSteps("kernel", attrs, x.shape.size() - 2);
  if (!s.ok()) return s;
  const auto& kernel = GetAttr<std::vector<int64_t>>(attrs, "kernel");
  int64_t taps = 1;
  for (int64_t k : kernel) {
    // Divides, because the product could overflow.
    if (k > kMaxTaps / taps) return Invalid("kernel has more than ", kMaxTaps, " positions");
    taps *= k;
  }
  ASSIGN_OR_RETURN(Shape shape, InferWindow(x.shape, Shape(kernel.begin(), kernel.end()),
                                            x.shape[1], attrs, bounds));
  return TensorType{x.dtype, std::move(shape)};
}

// Elements outside x are 0 and are multiplied too, so 0 * inf is NaN.
template <typename Value>
std::vector<Value> Convolved(const Tensor& x, const Tensor& w, const Tensor& result,
                             const WindowPlaces& places, int64_t group,
                             const std::vector<Value>& xs, const std::vector<Value>& ws) {
  const absl::Span<const int64_t> sizes = absl::MakeConstSpan(x.shape).subspan(2);
  const int64_t block = Product(sizes), channels = w.shape[1], taps = Product(places.kernel);
  std::vector<Value> values(result.elements());
  ForEachElement(result.shape, [&](int64_t position, const std::vector<int64_t>& at) {
    const std::vector<int64_t> offsets = places.Offsets(sizes, absl::MakeConstSpan(at).subspan(2));
    const int64_t first = at[1] / (w.shape[0] / group) * channels;
    const Value* weight = ws.data() + at[1] * channels * taps;
    Value sum = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const Value* of_channel = xs.data() + (at[0] * x.shape[1] + first + c) * block;
      for (const int64_t offset : offsets) {
        sum += (offset < 0 ? Value(0) : of_channel[offset]) * *weight++;
      }
    }
    values[position] = sum;
  });
  return values;
}

// Computes fold(the window's elements in x, the number of positions that count) for each element of
// the result.
template <typename Value, typename Fold>
std::vector<Value> Pooled(const Tensor& x, const Tensor& result, const WindowPlaces& places,
                          const std::vector<Value>& xs, Fold fold) {
  const absl::Span<const int64_t> sizes = absl::MakeConstSpan(x.shape).subspan(2);
  const int64_t block = Product(sizes);
  std::vector<Value> values(result.elements());
  ForEachElement(result.shape, [&](int64_t position, const std::vector<int64_t>& at) {
    const absl::Span<const int64_t> out = absl::MakeConstSpan(at).subspan(2);
    std::vector<Value> window;
    for (const int64_t offset : places.Inside(sizes, out)) {
      window.push_back(xs[(at[0] * x.shape[1] + at[1]) * block + offset]);
    }
    values[position] = fold(window, places.Count(sizes, out));
  });
  return values;
}

template <typename Value>
Value SumOf(const std::vector<Value>& window) {
  Value sum = 0;
  for (const Value& value : window) sum += value;
  return sum;
}

void PoolIntegers(const Tensor& x, const std::string& mode, const WindowPlaces& places,
                  Tensor* result) {
  const bool is_signed = IsSigned(x.dtype);
  const auto below = [is_signed](uint64_t a, uint64_t b) {
    return is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  };
  const auto fold = [&](const std::vector<uint64_t>& window, int64_t) {
    if (mode == "sum") return SumOf(window);
    uint64_t maximum = LowestScalar(x.dtype).u;
    for (uint64_t value : window) maximum = std::max(maximum, value, below);
    return maximum;
  };
  StoreBitPatterns(Pooled(x, *result, places, LoadBitPatterns(x), fold), result);
}

template <typename Real>
void PoolReals(const Tensor& x, const std::string& mode, const WindowPlaces& places,
               Tensor* result) {
  const auto fold = [&](const std::vector<Real>& window, int64_t count) {
    if (mode == "sum") return SumOf(window);
    if (mode == "mean") {
      return count == 0 ? std::numeric_limits<Real>::quiet_NaN() : SumOf(window) / count;
    }
    Real maximum = -std::numeric_limits<Real>::infinity();
    for (const Real& value : window) maximum = MaxOfReals(maximum, value);
    return maximum;
  };
  StoreReals(Pooled(x, *result, places, LoadReals<Real>(x), fold), result);
}

absl::Status ReferenceConv(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const Tensor &x = *inputs[0], &w = *inputs[1];
  const int64_t group = GetAttrOr<int64_t>(attrs, "group", 1);
  ASSIGN_OR_RETURN(WindowPlaces places,
                   WindowPlaces::Of(attrs, {w.shape.begin() + 2, w.shape.end()}, dims));
  if (!IsFloat(result->dtype)) {
    StoreBitPatterns(
        Convolved(x, w, *result, places, group, LoadBitPatterns(x), LoadBitPatterns(w)), result);
    return absl::OkStatus();
  }
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    StoreReals(Convolved(x, w, *result, places, group, LoadReals<Real>(x), LoadReals<Real>(w)),
               result);
  });
  return absl::OkStatus();
}

absl::Status ReferencePool(absl::Span<const Tensor* const> inputs, const Attrs& attrs,
                           const Expr::Env& dims, Tensor* result) {
  const Tensor& x = *inputs[0];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  ASSIGN_OR_RETURN(WindowPlaces places,
                   WindowPlaces::Of(attrs, GetAttr<std::vector<int64_t>>(attrs, "kernel"), dims));
  if (!IsFloat(x.dtype)) {
    PoolIntegers(x, mode, places, result);
    return absl::OkStatus();
  }
  WithReal(x.dtype, [&](auto zero) { PoolReals<decltype(zero)>(x, mode, places, result); });
  return absl::OkStatus();
}

// Takes x [N, C, D...] and w [M, C/group, K...] to [N, M, out...]. The group of a row of w depends
// on the number of rows, so M is mixed.
AxisFlow ConvFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  for (std::vector<int>& axes : flow) std::fill(axes.begin(), axes.end(), kMixed);
  flow[0][0] = 0;
  return flow;
}

// x [N, C, D...]; [N, C, out...].
AxisFlow PoolFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  std::fill(flow[0].begin() + 2, flow[0].end(), kMixed);
  return flow;
}

// The mean of a bag is rounded once, as the mean of a window is; the mean of an empty bag is 0.
Cutter::Recipe MeanRecipe(Cutter& cutter, Cutter::Recipe members, int64_t total, Positions bags,
                          const std::vector<bool>& empty, DType dtype) {
  const int64_t count = Count(bags);
  Tensor is_empty = Tensor::Zeros(DType::kBool, {count});
  Tensor nans = Tensor::Zeros(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    is_empty.bytes[i] = static_cast<char>(empty[i]);
    StoreScalar(nans, i, Scalar::Float(dtype, std::numeric_limits<double>::quiet_NaN()));
  }
  const bool any_empty = std::find(empty.begin(), empty.end(), true) != empty.end();
  return [&cutter, members = std::move(members), total, bags = std::move(bags), count, is_empty,
          nans, any_empty]() -> absl::StatusOr<NodeId> {
    absl::StatusOr<NodeId> mean =
        cutter.Flatten(cutter.Add(Op::kEmbeddingBag,
                                  {members(), cutter.IndexLiteral({total}, UpTo(total)),
                                   cutter.IndexLiteral({count}, bags)},
                                  {{"mode", std::string("mean")}}),
                       {count, 1});
    if (!any_empty) return mean;
    return cutter.Add(Op::kSelect, {cutter.Literal(is_empty), cutter.Literal(nans), mean});
  };
}

absl::Status SampleConv(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> x = cutter.ShapeOf(node.inputs[0]),
                                  w = cutter.ShapeOf(node.inputs[1]);
  ASSIGN_OR_RETURN(WindowPlaces places,
                   WindowPlaces::Of(node.attrs, {w.begin() + 2, w.end()}, cutter.dims()));
  const int64_t block = Product(x.subspan(2)), terms = Product(w.subspan(1));
  const int64_t count = Count(cutter.Wanted(n));
  for (int side = 0; side < 2; ++side) {
    RETURN_IF_ERROR(cutter.Spend(n, count, terms));
  }
  const int64_t per_group = w[0] / GetAttrOr<int64_t>(node.attrs, "group", 1);
  Positions from_x, bases_w;
  for (int64_t p : cutter.Wanted(n)) {
    const std::vector<int64_t> at = CoordinatesOf(cutter.ShapeOf(n), p);
    const std::vector<int64_t> offsets =
        places.Offsets(x.subspan(2), absl::MakeConstSpan(at).subspan(2));
    const int64_t first = at[0] * x[1] + at[1] / per_group * w[1];
    for (int64_t c = 0; c < w[1]; ++c) {
      for (int64_t offset : offsets) {
        from_x.push_back(offset < 0 ? -1 : (first + c) * block + offset);
      }
    }
    bases_w.push_back(at[1] * terms);
  }
  // Each wanted element is the dot product of a row of windows and a row of weights.
  const Cutter::Recipe a = cutter.PullOr(node.inputs[0], {count, terms}, std::move(from_x),
                                         Tensor::Zeros(node.type.dtype, {}));
  const Cutter::Handle b = cutter.Pull(node.inputs[1], {count, terms}, Sums(bases_w, UpTo(terms)));
  cutter.RecipeOf(n) = [&cutter, a, b] {
    return cutter.Add(Op::kContract, {a(), cutter.Get(b)}, {{"spec", std::string("ab,ab->a")}});
  };
  return absl::OkStatus();
}

absl::Status SamplePool(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> x = cutter.ShapeOf(node.inputs[0]);
  const auto& mode = GetAttr<std::string>(node.attrs, "mode");
  const auto& kernel = GetAttr<std::vector<int64_t>>(node.attrs, "kernel");
  ASSIGN_OR_RETURN(WindowPlaces places, WindowPlaces::Of(node.attrs, kernel, cutter.dims()));
  const int64_t block = Product(x.subspan(2)), terms = Product(kernel);
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, terms));
  // Each element's bag of sources. For a mean, only those positions that count.
  Positions sources, bags;
  std::vector<bool> empty;
  for (int64_t p : cutter.Wanted(n)) {
    const std::vector<int64_t> at = CoordinatesOf(cutter.ShapeOf(n), p);
    const absl::Span<const int64_t> out = absl::MakeConstSpan(at).subspan(2);
    const std::vector<int64_t> offsets = places.Offsets(x.subspan(2), out);
    const std::vector<bool> counts = places.Counts(x.subspan(2), out);
    bags.push_back(Count(sources));
    for (size_t t = 0; t < offsets.size(); ++t) {
      if (mode == "mean" && !counts[t]) continue;
      const int64_t first = (at[0] * x[1] + at[1]) * block;
      sources.push_back(offsets[t] < 0 ? -1 : first + offsets[t]);
    }
    empty.push_back(Count(sources) == bags.back());
  }
  Tensor outside = Tensor::Zeros(node.type.dtype, {});
  if (mode == "max") StoreScalar(outside, 0, LowestScalar(outside.dtype));
  if (mode == "mean") {
    cutter.RecipeOf(n) =
        MeanRecipe(cutter, cutter.PullOr(node.inputs[0], {Count(sources), 1}, sources, outside),
                   Count(sources), std::move(bags), empty, node.type.dtype);
    return absl::OkStatus();
  }
  const Op reduce = mode == "max" ? Op::kMaxReduce : Op::kSumReduce;
  const Cutter::Recipe windows =
      cutter.PullOr(node.inputs[0], {count, terms}, std::move(sources), outside);
  cutter.RecipeOf(n) = [&cutter, reduce, windows] {
    return cutter.Add(reduce, {windows()}, {{"axes", std::vector<int64_t>{1}}});
  };
  return absl::OkStatus();
}

}  // namespace

void AddWindows(Rows* rows) {
  const AttrSpec strides =
      Required("strides", AttrType::kInts, "steps of the window, one per spatial axis");
  const AttrSpec dilations =
      Required("dilations", AttrType::kInts, "steps between a window's elements, likewise");
  const AttrSpec begin = Required("begin", AttrType::kShape,
                                  "how far the first window starts before x; may be negative");
  const AttrSpec out = Required("out", AttrType::kShape, "the result's spatial sizes");
  ATHANOR_ROW(
      Conv, kComposite, 2, 2,
      ATHANOR_ATTRS(strides, dilations, begin, out,
                    Optional("group", AttrType::kInt, "groups of channels, each on its own",
                             AttrValue(int64_t{1}))),
      InferConv, 0,
      "Operands x [N, C, D...] and w [M, C/group, K...] of 1 to 6 spatial axes; result [N, M, "
      "out...]. Element [n, m, o...] is the sum over c and k... of x[n, g*C/group + c, p...] "
      "* w[m, c, k...] with p = o*stride + k*dilation - begin on each spatial axis and g = m "
      "/ (M/group), rounded down (cross-correlation: the kernel is not flipped). Where a p "
      "is outside x, x is 0, and its product with an infinite or NaN weight is NaN. Sums as "
      "in Contract.",
      .roles = {OperandRole::kContracted, OperandRole::kContracted},
      .rows = {ConvFlow, "sums across", /*fixed_sizes=*/true}, .sample = SampleConv);
  ATHANOR_ROW(
      Pool, kComposite, 1, 1,
      ATHANOR_ATTRS(Required("mode", AttrType::kString, "\"max\", \"mean\" or \"sum\""),
                    Required("kernel", AttrType::kInts, "sizes of the window, likewise"), strides,
                    dilations, begin, out,
                    Optional("counted", AttrType::kShape,
                             "of mean: up to where positions outside x count too")),
      InferPool, 1,
      "Operand x [N, C, D...] of 1 to 6 spatial axes; result [N, C, out...]. The window of "
      "[n, c, o...] is x[n, c, p...] with p = o*stride + k*dilation - begin for k in [0, "
      "kernel) on each spatial axis. `max` is the maximum of what is in x, as MaxReduce; "
      "`sum` the sum of that, as SumReduce; `mean` that sum divided by how many positions "
      "count: those in x, and with `counted` also those that on each axis are in x or in "
      "[-begin, counted - begin). Of nothing: -inf, the integer minimum, false; 0; NaN. f16 "
      "and bf16 sums and their quotient are in f32 and round once.",
      .rounding = Rounding::kByMode,
      .rows = {PoolFlow, "slides its window across", /*fixed_sizes=*/true}, .sample = SamplePool);
}

}  // namespace athanor
