// Handlers: slices, splits and concatenations.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/movement/handlers_movement.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// An end beyond any size, which means "to the end".
constexpr int64_t kFar = int64_t{1} << 40;

// Returns a bound of a slice as a position in [low, high]; a negative one counts from the end.
absl::StatusOr<Expr> SlicePosition(std::string_view what, const Expr& given, const Expr& size,
                                   const Expr& low, const Expr& high, const Bounds& bounds) {
  if (const std::optional<int64_t> constant = given.constant(); constant.has_value()) {
    if (*constant >= kFar) return high;
    if (*constant <= -kFar) return low;
  }
  Expr position = given;
  if (bounds.Less(given, 0)) {
    position = given + size;
  } else if (!bounds.NonNegative(given)) {
    return Unimplemented("its ", what, " is ", given.ToString(),
                         ", which may be of either sign; tighten the dims' bounds");
  }
  return bounds.Simplify(MaxOf(MinOf(position, high), low));
}

absl::Status SliceBy(HandlerContext& c, const std::vector<Expr>& starts,
                     const std::vector<Expr>& ends, absl::Span<const int64_t> axes_given,
                     absl::Span<const int64_t> steps) {
  ASSIGN_OR_RETURN(const std::vector<int> axes, c.Axes(axes_given, c.In(0).rank()));
  if (starts.size() != axes.size() || ends.size() != axes.size() || steps.size() != axes.size()) {
    return Invalid("it has ", starts.size(), " starts, ", ends.size(), " ends, ", axes.size(),
                   " axes and ", steps.size(), " steps; they must be equally many");
  }
  const Bounds& bounds = c.b().bounds();
  const Value& x = c.In(0);
  Shape shape = x.shape;
  std::vector<Expr> coordinates = AllAxes(x.rank());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    const Expr& size = x.shape[axis];
    const int64_t step = steps[i];
    if (step == 0) return Invalid("its steps hold 0; a step goes forwards or backwards");
    const bool back = step < 0;
    // Going backwards, a start before the first element becomes the first element; on an empty
    // axis, none.
    const Expr first = !back || bounds.NonNegative(size - 1) ? Expr(0) : MinOf(0, size - 1);
    ASSIGN_OR_RETURN(const Expr start, SlicePosition("start", starts[i], size, first,
                                                     back ? size - 1 : size, bounds));
    ASSIGN_OR_RETURN(const Expr end, SlicePosition("end", ends[i], size, back ? -1 : 0,
                                                   back ? size - 1 : size, bounds));
    // |INT64_MIN| is no int64, and any step that large takes one element.
    const Expr stride = back ? (step < -kFar ? kFar : -step) : (step > kFar ? kFar : step);
    const Expr length = back ? start - end : end - start;
    shape[axis] = bounds.Simplify(MaxOf(CeilDiv(length, stride), 0));
    coordinates[axis] = start + (back ? -1 * stride : stride) * Expr::Axis(axis);
  }
  c.Set(0, Map(c.b(), x, std::move(shape), std::move(coordinates)));
  return absl::OkStatus();
}

std::vector<int64_t> FirstAxes(size_t count) {
  std::vector<int64_t> axes;
  for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

absl::Status SplitBy(HandlerContext& c, int axis, absl::Span<const Expr> sizes) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  // Omitted results count too.
  const int results = c.node().output_size();
  if (static_cast<int>(sizes.size()) != results) {
    return Invalid("it has ", results, " results and ", sizes.size(),
                   " sizes; it must have a size for each");
  }
  RETURN_IF_ERROR(CheckSizes("split", sizes, b.bounds()));
  Expr sum = 0;
  for (const Expr& size : sizes) sum += size;
  if (!b.bounds().ProvablyEqual(sum, x.shape[axis])) {
    return Invalid("its sizes sum to ", sum.ToString(), ", and axis ", axis, " has size ",
                   x.shape[axis].ToString(), "; they must be equal",
                   sum.constant() && x.shape[axis].constant() ? "" : " for every size of the dims",
                   b.hints().Of({{sum, x.shape[axis]}}));
  }
  Expr begin = 0;
  for (int o = 0; o < c.outputs(); ++o) {
    if (c.Wants(o)) c.Set(o, Slice(b, x, axis, begin, sizes[o]));
    begin += sizes[o];
  }
  return absl::OkStatus();
}

absl::Status SplitEqually(HandlerContext& c, int axis) {
  const Expr& size = c.In(0).shape[axis];
  const int results = c.node().output_size();
  const std::optional<Expr> part = ExactQuotient(size, results, c.b().bounds());
  if (!part.has_value()) {
    return Invalid("axis ", axis, " of size ", size.ToString(), " does not divide into ", results,
                   " equal parts", size.constant() ? "" : " for every size of the dims",
                   "; give the parts' sizes", c.b().hints().OfDivisible(size, results));
  }
  return SplitBy(c, axis, std::vector<Expr>(results, *part));
}

absl::Status SplitByOperand(HandlerContext& c, int axis) {
  ASSIGN_OR_RETURN(const std::vector<Expr> sizes, c.Sizes(1, "split"));
  return SplitBy(c, axis, sizes);
}

}  // namespace

absl::Status Slice1(HandlerContext& c) {
  const std::vector<int64_t> starts = c.Ints("starts"), ends = c.Ints("ends");
  const std::vector<int64_t> axes = c.Given("axes") ? c.Ints("axes") : FirstAxes(starts.size());
  return SliceBy(c, ExprsOf(starts), ExprsOf(ends), axes, std::vector<int64_t>(axes.size(), 1));
}

absl::Status Slice10(HandlerContext& c) {
  const absl::StatusOr<std::vector<Expr>> starts = c.Sizes(1, "starts"), ends = c.Sizes(2, "ends");
  absl::StatusOr<std::vector<int64_t>> axes = FirstAxes(starts.ok() ? starts->size() : 0);
  if (c.Has(3)) axes = c.Integers(3, "axes");
  absl::StatusOr<std::vector<int64_t>> steps =
      std::vector<int64_t>(axes.ok() ? axes->size() : 0, 1);
  if (c.Has(4)) steps = c.Integers(4, "steps");
  const absl::Status known =
      Together({starts.status(), ends.status(), axes.status(), steps.status()});
  if (!known.ok()) return known;
  return SliceBy(c, *starts, *ends, *axes, *steps);
}

absl::Status Split2(HandlerContext& c) {
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  if (!c.Given("split")) return SplitEqually(c, axis);
  return SplitBy(c, axis, ExprsOf(c.Ints("split")));
}

absl::Status Split13(HandlerContext& c) {
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  return c.Has(1) ? SplitByOperand(c, axis) : SplitEqually(c, axis);
}

absl::Status Split18(HandlerContext& c) {
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  if (c.Has(1) == c.Given("num_outputs")) {
    return Invalid("it needs either operand \"split\" or attribute \"num_outputs\", not ",
                   c.Has(1) ? "both" : "neither");
  }
  if (c.Has(1)) return SplitByOperand(c, axis);
  const int64_t count = c.Int("num_outputs");
  if (count != c.node().output_size()) {
    return Invalid("attribute \"num_outputs\" is ", count, ", and it has ", c.node().output_size(),
                   " results; they must be equally many");
  }
  const Expr& size = c.In(0).shape[axis];
  const Expr part = CeilDiv(size, count);
  std::vector<Expr> sizes(count, part);
  sizes.back() = size - part * (count - 1);
  return SplitBy(c, axis, sizes);
}

absl::Status Concat1(HandlerContext& c) {
  std::vector<Value> parts;
  for (int i = 0; i < c.inputs(); ++i) parts.push_back(c.In(i));
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Given("axis") ? c.Int("axis") : 1, parts[0].rank()));
  c.Set(0, Concat(c.b(), parts, axis));
  return absl::OkStatus();
}

absl::Status Expand8(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::vector<Expr> to, c.Sizes(1, "shape"));
  RETURN_IF_ERROR(CheckSizes("shape", to, c.b().bounds()));
  ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(c.b(), {c.In(0).shape, to}));
  c.Set(0, Broadcast(c.b(), c.In(0), shape));
  return absl::OkStatus();
}

absl::Status Tile6(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::vector<Expr> repeats, c.Sizes(1, "repeats"));
  const Value& x = c.In(0);
  if (static_cast<int>(repeats.size()) != x.rank()) {
    return Invalid("it has ", repeats.size(), " repeats for a tensor of rank ", x.rank(),
                   "; each axis needs one");
  }
  RETURN_IF_ERROR(CheckSizes("repeats", repeats, c.b().bounds()));
  Shape shape = x.shape;
  std::vector<Expr> coordinates = AllAxes(x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    if (repeats[i].IsConstant(1)) continue;
    shape[i] = x.shape[i] * repeats[i];
    coordinates[i] = Mod(coordinates[i], x.shape[i]);
  }
  c.Set(0, Map(c.b(), x, std::move(shape), std::move(coordinates)));
  return absl::OkStatus();
}

absl::Status Trilu14(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  if (x.rank() < 2) {
    return Invalid("its input has shape ", ShapeToString(x.shape), "; it must hold matrices");
  }
  ASSIGN_OR_RETURN(Value k, c.Has(1) ? OneElement(c, 1, "k") : b.Integer(Elem::kInt64, 0));
  const Shape matrix(x.shape.end() - 2, x.shape.end());
  const Value row = b.Iota(Elem::kInt64, matrix, 0), column = b.Iota(Elem::kInt64, matrix, 1);
  const Value diagonal = Sub(b, column, row);
  const Value zero = ZeroOf(b, x.elem);
  // `upper` clears the elements left of diagonal k; otherwise those right of it.
  c.Set(0, Select(b, c.Int("upper") != 0 ? Less(b, diagonal, k) : Less(b, k, diagonal), zero, x));
  return absl::OkStatus();
}

absl::Status ReverseSequence10(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &lengths = c.In(1);
  if (x.rank() < 2 || lengths.rank() != 1) {
    return Invalid("its operands have shapes ", ShapeToString(x.shape), " and ",
                   ShapeToString(lengths.shape), "; they must be of rank 2 or more, and 1");
  }
  ASSIGN_OR_RETURN(const int time, c.Axis(c.Int("time_axis"), x.rank()));
  ASSIGN_OR_RETURN(const int batch, c.Axis(c.Int("batch_axis"), x.rank()));
  if (time == batch) return Invalid("its time_axis and batch_axis are both ", time);
  std::vector<int> order = {time, batch}, back(x.rank());
  for (int i = 0; i < x.rank(); ++i) {
    if (i != time && i != batch) order.push_back(i);
  }
  for (int i = 0; i < x.rank(); ++i) back[order[i]] = i;
  const Shape steps = {x.shape[time], x.shape[batch]};
  const Value at = b.Iota(Elem::kInt64, steps, 0), row = b.Iota(Elem::kInt64, steps, 1);
  const Value reversed = Sub(b, Sub(b, lengths, b.Integer(Elem::kInt64, 1)), at);
  const Value from = Select(b, Less(b, at, lengths), reversed, at);
  const Value y = GatherAt(b, Permute(b, x, order), {from, row});
  c.Set(0, Permute(b, y, back));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
