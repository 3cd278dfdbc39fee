// Handlers: padding and blocks.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/movement/handlers_movement.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kMaxBlock = (int64_t{1} << 31) - 1;  // its square fits into int64
constexpr std::string_view kPadModes[] = {"constant", "reflect", "edge", "wrap"};

// Returns the source of position `at` on an axis of this size; positions outside are mapped inside
// by `mode`.
Expr PadSource(std::string_view mode, const Expr& at, const Expr& size) {
  if (mode == "edge") return MaxOf(MinOf(at, size - 1), 0);
  if (mode == "wrap") return Mod(at, size);
  // A triangle wave; on an axis of one element, always that element.
  const Expr last = size - 1, period = MaxOf(2 * last, 1);
  const Expr phase = Mod(at, period);
  return MinOf(phase, 2 * last - phase);
}

// `before` and `after` are per axis.
absl::Status PadBy(HandlerContext& c, std::string_view mode, const std::vector<Expr>& before,
                   const std::vector<Expr>& after, const Value& value) {
  OpBuilder& b = c.b();
  const Bounds& bounds = b.bounds();
  Value x = c.In(0);
  Shape shape = x.shape;
  std::vector<Expr> coordinates = AllAxes(x.rank());
  bool crops_only = true;
  for (int i = 0; i < x.rank(); ++i) {
    shape[i] = bounds.Simplify(shape[i] + before[i] + after[i]);
    coordinates[i] = coordinates[i] - before[i];
    crops_only =
        crops_only && bounds.NonNegative(-1 * before[i]) && bounds.NonNegative(-1 * after[i]);
  }
  RETURN_IF_ERROR(CheckSizes("padded shape", shape, bounds));
  if (crops_only) {
    c.Set(0, Map(b, x, std::move(shape), std::move(coordinates)));
    return absl::OkStatus();
  }
  if (mode == "constant") {
    c.Set(0, MapOr(b, x, std::move(shape), std::move(coordinates), value));
    return absl::OkStatus();
  }
  // Elements that negative pads cut off are not repeated, so cut first, then pad.
  for (int i = 0; i < x.rank(); ++i) {
    Expr cut_before = 0, cut_after = 0, added = 0;
    for (const bool front : {true, false}) {
      const Expr& pad = front ? before[i] : after[i];
      if (bounds.NonNegative(pad)) {
        if (front) added = pad;
      } else if (bounds.NonNegative(-1 * pad)) {
        (front ? cut_before : cut_after) = -1 * pad;
      } else {
        return Unimplemented("its pads hold ", pad.ToString(),
                             ", which may be of either sign; tighten the dims' bounds");
      }
    }
    const Expr kept = x.shape[i] - cut_before - cut_after;
    x = Slice(b, x, i, cut_before, kept);
    if (!b.status().ok()) return absl::OkStatus();  // the builder reports the failure
    const bool same = bounds.ProvablyEqual(kept, shape[i]);
    if (!same && !bounds.NonNegative(kept - 1)) {
      return Invalid("axis ", i, " has ", kept.ToString(),
                     " elements and may be empty; an empty axis has no element to repeat");
    }
    coordinates[i] =
        same ? Expr::Axis(i) : bounds.Simplify(PadSource(mode, Expr::Axis(i) - added, kept));
  }
  c.Set(0, Map(b, x, std::move(shape), std::move(coordinates)));
  return absl::OkStatus();
}

Value NoValue(HandlerContext& c) { return ZeroOf(c.b(), c.In(0).elem); }

absl::Status BlockShape(const Shape& shape, int64_t block) {
  if (shape.size() == 4 && block > 0 && block <= kMaxBlock) return absl::OkStatus();
  return Invalid("its input has shape ", ShapeToString(shape), " and blocksize is ", block,
                 "; it needs [N, C, H, W] and a blocksize of 1 to ", kMaxBlock);
}

// Returns the error for sizes that must divide by `by`; it names the first that does not.
absl::Status Indivisible(OpBuilder& b, absl::Span<const Expr> sizes, int64_t by) {
  std::vector<SizePair> pairs;
  for (const Expr& size : sizes) pairs.push_back({FloorDiv(size, by) * by, size});
  const Expr& size = *std::find_if(sizes.begin(), sizes.end(), [&](const Expr& each) {
    return &each == &sizes.back() || !ExactQuotient(each, by, b.bounds()).has_value();
  });
  return Invalid(size.ToString(), " does not divide by ", by,
                 size.constant() ? "" : " for every size of the dims", ", as its blocksize needs",
                 b.hints().Of(pairs));
}

absl::Status DepthToSpace(HandlerContext& c, bool depth_first) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const int64_t block = c.Int("blocksize");
  RETURN_IF_ERROR(BlockShape(x.shape, block));
  const auto channels = ExactQuotient(x.shape[1], block * block, b.bounds());
  if (!channels.has_value()) return Indivisible(b, {x.shape[1]}, block * block);
  const Expr channel = Expr::Axis(1), y = Expr::Axis(2), z = Expr::Axis(3);
  const Expr within = Mod(y, block) * block + Mod(z, block);
  const Expr from = depth_first ? within * *channels + channel : channel * (block * block) + within;
  c.Set(0, Map(b, x, {x.shape[0], *channels, x.shape[2] * block, x.shape[3] * block},
               {Expr::Axis(0), from, FloorDiv(y, block), FloorDiv(z, block)}));
  return absl::OkStatus();
}

absl::Status SpaceToDepth(HandlerContext& c, bool depth_first) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const int64_t block = c.Int("blocksize");
  RETURN_IF_ERROR(BlockShape(x.shape, block));
  const auto rows = ExactQuotient(x.shape[2], block, b.bounds());
  const auto columns = ExactQuotient(x.shape[3], block, b.bounds());
  if (!rows.has_value() || !columns.has_value()) {
    return Indivisible(b, {x.shape[2], x.shape[3]}, block);
  }
  const Expr channel = Expr::Axis(1), &count = x.shape[1];
  const Expr within = depth_first ? FloorDiv(channel, count) : Mod(channel, block * block);
  const Expr from = depth_first ? Mod(channel, count) : FloorDiv(channel, block * block);
  c.Set(0, Map(b, x, {x.shape[0], count * (block * block), *rows, *columns},
               {Expr::Axis(0), from, Expr::Axis(2) * block + FloorDiv(within, block),
                Expr::Axis(3) * block + Mod(within, block)}));
  return absl::OkStatus();
}

absl::StatusOr<bool> DepthFirst(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", {"DCR", "CRD"}));
  return mode == "DCR";
}

absl::StatusOr<std::vector<int64_t>> PerAxis(HandlerContext& c, std::string_view name, size_t count,
                                             int64_t otherwise, int64_t least) {
  std::vector<int64_t> values(count, otherwise);
  if (c.Given(name)) values = c.Ints(name);
  bool right = values.size() == count;
  for (int64_t value : values) right = right && value >= least;
  if (right) return values;
  return Invalid("attribute \"", name, "\" must have ", count, " numbers, each at least ", least);
}

}  // namespace

absl::Status Pad2(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", {"constant", "reflect", "edge"}));
  const std::vector<Expr> pads = ExprsOf(c.Ints("pads"));
  const int rank = c.In(0).rank();
  if (static_cast<int>(pads.size()) != 2 * rank) {
    return Invalid("it has ", pads.size(), " pads for a tensor of rank ", rank,
                   "; it must have two for each axis");
  }
  return PadBy(c, mode, {pads.begin(), pads.begin() + rank}, {pads.begin() + rank, pads.end()},
               Nearest(c.b(), c.In(0).elem, c.Float("value")));
}

absl::Status Pad11(HandlerContext& c) {
  const absl::Span<const std::string_view> modes = kPadModes;
  ASSIGN_OR_RETURN(const std::string mode,
                   c.OneOf("mode", c.version() < 19 ? modes.first(3) : modes));
  const absl::StatusOr<std::vector<Expr>> pads = c.Sizes(1, "pads");
  const int rank = c.In(0).rank();
  absl::StatusOr<std::vector<int64_t>> listed = std::vector<int64_t>();
  for (int i = 0; i < rank; ++i) listed->push_back(i);
  if (c.Has(3)) listed = c.Integers(3, "axes");
  RETURN_IF_ERROR(Together({pads.status(), listed.status()}));
  ASSIGN_OR_RETURN(const std::vector<int> axes, c.Axes(*listed, rank));
  if (pads->size() != 2 * axes.size()) {
    return Invalid("it has ", pads->size(), " pads for ", axes.size(),
                   " axes; it must have two for each");
  }
  std::vector<Expr> before(rank, Expr(0)), after(rank, Expr(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    before[axes[i]] = (*pads)[i];
    after[axes[i]] = (*pads)[axes.size() + i];
  }
  ASSIGN_OR_RETURN(const Value value, c.Has(2) ? OneElement(c, 2, "constant_value") : NoValue(c));
  return PadBy(c, mode, before, after, value);
}

absl::Status CenterCropPad18(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const std::vector<Expr> to, c.Sizes(1, "shape"));
  RETURN_IF_ERROR(CheckSizes("shape", to, b.bounds()));
  std::vector<int64_t> listed;
  for (int i = 0; i < x.rank(); ++i) listed.push_back(i);
  ASSIGN_OR_RETURN(const std::vector<int> axes,
                   c.Axes(c.Given("axes") ? c.Ints("axes") : listed, x.rank()));
  if (to.size() != axes.size()) {
    return Invalid("its shape has ", to.size(), " sizes for ", axes.size(),
                   " axes; they must be equally many");
  }
  Shape shape = x.shape;
  std::vector<Expr> coordinates = AllAxes(x.rank());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    const Expr grown = to[i] - shape[axis];
    // If the difference is odd, the smaller half is in front.
    coordinates[axis] = b.bounds().Simplify(coordinates[axis] + FloorDiv(MaxOf(-1 * grown, 0), 2) -
                                            FloorDiv(MaxOf(grown, 0), 2));
    shape[axis] = to[i];
  }
  c.Set(0, MapOr(b, x, std::move(shape), std::move(coordinates), NoValue(c)));
  return absl::OkStatus();
}

absl::Status DepthToSpace1(HandlerContext& c) { return DepthToSpace(c, /*depth_first=*/true); }
absl::Status SpaceToDepth1(HandlerContext& c) { return SpaceToDepth(c, /*depth_first=*/true); }
absl::Status DepthToSpace11(HandlerContext& c) {
  const absl::StatusOr<bool> depth_first = DepthFirst(c);
  return depth_first.ok() ? DepthToSpace(c, *depth_first) : depth_first.status();
}
absl::Status SpaceToDepth28(HandlerContext& c) {
  const absl::StatusOr<bool> depth_first = DepthFirst(c);
  return depth_first.ok() ? SpaceToDepth(c, *depth_first) : depth_first.status();
}

absl::Status Col2Im18(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  const absl::StatusOr<std::vector<Expr>> image = c.Sizes(1, "image_shape");
  const absl::StatusOr<std::vector<int64_t>> block = c.Integers(2, "block_shape");
  RETURN_IF_ERROR(Together({image.status(), block.status()}));
  const size_t axes = image->size();
  ASSIGN_OR_RETURN(const auto strides, PerAxis(c, "strides", axes, 1, 1));
  ASSIGN_OR_RETURN(const auto dilations, PerAxis(c, "dilations", axes, 1, 1));
  ASSIGN_OR_RETURN(const auto pads, PerAxis(c, "pads", 2 * axes, 0, 0));
  if (x.rank() != 3 || block->size() != axes || axes == 0) {
    return Invalid("its input has shape ", ShapeToString(x.shape), ", image_shape ", axes,
                   " sizes and block_shape ", block->size(),
                   "; it needs [N, C * product(block_shape), L] and equally many sizes");
  }
  Expr taps = 1;
  for (int64_t size : *block) taps *= std::max<int64_t>(size, 0);
  const bool some = !taps.overflow() && !taps.IsConstant(0);
  const auto channels = some ? ExactQuotient(x.shape[1], taps, b.bounds()) : std::nullopt;
  if (!channels.has_value()) {
    return Invalid("axis 1 of size ", x.shape[1].ToString(), " does not divide by ",
                   taps.overflow() ? "more than an int64 holds" : taps.ToString(),
                   ", the elements of a block");
  }
  // Views [N, C, taps.., positions..] as [N, C, image.., taps..], with each image element at the
  // position where a tap meets it.
  Shape split = {x.shape[0], *channels}, shape = split;
  std::vector<Expr> coordinates = AllAxes(2), places;
  std::vector<int> summed;
  for (size_t i = 0; i < axes; ++i) {
    const int tap_axis = static_cast<int>(2 + axes + i);
    const int64_t stride = strides[i];
    const Expr reach = Expr(dilations[i]) * ((*block)[i] - 1);
    split.push_back((*block)[i]);
    shape.push_back((*image)[i]);
    coordinates.push_back(Expr::Axis(tap_axis));
    summed.push_back(tap_axis);
    const Expr padded = (*image)[i] + pads[i] + pads[axes + i];
    const Expr count = FloorDiv(padded - reach - 1, stride) + 1;
    const Expr at =
        Expr::Axis(static_cast<int>(2 + i)) + pads[i] - Expr::Axis(tap_axis) * dilations[i];
    // Between two positions there is no source: the coordinate is far outside, also if `at` is
    // negative.
    places.push_back(FloorDiv(at, stride) + Mod(at, stride) * (count + reach + 1));
    split.push_back(count);
  }
  Shape ordered = {split[0], split[1]};
  for (size_t i = 0; i < axes; ++i) ordered.push_back(split[2 + 2 * i]);
  for (size_t i = 0; i < axes; ++i) ordered.push_back(split[3 + 2 * i]);
  for (size_t i = 0; i < axes; ++i) shape.push_back((*block)[i]);
  coordinates.insert(coordinates.end(), places.begin(), places.end());
  const Value parts = MapOr(b, Reshape(b, x, ordered), shape, coordinates, NoValue(c));
  c.Set(0, Reduce(b, Op::kSumReduce, parts, summed, /*keepdims=*/false));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
