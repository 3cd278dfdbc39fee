// The functions of evaluate_at_rows.cc for windows: each element's window as a list.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ops/reference_util.h"
#include "compiler/ir/ops/window.h"
#include "compiler/ir/sample/evaluate_at_internal.h"

namespace athanor {

Cutter::Recipe Cutter::PullOr(NodeId node, std::vector<int64_t> shape, Positions positions,
                              const Tensor& outside) {
  const auto inside =
      std::find_if(positions.begin(), positions.end(), [](int64_t p) { return p >= 0; });
  const bool any = inside != positions.end();
  if (std::find(positions.begin(), positions.end(), -1) == positions.end()) {
    const Handle all = Pull(node, std::move(shape), std::move(positions));
    return [this, all] { return Get(all); };
  }
  Tensor is_inside = Tensor::Zeros(DType::kBool, shape);
  Tensor fills{outside.dtype, shape, {}};
  const int64_t instead = any ? *inside : 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    is_inside.bytes[i] = static_cast<char>(positions[i] >= 0);
    fills.bytes += outside.bytes;
    if (positions[i] < 0) positions[i] = instead;
  }
  if (!any) return [this, fills] { return Literal(fills); };
  const Handle moved = Pull(node, std::move(shape), std::move(positions));
  return [this, moved, is_inside, fills] {
    return Add(Op::kSelect, {Literal(is_inside), Get(moved), Literal(fills)});
  };
}

absl::Status Cutter::DependConv(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> x = ShapeOf(node.inputs[0]), w = ShapeOf(node.inputs[1]);
  absl::StatusOr<WindowPlaces> places =
      WindowPlaces::Of(node.attrs, {w.begin() + 2, w.end()}, dims_);
  if (!places.ok()) return places.status();
  const int64_t block = Product(x.subspan(2)), terms = Product(w.subspan(1));
  const int64_t count = Count(wanted_[n]);
  for (int side = 0; side < 2; ++side) {
    if (absl::Status s = Spend(n, count, terms); !s.ok()) return s;
  }
  const int64_t per_group = w[0] / GetAttrOr<int64_t>(node.attrs, "group", 1);
  Positions from_x, bases_w;
  for (int64_t p : wanted_[n]) {
    const std::vector<int64_t> at = CoordinatesOf(ShapeOf(n), p);
    const std::vector<int64_t> offsets =
        places->Offsets(x.subspan(2), absl::MakeConstSpan(at).subspan(2));
    const int64_t first = at[0] * x[1] + at[1] / per_group * w[1];
    for (int64_t c = 0; c < w[1]; ++c) {
      for (int64_t offset : offsets) {
        from_x.push_back(offset < 0 ? -1 : (first + c) * block + offset);
      }
    }
    bases_w.push_back(at[1] * terms);
  }
  const Recipe a =
      PullOr(node.inputs[0], {count, terms}, std::move(from_x), Tensor::Zeros(node.type.dtype, {}));
  const Handle b = Pull(node.inputs[1], {count, terms}, Sums(bases_w, UpTo(terms)));
  recipes_[n] = [this, a, b] {
    return Add(Op::kContract, {a(), Get(b)}, {{"spec", std::string("ab,ab->a")}});
  };
  return absl::OkStatus();
}

absl::Status Cutter::DependPool(NodeId n) {
  const Node& node = graph_.node(n);
  const absl::Span<const int64_t> x = ShapeOf(node.inputs[0]);
  const auto& mode = GetAttr<std::string>(node.attrs, "mode");
  const auto& kernel = GetAttr<std::vector<int64_t>>(node.attrs, "kernel");
  absl::StatusOr<WindowPlaces> places = WindowPlaces::Of(node.attrs, kernel, dims_);
  if (!places.ok()) return places.status();
  const int64_t block = Product(x.subspan(2)), terms = Product(kernel);
  const int64_t count = Count(wanted_[n]);
  if (absl::Status s = Spend(n, count, terms); !s.ok()) return s;
  // Each element's bag of sources. For a mean, only those positions that count.
  Positions sources, bags;
  std::vector<bool> empty;
  for (int64_t p : wanted_[n]) {
    const std::vector<int64_t> at = CoordinatesOf(ShapeOf(n), p);
    const absl::Span<const int64_t> out = absl::MakeConstSpan(at).subspan(2);
    const std::vector<int64_t> offsets = places->Offsets(x.subspan(2), out);
    const std::vector<bool> counts = places->Counts(x.subspan(2), out);
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
    recipes_[n] = MeanRecipe(PullOr(node.inputs[0], {Count(sources), 1}, sources, outside),
                             Count(sources), std::move(bags), empty, node.type.dtype);
    return absl::OkStatus();
  }
  const Op reduce = mode == "max" ? Op::kMaxReduce : Op::kSumReduce;
  const Recipe windows = PullOr(node.inputs[0], {count, terms}, std::move(sources), outside);
  recipes_[n] = [this, reduce, windows] {
    return Add(reduce, {windows()}, {{"axes", std::vector<int64_t>{1}}});
  };
  return absl::OkStatus();
}

// The mean of a bag is rounded once, as the mean of a window is; the mean of an empty bag is 0.
Cutter::Recipe Cutter::MeanRecipe(Recipe members, int64_t total, Positions bags,
                                  const std::vector<bool>& empty, DType dtype) {
  const int64_t count = Count(bags);
  Tensor is_empty = Tensor::Zeros(DType::kBool, {count});
  Tensor nans = Tensor::Zeros(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    is_empty.bytes[i] = static_cast<char>(empty[i]);
    StoreScalar(nans, i, Scalar::Float(dtype, std::numeric_limits<double>::quiet_NaN()));
  }
  const bool any_empty = std::find(empty.begin(), empty.end(), true) != empty.end();
  return [this, members = std::move(members), total, bags = std::move(bags), count, is_empty, nans,
          any_empty]() -> absl::StatusOr<NodeId> {
    absl::StatusOr<NodeId> mean =
        Flatten(Add(Op::kEmbeddingBag,
                    {members(), IndexLiteral({total}, UpTo(total)), IndexLiteral({count}, bags)},
                    {{"mode", std::string("mean")}}),
                {count, 1});
    if (!any_empty) return mean;
    return Add(Op::kSelect, {Literal(is_empty), Literal(nans), mean});
  };
}

}  // namespace athanor
