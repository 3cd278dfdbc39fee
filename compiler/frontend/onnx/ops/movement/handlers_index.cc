// Handlers: gathers, scatters, one-hot.
#include "compiler/frontend/onnx/ops/movement/handlers_index.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

absl::Status Gather1(HandlerContext& c) {
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  c.Set(0, Gather(c.b(), c.In(0), c.In(1), axis));
  return absl::OkStatus();
}

// An axis, and the position along each axis of data that each element of `indices` selects.
struct Elements {
  int axis;
  std::vector<Value> at;
};
absl::StatusOr<Elements> ElementsOf(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &data = c.In(0), &indices = c.In(1);
  if (data.rank() != indices.rank()) {
    return Invalid("its data has shape ", ShapeToString(data.shape), " and its indices ",
                   ShapeToString(indices.shape), "; they must be of equal rank");
  }
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), data.rank()));
  Elements elements = {axis, {}};
  for (int i = 0; i < data.rank(); ++i) {
    elements.at.push_back(i == axis ? indices : b.Iota(Elem::kInt64, indices.shape, i));
  }
  return elements;
}

absl::Status GatherElements11(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Elements elements, ElementsOf(c));
  c.Set(0, GatherAt(c.b(), c.In(0), elements.at));
  return absl::OkStatus();
}

// Returns the positions in the last axis of `indices`, after `batch` leading batch axes.
absl::StatusOr<std::vector<Value>> Tuples(HandlerContext& c, int batch) {
  OpBuilder& b = c.b();
  const Value &data = c.In(0), &indices = c.In(1);
  if (indices.rank() < 1 || data.rank() < 1) {
    return Invalid("its data and indices have shapes ", ShapeToString(data.shape), " and ",
                   ShapeToString(indices.shape), "; they must be of rank 1 or more");
  }
  const std::optional<int64_t> count = indices.shape.back().constant();
  const int last = indices.rank() - 1;
  if (batch < 0 || batch > last || batch >= data.rank()) {
    return Invalid("attribute \"batch_dims\" is ", batch, "; it must be below the ranks of data, ",
                   data.rank(), ", and of indices, ", indices.rank());
  }
  if (!count.has_value() || *count < 1 || *count > data.rank() - batch) {
    return Invalid("the last axis of its indices is ", indices.shape.back().ToString(),
                   "; it must be a number of axes of data, 1 to ", data.rank() - batch);
  }
  const Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  std::vector<Value> at;
  for (int i = 0; i < batch; ++i) {
    if (!b.bounds().ProvablyEqual(data.shape[i], indices.shape[i])) {
      return Invalid("axis ", i, " of its data and indices has sizes ", data.shape[i].ToString(),
                     " and ", indices.shape[i].ToString(), "; batch axes must be equal");
    }
    at.push_back(b.Iota(Elem::kInt64, shape, i));
  }
  for (int64_t k = 0; k < *count; ++k) {
    at.push_back(Squeeze(b, Slice(b, indices, last, k, 1), {last}));
  }
  return at;
}

absl::Status GatherNdBy(HandlerContext& c, int64_t batch) {
  ASSIGN_OR_RETURN(const std::vector<Value> at, Tuples(c, static_cast<int>(batch)));
  c.Set(0, GatherAt(c.b(), c.In(0), at));
  return absl::OkStatus();
}
absl::Status GatherNd11(HandlerContext& c) { return GatherNdBy(c, 0); }
absl::Status GatherNd12(HandlerContext& c) {
  const int64_t batch = c.Int("batch_dims");
  return GatherNdBy(c, batch < 0 || batch > 64 ? -1 : batch);
}

// Returns the mode of the Scatter op; "none" is "set".
absl::StatusOr<std::string> Reduction(HandlerContext& c) {
  if (c.version() < 16) return "set";
  static constexpr std::string_view kAll[] = {"none", "add", "mul", "max", "min"};
  const absl::Span<const std::string_view> all = kAll;
  absl::StatusOr<std::string> mode = c.OneOf("reduction", c.version() < 18 ? all.first(3) : all);
  if (mode.ok() && *mode == "none") return "set";
  return mode;
}

// Types without arithmetic are moved as codes.
Value ScatterAny(OpBuilder& b, const Value& data, const std::vector<Value>& at,
                 const Value& updates, const std::string& mode) {
  if (Computes(data.dtype())) return ScatterAt(b, data, at, updates, mode);
  const Value codes =
      ScatterAt(b, Bitcast(b, data, Elem::kUInt8), at, Bitcast(b, updates, Elem::kUInt8), mode);
  return Bitcast(b, codes, data.elem);
}

absl::Status ScatterElements11(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::string mode, Reduction(c));
  ASSIGN_OR_RETURN(const Elements elements, ElementsOf(c));
  c.Set(0, ScatterAny(c.b(), c.In(0), elements.at, c.In(2), mode));
  return absl::OkStatus();
}

absl::Status ScatterNd11(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::string mode, Reduction(c));
  ASSIGN_OR_RETURN(const std::vector<Value> at, Tuples(c, 0));
  c.Set(0, ScatterAny(c.b(), c.In(0), at, c.In(2), mode));
  return absl::OkStatus();
}

absl::Status TensorScatter24(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &past = c.In(0), &update = c.In(1);
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", {"linear", "circular"}));
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), past.rank()));
  if (axis == 0 || update.rank() != past.rank()) {
    return Invalid("its axis is ", axis, ", its operands have shapes ", ShapeToString(past.shape),
                   " and ", ShapeToString(update.shape),
                   "; axis 0 is the batch, and the ranks must be equal");
  }
  const Shape leading(update.shape.begin(), update.shape.begin() + axis + 1);
  std::vector<Value> at;
  for (int i = 0; i <= axis; ++i) at.push_back(b.Iota(Elem::kInt64, leading, i));
  if (c.Has(2)) {
    const Value& first = c.In(2);
    if (first.rank() != 1) {
      return Invalid("its write_indices have shape ", ShapeToString(first.shape),
                     "; they must be one for each of the batch");
    }
    std::vector<int> added;
    for (int i = 1; i <= axis; ++i) added.push_back(i);
    const Value size = Size(b, Elem::kInt64, past.shape[axis], {});
    Value place = Add(b, Unsqueeze(b, Cast(b, first, Elem::kInt64), added), at.back());
    if (mode == "circular") {
      place = Binary(b, Op::kMod, place, size);
    } else {
      // Here a negative position does not count from the end; it is as wrong as one beyond the end.
      place = Select(b, Less(b, place, b.Integer(Elem::kInt64, 0)), size, place);
    }
    at.back() = place;
  }
  c.Set(0, ScatterAny(b, past, at, update, "set"));
  return absl::OkStatus();
}

absl::StatusOr<Expr> DepthOf(HandlerContext& c) {
  if (!IsFloat(c.In(1).dtype())) return c.OneSize(1, "depth");
  ASSIGN_OR_RETURN(const std::vector<double> numbers, c.Numbers(1, "depth"));
  if (numbers.size() != 1 || !(numbers.front() > -0x1p40 && numbers.front() < 0x1p40)) {
    return Invalid("its depth must be one number, of a size");
  }
  return Expr(static_cast<int64_t>(numbers.front()));
}

absl::Status OneHot9(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &indices = c.In(0), &values = c.In(2);
  ASSIGN_OR_RETURN(const Expr depth, DepthOf(c));
  RETURN_IF_ERROR(CheckSizes("depth", {depth}, b.bounds()));
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), indices.rank() + 1));
  if (values.rank() != 1 || !b.bounds().ProvablyEqual(values.shape[0], 2)) {
    return Invalid("its values have shape ", ShapeToString(values.shape),
                   "; they must be two, off and on");
  }
  Shape shape = indices.shape;
  shape.insert(shape.begin() + axis, depth);
  Value at = Cast(b, indices, Elem::kInt64);
  if (c.version() >= 11) {
    const Value from_end = Add(b, at, Size(b, Elem::kInt64, depth, {}));
    at = Select(b, Less(b, at, b.Integer(Elem::kInt64, 0)), from_end, at);
  }
  const Value here = Equal(b, Unsqueeze(b, at, {axis}), b.Iota(Elem::kInt64, shape, axis));
  const auto value = [&](int64_t i) { return Squeeze(b, Slice(b, values, 0, i, 1), {0}); };
  c.Set(0, Select(b, here, value(1), value(0)));
  return absl::OkStatus();
}

absl::Status Compress9(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const std::vector<int64_t> condition, c.Integers(1, "condition"));
  Value x = c.In(0);
  int axis = 0;
  if (c.Given("axis")) {
    ASSIGN_OR_RETURN(axis, c.Axis(c.Int("axis"), x.rank()));
  } else {
    x = Reshape(b, x, {ProductOf(x.shape)});
  }
  std::vector<Expr> kept;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) kept.push_back(static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(kept.size());
  c.Set(0, Gather(b, x, b.Sizes(Elem::kInt64, std::move(kept), {count}), axis));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "Gather", 1, Gather1},
    {"", "GatherElements", 11, GatherElements11},
    {"", "GatherND", 11, GatherNd11},
    {"", "GatherND", 12, GatherNd12},
    {"", "Scatter", 9, ScatterElements11},
    {"", "ScatterElements", 11, ScatterElements11},
    {"", "ScatterND", 11, ScatterNd11},
    {"", "TensorScatter", 24, TensorScatter24},
    {"", "OneHot", 9, OneHot9},
    {"", "Compress", 9, Compress9},
    {"", "NonZero", 9, NonZero9},
    {"", "Unique", 11, Unique11},
    {"", "NonMaxSuppression", 10, NonMaxSuppression10},
};

}  // namespace

absl::Span<const HandlerRow> IndexRows() { return kRows; }

}  // namespace athanor::onnx
