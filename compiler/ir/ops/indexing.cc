// Movement: IndexMap, Gather, Scatter, StateWrite.
#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/ir/expr/coordinate.h"
#include "compiler/ir/ops/cutter.h"
#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckFill(const Attrs& attrs, DType dtype) {
  const Tensor& fill = GetAttr<Tensor>(attrs, "fill");
  if (!fill.shape.empty()) {
    return Invalid("fill has rank ", fill.shape.size(), "; it must be a scalar (rank 0)");
  }
  return CheckSameDType("operand 0", dtype, "fill", fill.dtype);
}

// Checks that every coordinate is inside the operand, for every size of the dims and every output
// element.
absl::Status CheckInside(const IndexMap& map, const Shape& operand, const Bounds& dims) {
  Bounds bounds = dims;
  for (size_t i = 0; i < map.shape.size(); ++i) {
    if (map.shape[i].IsConstant(0)) return absl::OkStatus();  // no output element at all
    bounds.SetExtent(Expr::Axis(static_cast<int>(i)).ToString(), map.shape[i]);
  }
  for (size_t i = 0; i < operand.size(); ++i) {
    const Expr& coordinate = map.coordinates[i];
    if (bounds.NonNegative(coordinate) && bounds.Less(coordinate, operand[i])) continue;
    return Invalid("coordinate ", i, ", ", coordinate.ToString(), ", is not provably inside [0, ",
                   operand[i].ToString(), ") for every element of the result ",
                   ShapeToString(map.shape),
                   ": give `fill` for elements outside, or tighten the shape or the dims' bounds");
  }
  return absl::OkStatus();
}

Shape GatherShape(const Shape& data, const Shape& indices, int64_t axis) {
  Shape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  return shape;
}

absl::Status CheckIndices(std::string_view what, DType dtype) {
  return CheckDType(what, dtype, DTypeClass::kIntegers);
}

absl::StatusOr<TensorType> InferIndexMap(TypeSpan inputs, const Attrs& attrs,
                                         const Bounds& bounds) {
  const IndexMap& map = GetAttr<IndexMap>(attrs, "map");
  const Shape& operand = inputs[0].shape;
  if (map.coordinates.size() != operand.size()) {
    return Invalid("map has ", map.coordinates.size(), " coordinates, operand 0 has shape ",
                   ShapeToString(operand), "; it needs one coordinate per axis, ", operand.size());
  }
  absl::Status status = attrs.contains("fill") ? CheckFill(attrs, inputs[0].dtype)
                                               : CheckInside(map, operand, bounds);
  if (!status.ok()) return status;
  return TensorType{inputs[0].dtype, map.shape};
}

absl::StatusOr<TensorType> InferGather(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  RETURN_IF_ERROR(CheckAxis("axis", axis, inputs[0].shape));
  RETURN_IF_ERROR(CheckIndices("indices, operand 1,", inputs[1].dtype));
  return TensorType{inputs[0].dtype, GatherShape(inputs[0].shape, inputs[1].shape, axis)};
}

absl::StatusOr<TensorType> InferScatter(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& data = inputs[0];
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const std::string& mode = GetAttr<std::string>(attrs, "mode");
  const bool computes = mode == "add" || mode == "mul";
  if (mode != "set" && !computes && mode != "max" && mode != "min") {
    return Invalid("mode=", Quoted(mode), " must be \"set\", \"add\", \"mul\", \"max\" or \"min\"");
  }
  absl::Status s = CheckDType("data, operand 0,", data.dtype,
                              computes ? DTypeClass::kNumeric : DTypeClass::kComputing);
  if (s.ok()) s = CheckAxis("axis", axis, data.shape);
  if (s.ok()) s = CheckIndices("indices, operand 1,", inputs[1].dtype);
  if (s.ok()) s = CheckSameDType("data", data.dtype, "updates", inputs[2].dtype);
  if (s.ok()) {
    s = CheckSameShape("updates", inputs[2].shape, "the place they go to",
                       GatherShape(data.shape, inputs[1].shape, axis), bounds);
  }
  if (!s.ok()) return s;
  return data;
}

absl::StatusOr<TensorType> InferStateWrite(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  const TensorType& state = inputs[0];
  constexpr std::string_view kIndex = "index, operand 1,";
  absl::Status s = CheckDType("state, operand 0,", state.dtype, DTypeClass::kComputing);
  if (s.ok()) s = CheckAxis("axis", 0, state.shape);
  if (s.ok()) s = CheckRank(kIndex, inputs[1].shape, 1);
  if (s.ok() && inputs[1].dtype != DType::kI32 && inputs[1].dtype != DType::kI64) {
    s = Unimplemented(kIndex, " has dtype ", DTypeName(inputs[1].dtype),
                      ", but the op takes i32 or i64: convert it with Cast(dtype=i64)");
  }
  if (s.ok()) s = CheckSameDType("state", state.dtype, "update", inputs[2].dtype);
  if (s.ok()) {
    s = CheckSameShape("update", inputs[2].shape, "the place it goes to",
                       GatherShape(state.shape, inputs[1].shape, 0), bounds);
  }
  if (!s.ok()) return s;
  return state;
}

// View of Gather and Scatter around their axis: the data as [outer, extent, inner], the gathered or
// updating tensor as [outer, indices, inner].
struct AxisView {
  AxisView(const Tensor& data, int64_t axis)
      : outer(Product(absl::MakeSpan(data.shape).subspan(0, axis))),
        extent(data.shape[axis]),
        inner(Product(absl::MakeSpan(data.shape).subspan(axis + 1))) {}
  int64_t outer, extent, inner;
};

absl::StatusOr<int64_t> CheckedIndex(const Tensor& indices, int64_t position, int64_t extent,
                                     int64_t axis) {
  const int64_t index = LoadIndex(indices, position);
  if (index >= 0 && index < extent) return index;
  return absl::OutOfRangeError(absl::StrFormat(
      "index %s at position %s of the indices is outside axis %d of the data, which has %d "
      "elements",
      LoadScalar(indices, position).dtype == DType::kU64
          ? absl::StrCat(static_cast<uint64_t>(index))
          : absl::StrCat(index),
      ShapeText(CoordinatesOf(indices.shape, position)), axis, extent));
}

void CopyElements(const Tensor& from, int64_t from_element, int64_t count, Tensor* to,
                  int64_t to_element) {
  const size_t bytes = DTypeBytes(to->dtype);
  std::copy_n(from.bytes.begin() + from_element * bytes, count * bytes,
              to->bytes.begin() + to_element * bytes);
}

enum class Combine { kAdd, kMul, kMax, kMin };

template <typename Value>
Value Combined(Combine combine, Value old_value, Value update) {
  if (combine == Combine::kAdd) return old_value + update;
  if (combine == Combine::kMul) return old_value * update;
  if constexpr (std::is_floating_point_v<Value>) {
    return combine == Combine::kMax ? MaxOfReals(old_value, update) : MinOfReals(old_value, update);
  }
  return combine == Combine::kMax ? std::max(old_value, update) : std::min(old_value, update);
}

// Calls element(data_element, update_element) for every updated element, in row-major order of the
// updates.
template <typename Element>
absl::Status ForEachUpdate(absl::Span<const Tensor* const> inputs, int64_t axis, Element element) {
  const AxisView view(*inputs[0], axis);
  const Tensor& indices = *inputs[1];
  const int64_t count = indices.elements();
  for (int64_t outer = 0; outer < view.outer; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(int64_t index, CheckedIndex(indices, i, view.extent, axis));
      for (int64_t inner = 0; inner < view.inner; ++inner) {
        element((outer * view.extent + index) * view.inner + inner,
                (outer * count + i) * view.inner + inner);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ScatterCombined(absl::Span<const Tensor* const> inputs, int64_t axis, Combine combine,
                             Tensor* result) {
  if (IsFloat(result->dtype)) {
    return WithReal(result->dtype, [&](auto zero) {
      using Real = decltype(zero);
      std::vector<Real> values = LoadReals<Real>(*inputs[0]);
      const std::vector<Real> updates = LoadReals<Real>(*inputs[2]);
      absl::Status status = ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
        values[to] = Combined(combine, values[to], updates[from]);
      });
      StoreReals(values, result);
      return status;
    });
  }
  std::vector<uint64_t> values = LoadBitPatterns(*inputs[0]);
  const std::vector<uint64_t> updates = LoadBitPatterns(*inputs[2]);
  // Sums and products of bit patterns wrap as the semantics require.
  const bool is_signed =
      IsSigned(result->dtype) && (combine == Combine::kMax || combine == Combine::kMin);
  absl::Status status = ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
    values[to] = is_signed
                     ? static_cast<uint64_t>(Combined(combine, static_cast<int64_t>(values[to]),
                                                      static_cast<int64_t>(updates[from])))
                     : Combined(combine, values[to], updates[from]);
  });
  StoreBitPatterns(values, result);
  return status;
}

// Copies rows of a map's result along which its coordinates grow by constants.
class MappedRows {
 public:
  MappedRows(const std::vector<Coordinate>& coordinates, const Tensor& operand, const Tensor* fill,
             Tensor* result)
      : coordinates_(coordinates),
        operand_(operand),
        fill_(fill),
        result_(*result),
        possible_(!result->shape.empty() && operand.elements() > 0 &&
                  operand.elements() <= kMostElements) {
    const int last = static_cast<int>(result->shape.size()) - 1;
    for (const Coordinate& c : coordinates) {
      const std::optional<int64_t> slope = c.SlopeAlong(last);
      possible_ = possible_ && slope && IsUpTo(*slope, kMostSlope);
      slopes_.push_back(slope.value_or(0));
    }
  }

  // Copies the row that begins at `position`. Returns false, with nothing written, if it has to be
  // copied by elements.
  bool Copy(int64_t position, const std::vector<int64_t>& at) {
    if (!possible_) return false;
    // The part of the row whose elements are inside the operand.
    int64_t begin = 0, end = result_.shape.back(), source = 0, step = 0;
    for (size_t axis = 0; axis < coordinates_.size(); ++axis) {
      const std::optional<int64_t> first = coordinates_[axis].Evaluate(at);
      const int64_t size = operand_.shape[axis], slope = slopes_[axis];
      if (!first || !IsUpTo(*first, kMostFirst)) return false;
      if (slope == 0 && (*first < 0 || *first >= size)) end = begin;
      if (slope > 0) {
        begin = std::max(begin, (std::max<int64_t>(-*first, 0) + slope - 1) / slope);
        end = std::min(end, (std::max<int64_t>(size - *first, 0) + slope - 1) / slope);
      }
      if (slope < 0) {
        begin = std::max(begin, *first < size ? 0 : (*first - size) / -slope + 1);
        end = std::min(end, *first < 0 ? 0 : *first / -slope + 1);
      }
      source = source * size + *first;
      step = step * size + slope;
    }
    begin = std::min(begin, result_.shape.back());
    end = std::max(begin, end);
    if (fill_ == nullptr && end - begin < result_.shape.back()) return false;
    for (int64_t i = 0; i < begin; ++i) CopyElements(*fill_, 0, 1, &result_, position + i);
    if (step == 1 && begin < end) {
      CopyElements(operand_, source + begin, end - begin, &result_, position + begin);
    } else {
      for (int64_t i = begin; i < end; ++i) {
        CopyElements(operand_, source + i * step, 1, &result_, position + i);
      }
    }
    for (int64_t i = end; i < result_.shape.back(); ++i) {
      CopyElements(*fill_, 0, 1, &result_, position + i);
    }
    return true;
  }

 private:
  // Up to these nothing here overflows; an operand has one element at least, so that no axis is
  // longer than all.
  static constexpr int64_t kMostSlope = int64_t{1} << 20, kMostFirst = int64_t{1} << 28;
  static constexpr int64_t kMostElements = int64_t{1} << 30;

  static bool IsUpTo(int64_t value, int64_t most) { return value >= -most && value <= most; }

  const std::vector<Coordinate>& coordinates_;
  const Tensor& operand_;
  const Tensor* fill_;
  Tensor& result_;
  std::vector<int64_t> slopes_;
  bool possible_;
};

ATHANOR_REFERENCE(IndexMap) {
  const Tensor& operand = *inputs[0];
  const auto& map = GetAttr<IndexMap>(attrs, "map");
  const auto fill = attrs.find("fill");
  const int rank = static_cast<int>(result->shape.size());
  std::vector<Coordinate> coordinates;
  for (const Expr& e : map.coordinates) {
    ASSIGN_OR_RETURN(Coordinate coordinate, Coordinate::Compile(e, dims, rank));
    coordinates.push_back(std::move(coordinate));
  }
  const std::vector<int64_t> strides = Strides(operand.shape);
  absl::Status status;
  const auto element = [&](int64_t position, const std::vector<int64_t>& at) {
    int64_t source = 0;
    for (size_t axis = 0; axis < coordinates.size(); ++axis) {
      const std::optional<int64_t> index = coordinates[axis].Evaluate(at);
      if (!index || *index < 0 || *index >= operand.shape[axis]) {
        if (fill != attrs.end()) {
          CopyElements(std::get<Tensor>(fill->second), 0, 1, result, position);
        } else if (status.ok()) {
          status = absl::OutOfRangeError(
              absl::StrFormat("at %s the index map gives %s for axis %d of an operand of shape %s, "
                              "which is outside, and the map has no fill",
                              ShapeText(at), index ? absl::StrCat(*index) : "no value", axis,
                              ShapeText(operand.shape)));
        }
        return;
      }
      source += *index * strides[axis];
    }
    CopyElements(operand, source, 1, result, position);
  };
  MappedRows rows(coordinates, operand,
                  fill == attrs.end() ? nullptr : &std::get<Tensor>(fill->second), result);
  std::vector<int64_t> at;
  ForEachRow(result->shape, [&](int64_t position, const std::vector<int64_t>& row) {
    if (!rows.Copy(position, row)) ForEachInRow(result->shape, position, row, &at, element);
  });
  return status;
}

ATHANOR_REFERENCE(Gather) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const AxisView view(*inputs[0], axis);
  const int64_t count = inputs[1]->elements();
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(int64_t index, CheckedIndex(*inputs[1], i, view.extent, axis));
    for (int64_t outer = 0; outer < view.outer; ++outer) {
      CopyElements(*inputs[0], (outer * view.extent + index) * view.inner, view.inner, result,
                   (outer * count + i) * view.inner);
    }
  }
  return absl::OkStatus();
}

absl::Status ScatterSet(Inputs inputs, int64_t axis, Tensor* result) {
  result->bytes = inputs[0]->bytes;
  return ForEachUpdate(inputs, axis, [&](int64_t to, int64_t from) {
    CopyElements(*inputs[2], from, 1, result, to);
  });
}

ATHANOR_REFERENCE(Scatter) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  if (mode == "add") return ScatterCombined(inputs, axis, Combine::kAdd, result);
  if (mode == "mul") return ScatterCombined(inputs, axis, Combine::kMul, result);
  if (mode == "max") return ScatterCombined(inputs, axis, Combine::kMax, result);
  if (mode == "min") return ScatterCombined(inputs, axis, Combine::kMin, result);
  return ScatterSet(inputs, axis, result);
}

ATHANOR_REFERENCE(StateWrite) { return ScatterSet(inputs, 0, result); }

// result[p, i, s] = data[p, indices[i], s].
AxisFlow GatherFlow(const Graph& graph, const Node& node) {
  const auto axis = static_cast<int>(GetAttr<int64_t>(node.attrs, "axis"));
  const int selected = static_cast<int>(graph.node(node.inputs[1]).type.shape.size());
  AxisFlow flow = AlikeFlow(graph, node);
  for (int& to : flow[0]) to = to < axis ? to : to == axis ? kMixed : to - 1 + selected;
  for (int& to : flow[1]) to += axis;
  return flow;
}

// data[p, indices[i], s] is replaced by or combined with updates[p, i, s]. Updates of one element
// are applied in row-major order, which within a row is the same for any number of rows.
AxisFlow ScatterFlow(const Graph& graph, const Node& node) {
  const auto axis = static_cast<int>(GetAttrOr<int64_t>(node.attrs, "axis", 0));
  const int selected = static_cast<int>(graph.node(node.inputs[1]).type.shape.size());
  AxisFlow flow = AlikeFlow(graph, node);
  flow[0][axis] = kMixed;
  for (int& to : flow[1]) to = kMixed;
  for (int& to : flow[2]) {
    to = to < axis ? to : to < axis + selected ? kMixed : to - selected + 1;
  }
  return flow;
}

ValueFacts MappedValues(const ValueQuery& query) {
  const auto fill = query.attrs.find("fill");
  if (fill == query.attrs.end()) return query.operands[0];
  return Common(query.operands[0], ValueFactsOf(std::get<Tensor>(fill->second)));
}

ValueFacts GatheredValues(const ValueQuery& query) { return Derived(query.operands[0], query); }

// Data and its indices around an axis, as [outer, extent, inner] and [outer, count, inner].
struct IndexedAxis {
  IndexedAxis(absl::Span<const int64_t> data, int64_t axis, int64_t indices)
      : extent(data[axis]), count(indices), inner(Product(data.subspan(axis + 1))) {}
  int64_t extent, count, inner;
};

absl::Status SampleIndexMap(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count));
  const NodeId operand = node.inputs[0];
  std::vector<Coordinate> coordinates;
  for (const Expr& e : GetAttr<IndexMap>(node.attrs, "map").coordinates) {
    ASSIGN_OR_RETURN(Coordinate c, Coordinate::Compile(e, cutter.dims(),
                                                       static_cast<int>(node.type.shape.size())));
    coordinates.push_back(std::move(c));
  }
  const std::vector<int64_t> strides = Strides(cutter.ShapeOf(operand));
  Positions sources(count, -1);  // -1: outside
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t> at = CoordinatesOf(cutter.ShapeOf(n), cutter.Wanted(n)[i]);
    int64_t source = 0;
    for (size_t axis = 0; axis < coordinates.size() && source >= 0; ++axis) {
      const std::optional<int64_t> index = coordinates[axis].Evaluate(at);
      const bool valid = index && *index >= 0 && *index < cutter.ShapeOf(operand)[axis];
      source = valid ? source + *index * strides[axis] : -1;
    }
    sources[i] = source;
  }
  const bool all_inside = std::find(sources.begin(), sources.end(), -1) == sources.end();
  if (!all_inside && !node.attrs.contains("fill")) {
    return absl::OutOfRangeError(absl::StrCat(
        cutter.graph().Describe(n), ": the index map reads outside an operand of shape ",
        ShapeText(cutter.ShapeOf(operand)), " and has no fill"));
  }
  const Tensor outside = all_inside ? Tensor() : GetAttr<Tensor>(node.attrs, "fill");
  cutter.RecipeOf(n) = cutter.PullOr(operand, {count}, std::move(sources), outside);
  return absl::OkStatus();
}

absl::Status SampleGather(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count));
  const auto axis = GetAttr<int64_t>(node.attrs, "axis");
  const IndexedAxis view(cutter.ShapeOf(node.inputs[0]), axis,
                         Product(cutter.ShapeOf(node.inputs[1])));
  Positions selected;  // positions in the indices
  for (int64_t p : cutter.Wanted(n)) selected.push_back(p / view.inner % view.count);
  ASSIGN_OR_RETURN(Positions indices, cutter.IndexValues(node.inputs[1], selected));
  Positions sources;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[i], p = cutter.Wanted(n)[i];
    if (index < 0 || index >= view.extent) {
      return OutsideAxis(index, axis, view.extent);
    }
    const int64_t outer = p / view.inner / view.count;
    sources.push_back((outer * view.extent + index) * view.inner + p % view.inner);
  }
  const Cutter::Handle guard = cutter.PullIfInexact(node.inputs[1], selected);
  const Cutter::Handle moved = cutter.Pull(node.inputs[0], {count}, std::move(sources));
  cutter.RecipeOf(n) = [&cutter, moved, guard] {
    return cutter.Guarded(cutter.Get(moved), {guard});
  };
  return absl::OkStatus();
}

// The part of a StateWrite is a Scatter that sets.
absl::Status SampleScatter(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const int64_t count = Count(cutter.Wanted(n));
  const int64_t updates = Product(cutter.ShapeOf(node.inputs[1]));
  RETURN_IF_ERROR(cutter.Spend(n, count));
  RETURN_IF_ERROR(cutter.Spend(n, updates));
  const auto axis = GetAttrOr<int64_t>(node.attrs, "axis", 0);
  const IndexedAxis view(cutter.ShapeOf(node.inputs[0]), axis, updates);
  ASSIGN_OR_RETURN(Positions indices, cutter.IndexValues(node.inputs[1], UpTo(updates)));
  std::vector<std::pair<int64_t, int64_t>> by_index;  // (index, its position)
  for (int64_t i = 0; i < updates; ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= view.extent) return OutsideAxis(index, axis, view.extent);
    by_index.emplace_back(index, i);
  }
  // Sorted, so that the updates of an element are found by binary search, in their order.
  std::sort(by_index.begin(), by_index.end());
  Positions targets, sources;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t p = cutter.Wanted(n)[w], index = p / view.inner % view.extent;
    const int64_t outer = p / view.inner / view.extent;
    auto hit =
        std::lower_bound(by_index.begin(), by_index.end(), std::make_pair(index, int64_t{0}));
    for (; hit != by_index.end() && hit->first == index; ++hit) {
      RETURN_IF_ERROR(cutter.Spend(n, 1));
      targets.push_back(w);
      sources.push_back((outer * updates + hit->second) * view.inner + p % view.inner);
    }
  }
  const Cutter::Handle guard = cutter.PullIfInexact(node.inputs[1], UpTo(updates));
  const Cutter::Handle data = cutter.Pull(node.inputs[0], {count}, cutter.Wanted(n));
  const Cutter::Handle moved = cutter.Pull(node.inputs[2], {Count(sources)}, std::move(sources));
  cutter.RecipeOf(n) = [&cutter, n, data, moved, guard, targets = std::move(targets)] {
    const Attrs attrs = {
        {"axis", int64_t{0}},
        {"mode", GetAttrOr<std::string>(cutter.graph().node(n).attrs, "mode", "set")}};
    return cutter.Guarded(
        cutter.Add(
            Op::kScatter,
            {cutter.Get(data), cutter.IndexLiteral({Count(targets)}, targets), cutter.Get(moved)},
            attrs),
        {guard});
  };
  return absl::OkStatus();
}

}  // namespace

void AddIndexing(Rows* rows) {
  ATHANOR_ROW(IndexMap, kMovement, 1, 1,
              ATHANOR_ATTRS(Required("map", AttrType::kIndexMap,
                                     "the result's shape; the operand's "
                                     "coordinates over $0, $1, ... and dims"),
                            Optional("fill", AttrType::kTensor,
                                     "a scalar of the operand's dtype, for coordinates outside")),
              InferIndexMap, 0,
              "The result's element ($0, $1, ...) is the operand's element at the map's "
              "coordinates, bit for bit; `fill` where a coordinate is outside the operand. Without "
              "`fill` every coordinate is provably inside. Any dtype.",
              .form = OpForm::kView, .rounding = Rounding::kKeeps, .errors = ErrorRule::kMoved,
              .roles = {OperandRole::kPassed}, .values = MappedValues, .sample = SampleIndexMap);
  ATHANOR_ROW(
      Gather, kMovement, 2, 2,
      ATHANOR_ATTRS(Required("axis", AttrType::kInt, "data's axis that indices select")),
      InferGather, 0,
      "Operands data and indices (any integer dtype). The result has data's shape with "
      "`axis` replaced by the axes of indices: result[p, i, s] = data[p, indices[i], s]. An "
      "index outside [0, size) is an error (negative ones do not count from the end): "
      "OUT_OF_RANGE in the reference evaluator, the row's error flag at run time, and "
      "nothing outside data is read. Any dtype of data.",
      .form = OpForm::kGather, .rounding = Rounding::kKeeps, .errors = ErrorRule::kMoved,
      .roles = {OperandRole::kPassed, OperandRole::kIndex},
      .rows = {GatherFlow, "selects by index across"}, .values = GatheredValues,
      .sample = SampleGather);
  ATHANOR_ROW(
      Scatter, kMovement, 3, 3,
      ATHANOR_ATTRS(
          Required("axis", AttrType::kInt, "data's axis that indices select"),
          Required("mode", AttrType::kString, "\"set\", \"add\", \"mul\", \"max\" or \"min\"")),
      InferScatter, 0,
      "Operands data, indices (any integer dtype) and updates, shaped as Gather(data, "
      "indices) would be. The result is data with updates[p, i, s] put at [p, indices[i], "
      "s]: `set` replaces, and among equal places the last in row-major order of updates "
      "stays; `add`, `mul`, `max` and `min` combine with what is there as Add, Mul, Max and Min "
      "do, in row-major order of updates; f16 and bf16 sums and products accumulate in f32 "
      "and round once. An index outside is an error as in Gather, and nothing outside is "
      "written. bool has no `add` and no `mul`.",
      .form = OpForm::kScatter, .rounding = Rounding::kByMode, .errors = ErrorRule::kScattered,
      .roles = {OperandRole::kNone, OperandRole::kIndex},
      .rows = {ScatterFlow, "writes by index across"}, .sample = SampleScatter);
  ATHANOR_ROW(
      StateWrite, kMovement, 3, 3, {}, InferStateWrite, 0,
      "Operands state [N, ...], a StateRead; index [T] (i32 or i64) and update [T, ...]. The "
      "result "
      "is what the state holds from then on: its rows index[t] are update[t], others stay. Of "
      "equal "
      "indices any one's row stays; the reference evaluator keeps the last. An index outside is an "
      "error as in Gather, and nothing outside is written.",
      .form = OpForm::kStateWrite, .rounding = Rounding::kKeeps, .errors = ErrorRule::kScattered,
      .roles = {OperandRole::kNone, OperandRole::kSlots},
      .rows = {ScatterFlow, "writes by index across"}, .sample = SampleScatter);
}

}  // namespace athanor
