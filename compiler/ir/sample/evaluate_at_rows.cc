// Determines which elements of its operands an element of each op depends on, and the op that
// computes a list of elements from them: leaves, elementwise ops, movement, reductions. All
// arithmetic is that of the op table.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/expr/coordinate.h"
#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/sample/evaluate_at_internal.h"

namespace athanor {
namespace {

// View of data and its indices around an axis, as [outer, extent, inner] and [outer, count, inner].
struct AxisView {
  AxisView(absl::Span<const int64_t> data, int64_t axis, int64_t indices)
      : extent(data[axis]), count(indices), inner(Product(data.subspan(axis + 1))) {}
  int64_t extent, count, inner;
};

}  // namespace

absl::Status Cutter::Depend(NodeId n) {
  const Node& node = graph_.node(n);
  switch (node.op) {
    case Op::kInput:
    case Op::kParameter:
    case Op::kConstant:
      return absl::OkStatus();
    case Op::kIota:
      return DependIota(n);
    case Op::kRandomBits:
      return DependRandomBits(n);
    case Op::kIndexMap:
      return DependIndexMap(n);
    case Op::kGather:
      return DependGather(n);
    case Op::kScatter:
      return DependScatter(n);
    case Op::kSumReduce:
    case Op::kMaxReduce:
    case Op::kMulReduce:
      return DependReduce(n);
    case Op::kConv:
      return DependConv(n);
    case Op::kPool:
      return DependPool(n);
    case Op::kContract:
      return DependContract(n);
    case Op::kSoftmax:
    case Op::kSort:
    case Op::kTopK:
    case Op::kCumulate:
      return DependRows(n, GetAttr<int64_t>(node.attrs, "axis"));
    case Op::kLayerNorm:
    case Op::kRmsNorm:
      return DependRows(n, static_cast<int64_t>(node.type.shape.size()) - 1);
    case Op::kAttention:
      return DependAttention(n);
    case Op::kEmbeddingBag:
      return DependEmbeddingBag(n);
    case Op::kRotary:
      return DependRotary(n);
    case Op::kScan:
      return DependScan(n);
    case Op::kDequantize:
      return DependDequantize(n);
    case Op::kSigmoid:
    case Op::kGelu:
    case Op::kSilu:
    case Op::kRelu:
      return DependElementwise(n);
    default:
      if (OpInfo(node.op).op_class == OpClass::kElementwise) return DependElementwise(n);
  }
  return absl::UnimplementedError(
      absl::StrCat(graph_.Describe(n), ": has no row in compiler/ir/sample/evaluate_at_rows.cc"));
}

absl::Status Cutter::DependIota(NodeId n) {
  if (absl::Status s = Spend(n, Count(wanted_[n])); !s.ok()) return s;
  recipes_[n] = [this, n]() -> absl::StatusOr<NodeId> {
    const auto axis = GetAttr<int64_t>(graph_.node(n).attrs, "axis");
    Positions coordinates;
    for (int64_t p : wanted_[n]) coordinates.push_back(CoordinatesOf(ShapeOf(n), p)[axis]);
    return Add(Op::kCast, {IndexLiteral({Count(coordinates)}, coordinates)},
               {{"dtype", graph_.node(n).type.dtype}});
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependRandomBits(NodeId n) {
  if (absl::Status s = Spend(n, Count(wanted_[n])); !s.ok()) return s;
  absl::StatusOr<Positions> seed = IndexValues(graph_.node(n).inputs[0], {0});
  if (!seed.ok()) return seed.status();
  const Handle guard = PullIfInexact(graph_.node(n).inputs[0], {0});
  recipes_[n] = [this, n, guard, seed = static_cast<uint64_t>((*seed)[0])] {
    Tensor words = Tensor::Zeros(graph_.node(n).type.dtype, {Count(wanted_[n])});
    for (int64_t i = 0; i < words.elements(); ++i) {
      StoreScalar(words, i, Scalar::Unsigned(words.dtype, RandomWord(seed, wanted_[n][i])));
    }
    return Guarded(Literal(std::move(words)), {guard});
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependElementwise(NodeId n) {
  const Node& node = graph_.node(n);
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count, static_cast<int64_t>(node.inputs.size())); !s.ok()) return s;
  std::vector<Handle> operands;
  for (NodeId i : node.inputs) operands.push_back(Pull(i, {count}, wanted_[n]));
  recipes_[n] = [this, n, operands]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Handle operand : operands) {
      absl::StatusOr<NodeId> id = Get(operand);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    return builder_.Add(graph_.node(n).op, std::move(ids), graph_.node(n).attrs);
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependIndexMap(NodeId n) {
  const Node& node = graph_.node(n);
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count); !s.ok()) return s;
  const NodeId operand = node.inputs[0];
  std::vector<Coordinate> coordinates;
  for (const Expr& e : GetAttr<IndexMap>(node.attrs, "map").coordinates) {
    absl::StatusOr<Coordinate> c =
        Coordinate::Compile(e, dims_, static_cast<int>(node.type.shape.size()));
    if (!c.ok()) return c.status();
    coordinates.push_back(*std::move(c));
  }
  const std::vector<int64_t> strides = Strides(ShapeOf(operand));
  Positions sources(count, -1);  // -1: outside
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t> at = CoordinatesOf(ShapeOf(n), wanted_[n][i]);
    int64_t source = 0;
    for (size_t axis = 0; axis < coordinates.size() && source >= 0; ++axis) {
      const std::optional<int64_t> index = coordinates[axis].Evaluate(at);
      const bool valid = index && *index >= 0 && *index < ShapeOf(operand)[axis];
      source = valid ? source + *index * strides[axis] : -1;
    }
    sources[i] = source;
  }
  const bool all_inside = std::find(sources.begin(), sources.end(), -1) == sources.end();
  if (!all_inside && !node.attrs.contains("fill")) {
    return absl::OutOfRangeError(absl::StrCat(graph_.Describe(n),
                                              ": index map leaves an operand of shape ",
                                              ShapeText(ShapeOf(operand)), " and has no fill"));
  }
  const Tensor outside = all_inside ? Tensor() : GetAttr<Tensor>(node.attrs, "fill");
  recipes_[n] = PullOr(operand, {count}, std::move(sources), outside);
  return absl::OkStatus();
}

absl::Status Cutter::DependGather(NodeId n) {
  const Node& node = graph_.node(n);
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count); !s.ok()) return s;
  const auto axis = GetAttr<int64_t>(node.attrs, "axis");
  const AxisView view(ShapeOf(node.inputs[0]), axis, Product(ShapeOf(node.inputs[1])));
  Positions selected;  // positions in the indices
  for (int64_t p : wanted_[n]) selected.push_back(p / view.inner % view.count);
  absl::StatusOr<Positions> indices = IndexValues(node.inputs[1], selected);
  if (!indices.ok()) return indices.status();
  Positions sources;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = (*indices)[i], p = wanted_[n][i];
    if (index < 0 || index >= view.extent) {
      return OutsideAxis(index, axis, view.extent);
    }
    const int64_t outer = p / view.inner / view.count;
    sources.push_back((outer * view.extent + index) * view.inner + p % view.inner);
  }
  const Handle guard = PullIfInexact(node.inputs[1], selected);
  const Handle moved = Pull(node.inputs[0], {count}, std::move(sources));
  recipes_[n] = [this, moved, guard] { return Guarded(Get(moved), {guard}); };
  return absl::OkStatus();
}

absl::Status Cutter::DependScatter(NodeId n) {
  const Node& node = graph_.node(n);
  const int64_t count = Count(wanted_[n]);
  const int64_t updates = Product(ShapeOf(node.inputs[1]));
  if (absl::Status s = Spend(n, count); !s.ok()) return s;
  if (absl::Status s = Spend(n, updates); !s.ok()) return s;
  const auto axis = GetAttr<int64_t>(node.attrs, "axis");
  const AxisView view(ShapeOf(node.inputs[0]), axis, updates);
  absl::StatusOr<Positions> indices = IndexValues(node.inputs[1], UpTo(updates));
  if (!indices.ok()) return indices.status();
  std::vector<std::pair<int64_t, int64_t>> by_index;  // (index, its position)
  for (int64_t i = 0; i < updates; ++i) {
    const int64_t index = (*indices)[i];
    if (index < 0 || index >= view.extent) return OutsideAxis(index, axis, view.extent);
    by_index.emplace_back(index, i);
  }
  std::sort(by_index.begin(), by_index.end());
  Positions targets, sources;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t p = wanted_[n][w], index = p / view.inner % view.extent;
    const int64_t outer = p / view.inner / view.extent;
    auto hit =
        std::lower_bound(by_index.begin(), by_index.end(), std::make_pair(index, int64_t{0}));
    for (; hit != by_index.end() && hit->first == index; ++hit) {
      if (absl::Status s = Spend(n, 1); !s.ok()) return s;
      targets.push_back(w);
      sources.push_back((outer * updates + hit->second) * view.inner + p % view.inner);
    }
  }
  const Handle guard = PullIfInexact(node.inputs[1], UpTo(updates));
  const Handle data = Pull(node.inputs[0], {count}, wanted_[n]);
  const Handle moved = Pull(node.inputs[2], {Count(sources)}, std::move(sources));
  recipes_[n] = [this, n, data, moved, guard, targets = std::move(targets)] {
    Attrs attrs = graph_.node(n).attrs;
    attrs.find("axis")->second = int64_t{0};
    return Guarded(
        Add(Op::kScatter, {Get(data), IndexLiteral({Count(targets)}, targets), Get(moved)}, attrs),
        {guard});
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependReduce(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> shape = ShapeOf(node.inputs[0]);
  const auto& axes = GetAttr<std::vector<int64_t>>(node.attrs, "axes");
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<int64_t> kept_strides, sizes, term_strides;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      kept_strides.push_back(strides[axis]);
    } else {
      sizes.push_back(shape[axis]);
      term_strides.push_back(strides[axis]);
    }
  }
  const int64_t count = Count(wanted_[n]), terms = Product(sizes);
  if (absl::Status s = Spend(n, count, terms); !s.ok()) return s;
  Positions bases;
  for (int64_t p : wanted_[n]) bases.push_back(Dot(CoordinatesOf(ShapeOf(n), p), kept_strides));
  const Handle operand =
      Pull(node.inputs[0], {count, terms}, Sums(bases, OffsetsOf(sizes, term_strides)));
  recipes_[n] = [this, n, operand] {
    return Add(graph_.node(n).op, {Get(operand)}, {{"axes", std::vector<int64_t>{1}}});
  };
  return absl::OkStatus();
}

}  // namespace athanor
