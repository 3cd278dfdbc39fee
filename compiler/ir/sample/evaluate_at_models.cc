// The functions of evaluate_at_rows.cc for Rotary and Dequantize.
#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/sample/evaluate_at_internal.h"

namespace athanor {

// Pulls whole rows of x with their angles, as [rows, 1, D] and [rows, 1, R/2].
absl::Status Cutter::DependRotary(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> shape = ShapeOf(n), cos = ShapeOf(node.inputs[1]);
  const int64_t width = shape.back(), half = cos.back();
  const std::vector<int64_t> own = Strides(cos);
  std::vector<int64_t> strides(shape.size(), 0);
  for (size_t i = 0; i + 1 < own.size(); ++i) {
    const bool spread = cos[i] == 1 && i + 2 < own.size();
    if (!spread) strides[shape.size() - own.size() + i] = own[i];
  }
  Positions firsts, picks, angles;
  for (int64_t p : wanted_[n]) {  // ascending
    const int64_t first = p - p % width;
    if (firsts.empty() || firsts.back() != first) firsts.push_back(first);
    picks.push_back((Count(firsts) - 1) * width + p % width);
  }
  const int64_t rows = Count(firsts);
  if (absl::Status s = Spend(n, rows, width); !s.ok()) return s;
  if (absl::Status s = Spend(n, rows, 2 * half); !s.ok()) return s;
  for (int64_t first : firsts) angles.push_back(Dot(CoordinatesOf(shape, first), strides));
  const Handle x = Pull(node.inputs[0], {rows, 1, width}, Sums(firsts, UpTo(width)));
  const Handle c = Pull(node.inputs[1], {rows, 1, half}, Sums(angles, UpTo(half)));
  const Handle s = Pull(node.inputs[2], {rows, 1, half}, Sums(angles, UpTo(half)));
  recipes_[n] = [this, n, rows, width, x, c, s, picks = std::move(picks)] {
    return Add(Op::kGather,
               {Flatten(Add(Op::kRotary, {Get(x), Get(c), Get(s)}, graph_.node(n).attrs),
                        {rows, 1, width}),
                IndexLiteral({Count(picks)}, picks)},
               {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

// Pulls the packed integers that hold each element, as [count, 1], and its scale and zero, as
// vectors.
absl::Status Cutter::DependDequantize(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> shape = ShapeOf(n), scale = ShapeOf(node.inputs[1]);
  const int64_t width = 8 * DTypeBytes(graph_.node(node.inputs[0]).type.dtype);
  const int64_t per = width / GetAttrOr<int64_t>(node.attrs, "bits", width);
  const int64_t axis = GetAttrOr<int64_t>(node.attrs, "axis", 0);
  const int64_t block = GetAttrOr<int64_t>(node.attrs, "block", 0);
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count, static_cast<int64_t>(node.inputs.size())); !s.ok()) return s;
  const std::vector<int64_t> strides = Strides(scale);
  const int64_t last = shape.empty() ? 1 : shape.back();
  const int64_t stored = shape.empty() ? 1 : ShapeOf(node.inputs[0]).back();
  Positions packed, picks, scales;
  for (int64_t w = 0; w < count; ++w) {
    const int64_t p = wanted_[n][w];
    std::vector<int64_t> at = CoordinatesOf(shape, p);
    packed.push_back(p / last * stored + p % last / per);
    picks.push_back(w * per + p % last % per);
    if (block > 0) at[axis] /= block;
    scales.push_back(scale.empty() ? 0 : block > 0 ? Dot(at, strides) : at[axis]);
  }
  std::vector<Handle> operands = {Pull(node.inputs[0], {count, 1}, std::move(packed))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    operands.push_back(Pull(node.inputs[i], {count}, scales));
  }
  recipes_[n] = [this, n, count, per, operands,
                 picks = std::move(picks)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Handle operand : operands) {
      absl::StatusOr<NodeId> id = Get(operand);
      if (!id.ok()) return id.status();
      ids.push_back(*id);
    }
    Attrs attrs = graph_.node(n).attrs;
    attrs.erase("block");
    attrs.erase("size");
    attrs["axis"] = int64_t{0};
    return Add(
        Op::kGather,
        {Flatten(builder_.Add(Op::kDequantize, std::move(ids), std::move(attrs)), {count, per}),
         IndexLiteral({Count(picks)}, picks)},
        {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

}  // namespace athanor
