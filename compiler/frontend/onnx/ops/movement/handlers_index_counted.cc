// Handlers of ops whose result sizes depend on contents. They need known contents: a constant's, or
// those given at upload.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/movement/handlers_index.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kMaxBoxes = 16'384;

// Returns operand i's elements as a tensor; contents that are only known as expressions are
// converted.
absl::StatusOr<Tensor> Contents(HandlerContext& c, int i, std::string_view what) {
  RETURN_IF_ERROR(c.Numbers(i, what).status());
  const Value& x = c.In(i);
  if (x.known->literal.has_value() && Computes(x.dtype())) return *x.known->literal;
  return Unimplemented("its ", what, " is of type ", ElemName(x.elem),
                       " and not a plain constant, which is not supported");
}

Value Indices(OpBuilder& b, const std::vector<int64_t>& values, std::vector<int64_t> shape) {
  return b.Literal(Elem::kInt64, Tensor::Of<int64_t>(DType::kI64, std::move(shape), values));
}

// Compares values; NaN is above all others and equal to NaN.
int Compare(const ::athanor::Scalar& a, const ::athanor::Scalar& b) {
  if (IsFloat(a.dtype)) {
    const bool nan_a = a.f != a.f, nan_b = b.f != b.f;
    if (nan_a || nan_b) return static_cast<int>(nan_a) - static_cast<int>(nan_b);
    return static_cast<int>(a.f > b.f) - static_cast<int>(a.f < b.f);
  }
  if (IsSigned(a.dtype)) return static_cast<int>(a.i > b.i) - static_cast<int>(a.i < b.i);
  return static_cast<int>(a.u > b.u) - static_cast<int>(a.u < b.u);
}

// A tensor viewed as slices along one axis.
class Slices {
 public:
  Slices(const Tensor& tensor, int axis) : tensor_(tensor), count_(tensor.shape[axis]) {
    // The other axes may have any size, with a product beyond int64.
    if (tensor.bytes.empty()) return;
    for (int i = 0; i < axis; ++i) outer_ *= tensor.shape[i];
    for (size_t i = axis + 1; i < tensor.shape.size(); ++i) inner_ *= tensor.shape[i];
  }
  int64_t count() const { return count_; }
  int Compare(int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t k = 0; k < inner_; ++k) {
        const int order =
            onnx::Compare(LoadScalar(tensor_, At(o, a, k)), LoadScalar(tensor_, At(o, b, k)));
        if (order != 0) return order;
      }
    }
    return 0;
  }
  Tensor Chosen(const std::vector<int64_t>& slices, int axis) const {
    Tensor chosen = {tensor_.dtype, tensor_.shape, {}};
    chosen.shape[axis] = static_cast<int64_t>(slices.size());
    if (slices.empty() || tensor_.bytes.empty()) return chosen;  // the other axes may have any size
    const int64_t bytes = inner_ * DTypeBytes(tensor_.dtype);
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t slice : slices) {
        chosen.bytes += tensor_.bytes.substr((o * count_ + slice) * bytes, bytes);
      }
    }
    return chosen;
  }

 private:
  int64_t At(int64_t outer, int64_t slice, int64_t inner) const {
    return (outer * count_ + slice) * inner_ + inner;
  }

  const Tensor& tensor_;
  const int64_t count_;
  int64_t outer_ = 1, inner_ = 1;
};

// A box, given by its corners.
struct Box {
  float top, left, bottom, right;
};
Box BoxAt(const std::vector<double>& boxes, int64_t at, bool centre) {
  const auto v = [&](int i) { return static_cast<float>(boxes[at * 4 + i]); };
  if (centre) return {v(1) - v(3) / 2, v(0) - v(2) / 2, v(1) + v(3) / 2, v(0) + v(2) / 2};
  return {std::min(v(0), v(2)), std::min(v(1), v(3)), std::max(v(0), v(2)), std::max(v(1), v(3))};
}
float AreaOf(const Box& box) { return (box.bottom - box.top) * (box.right - box.left); }

// Reports whether the intersection is more than the threshold's part of the union.
bool Overlap(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0 || AreaOf(a) <= 0 || AreaOf(b) <= 0) return false;
  const float common = height * width;
  return common / (AreaOf(a) + AreaOf(b) - common) > threshold;
}

absl::StatusOr<double> OneNumber(HandlerContext& c, int i, std::string_view what,
                                 double otherwise) {
  if (!c.Has(i)) return otherwise;
  ASSIGN_OR_RETURN(const std::vector<double> numbers, c.Numbers(i, what));
  if (numbers.size() != 1) return Invalid("its ", what, " must be one number");
  return numbers.front();
}

}  // namespace

absl::Status NonZero9(HandlerContext& c) {
  ASSIGN_OR_RETURN(const std::vector<double> values, c.Numbers(0, "X"));
  const std::vector<int64_t>& shape = c.In(0).known->shape;
  const auto rank = static_cast<int64_t>(shape.size());
  std::vector<int64_t> places;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0) places.push_back(static_cast<int64_t>(i));  // NaN too
  }
  const auto count = static_cast<int64_t>(places.size());
  std::vector<int64_t> indices(rank * count);
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t axis = rank, rest = places[k]; axis-- > 0;) {
      indices[axis * count + k] = rest % shape[axis];
      rest /= shape[axis];
    }
  }
  c.Set(0, Indices(c.b(), indices, {rank, count}));
  return absl::OkStatus();
}

absl::Status Unique11(HandlerContext& c) {
  ASSIGN_OR_RETURN(Tensor x, Contents(c, 0, "X"));
  absl::StatusOr<int> axis = 0;
  if (c.Given("axis")) {
    axis = c.Axis(c.Int("axis"), c.In(0).rank());
    if (!axis.ok()) return axis.status();
  } else {
    x.shape = {x.elements()};
  }
  const Slices slices(x, *axis);
  if (slices.count() > kMaxKnownElements) {
    return Unimplemented("axis ", *axis, " has ", slices.count(), " elements; at most ",
                         kMaxKnownElements, " are supported");
  }
  std::vector<int64_t> order(slices.count());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int by_value = slices.Compare(a, b);
    return by_value != 0 ? by_value < 0 : a < b;
  });
  // Groups of equal slices: the first of each, in order of value, then of position.
  struct Group {
    int64_t first;
    std::vector<int64_t> members;
  };
  std::vector<Group> groups;
  for (int64_t at : order) {
    if (groups.empty() || slices.Compare(groups.back().first, at) != 0) groups.push_back({at, {}});
    groups.back().members.push_back(at);
  }
  if (c.Int("sorted") == 0) {
    std::sort(groups.begin(), groups.end(),
              [](const Group& a, const Group& b) { return a.first < b.first; });
  }
  std::vector<int64_t> firsts, counts, inverse(order.size());
  for (const Group& group : groups) {
    for (int64_t at : group.members) inverse[at] = static_cast<int64_t>(firsts.size());
    firsts.push_back(group.first);
    counts.push_back(static_cast<int64_t>(group.members.size()));
  }
  OpBuilder& b = c.b();
  const auto found = static_cast<int64_t>(groups.size());
  if (c.Wants(0)) c.Set(0, b.Literal(c.In(0).elem, slices.Chosen(firsts, *axis)));
  if (c.Wants(1)) c.Set(1, Indices(b, firsts, {found}));
  if (c.Wants(2)) c.Set(2, Indices(b, inverse, {slices.count()}));
  if (c.Wants(3)) c.Set(3, Indices(b, counts, {found}));
  return absl::OkStatus();
}

absl::Status NonMaxSuppression10(HandlerContext& c) {
  const Shape &boxes_shape = c.In(0).shape, &scores_shape = c.In(1).shape;
  const absl::StatusOr<std::vector<double>> boxes = c.Numbers(0, "boxes"),
                                            scores = c.Numbers(1, "scores");
  const absl::StatusOr<double> most = OneNumber(c, 2, "max_output_boxes_per_class", 0),
                               threshold = OneNumber(c, 3, "iou_threshold", 0),
                               least = OneNumber(c, 4, "score_threshold", 0);
  const absl::Status known = Together(
      {boxes.status(), scores.status(), most.status(), threshold.status(), least.status()});
  if (!known.ok()) return known;
  if (boxes_shape.size() != 3 || scores_shape.size() != 3 || !boxes_shape[2].IsConstant(4) ||
      boxes_shape[0] != scores_shape[0] || boxes_shape[1] != scores_shape[2]) {
    return Invalid("its boxes and scores have shapes ", ShapeToString(boxes_shape), " and ",
                   ShapeToString(scores_shape),
                   "; they must be [N, boxes, 4] and [N, classes, "
                   "boxes]");
  }
  const int64_t images = *scores_shape[0].constant(), classes = *scores_shape[1].constant(),
                count = *scores_shape[2].constant();
  if (count > kMaxBoxes) {
    return Unimplemented("it has ", count, " boxes; at most ", kMaxBoxes, " are supported");
  }
  const bool centre = c.Int("center_point_box") != 0;
  std::vector<int64_t> chosen;
  // Without boxes, the numbers of images and classes may be huge.
  const int64_t rows = count == 0 ? 0 : images * classes;
  for (int64_t row = 0; row < rows; ++row) {
    const auto score = [&](int64_t i) { return (*scores)[row * count + i]; };
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(score(i))) continue;
      if (!c.Has(4) || score(i) > *least) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    std::vector<Box> kept;
    for (int64_t i : order) {
      if (static_cast<double>(kept.size()) >= *most) break;
      const Box box = BoxAt(*boxes, row / classes * count + i, centre);
      const bool hidden = std::any_of(kept.begin(), kept.end(), [&](const Box& other) {
        return Overlap(box, other, static_cast<float>(*threshold));
      });
      if (hidden) continue;
      kept.push_back(box);
      chosen.insert(chosen.end(), {row / classes, row % classes, i});
    }
  }
  c.Set(0, Indices(c.b(), chosen, {static_cast<int64_t>(chosen.size()) / 3, 3}));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
