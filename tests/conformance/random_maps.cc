#include "tests/conformance/random_maps.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {
namespace {

constexpr int64_t kMaxElements = 4096;
constexpr size_t kMaxRank = 6;
const Expr::Env kLargest = {{"m", 5}, {"n", 7}};
const char kDims[] = " dim m in [1, 5]\n dim n in [0, 7]\n";

struct Value {
  int id;
  Shape shape;
};

class MapWriter {
 public:
  explicit MapWriter(uint64_t seed) : rng_(seed) {}

  MapCase Write() {
    Input({Expr::Symbol("m"), Expr::Symbol("n")});  // defines how large the dims are
    Value value = Input(RandomShape());
    const int ops = Below(6) + 1;
    for (int i = 0; i < ops; ++i) value = Step(value);
    while (maps_ == 0) value = RandomMap(value);
    text_ += absl::StrCat(" output \"y\" = %", value.id, "\n");
    MapCase c;
    c.text = absl::StrCat("graph \"maps\" {\n", kDims, text_, "}\n");
    c.maps = maps_;
    c.sizes = {{{"m", 1}, {"n", 0}}, {{"m", 1 + Below(5)}, {"n", 1 + Below(7)}}, kLargest};
    return c;
  }

 private:
  int Below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }
  bool OneIn(int n) { return Below(n) == 0; }

  Expr RandomExtent() {
    if (OneIn(8)) return Expr::Symbol("n") * (1 + Below(3));
    if (OneIn(8)) return Expr::Symbol("m") * (1 + Below(4));
    constexpr int kExtents[] = {1, 2, 3, 4, 4, 5, 6, 7, 8, 12, 16, 17, 40};
    return kExtents[Below(std::size(kExtents))];
  }

  Shape RandomShape() {
    Shape shape;
    for (int rank = 1 + Below(4); rank > 0; --rank) {
      shape.push_back(RandomExtent());
      if (!Fits(shape)) shape.back() = 2;
      if (!Fits(shape)) shape.back() = 1;
    }
    return shape;
  }

  static bool Fits(const Shape& shape) {
    if (shape.size() > kMaxRank) return false;
    int64_t elements = 1;
    for (const Expr& e : shape) {
      const std::optional<int64_t> extent = e.Evaluate(kLargest);
      if (!extent || *extent < 0 || *extent > kMaxElements) return false;
      elements *= std::max<int64_t>(*extent, 1);
      if (elements > kMaxElements) return false;
    }
    return true;
  }

  Value Node(const std::string& line, Shape shape) {
    const int id = next_++;
    text_ += absl::StrCat(" %", id, " = ", line, "\n");
    return {id, std::move(shape)};
  }

  Value Input(Shape shape) {
    std::string line = absl::StrCat("Input \"x", next_, "\" : f32", ShapeToString(shape));
    return Node(line, std::move(shape));
  }

  // Adds an IndexMap; returns the operand itself if the result would be too large.
  Value Map(const Value& x, Shape shape, const std::vector<Expr>& at, bool fill) {
    if (!Fits(shape)) return x;
    auto text = [](std::string* out, const Expr& e) { out->append(e.ToString()); };
    std::string line =
        absl::StrCat("IndexMap(%", x.id, ") {", fill ? "fill=f32[] {0.5}, " : "", "map=map",
                     ShapeToString(shape), "(", absl::StrJoin(at, ", ", text), ")}");
    ++maps_;
    return Node(line, std::move(shape));
  }

  static std::vector<Expr> AxesOf(const Shape& shape) {
    std::vector<Expr> at;
    for (size_t i = 0; i < shape.size(); ++i) at.push_back(Expr::Axis(static_cast<int>(i)));
    return at;
  }

  Value Step(const Value& x) {
    switch (Below(10)) {
      case 0:
        return Node(absl::StrCat(OneIn(2) ? "Relu" : "Exp2", "(%", x.id, ")"), x.shape);
      case 1:
        return Reduce(x);
      case 2:
        return Sum(x);
      case 3:
        return OneIn(2) ? Product(x) : Softmax(x);
      default:
        return RandomMap(x);
    }
  }

  Value RandomMap(const Value& x) {
    if (x.shape.empty()) return Expand(x);
    const size_t axis = Below(static_cast<int>(x.shape.size()));
    switch (Below(13)) {
      case 0:
        return Permute(x);
      case 1:
      case 2:
        return Pad(x, axis);
      case 3:
        return Slice(x, axis);
      case 4:
      case 5:
        return Split(x, axis);
      case 6:
      case 7:
        return Merge(x, axis);
      case 8:
        return Window(x, axis);
      case 9:
        return Along(x, axis);
      case 10:
        return Expand(x);
      case 11:
        return Drop(x, axis);
      default:
        return Diagonal(x);
    }
  }

  Value Permute(const Value& x) {
    std::vector<int> order(x.shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), rng_);
    Shape shape = x.shape;
    std::vector<Expr> at = AxesOf(shape);
    for (size_t i = 0; i < order.size(); ++i) {
      shape[i] = x.shape[order[i]];
      at[order[i]] = Expr::Axis(static_cast<int>(i));
    }
    return Map(x, std::move(shape), at, false);
  }

  Value Pad(const Value& x, size_t axis) {
    const int before = OneIn(2) ? 0 : Below(5);
    Shape shape = x.shape;
    shape[axis] = shape[axis] + before + Below(9);
    std::vector<Expr> at = AxesOf(shape);
    at[axis] = at[axis] - before;
    return Map(x, std::move(shape), at, true);
  }

  Value Slice(const Value& x, size_t axis) {
    const std::optional<int64_t> extent = x.shape[axis].constant();
    const int step = 1 + Below(3);
    const int start = extent && *extent > 0 ? Below(static_cast<int>(*extent)) : 0;
    Shape shape = x.shape;
    shape[axis] = CeilDiv(shape[axis] - start, step);
    std::vector<Expr> at = AxesOf(shape);
    at[axis] = step * at[axis] + start;
    return Map(x, std::move(shape), at, false);
  }

  // Splits an axis, after padding it to a multiple if needed.
  Value Split(const Value& x, size_t axis) {
    constexpr int kParts[] = {2, 3, 4, 5, 8, 16};
    const Expr inner = kParts[Below(std::size(kParts))];
    const Expr outer = CeilDiv(x.shape[axis], inner);
    Shape shape = x.shape;
    shape[axis] = outer;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, inner);
    std::vector<Expr> at;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      const int from = static_cast<int>(i);
      at.push_back(i < axis    ? Expr::Axis(from)
                   : i == axis ? inner * Expr::Axis(from) + Expr::Axis(from + 1)
                               : Expr::Axis(from + 1));
    }
    return Map(x, std::move(shape), at, !(outer * inner == x.shape[axis]));
  }

  Value Merge(const Value& x, size_t axis) {
    if (axis + 1 >= x.shape.size()) return Permute(x);
    const Expr inner = x.shape[axis + 1];
    Shape shape = x.shape;
    shape[axis] = shape[axis] * inner;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
    std::vector<Expr> at;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      const Expr merged = Expr::Axis(static_cast<int>(axis));
      at.push_back(i == axis       ? FloorDiv(merged, inner)
                   : i == axis + 1 ? Mod(merged, inner)
                                   : Expr::Axis(static_cast<int>(i < axis ? i : i - 1)));
    }
    return Map(x, std::move(shape), at, false);
  }

  Value Window(const Value& x, size_t axis) {
    if (x.shape.size() >= kMaxRank) return Merge(x, axis);
    const int size = 1 + Below(4), stride = 1 + Below(3), dilation = 1 + Below(2);
    Shape shape = x.shape;
    shape[axis] = CeilDiv(shape[axis], stride);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, size);
    std::vector<Expr> at;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      at.push_back(Expr::Axis(static_cast<int>(i <= axis ? i : i + 1)));
    }
    at[axis] = stride * at[axis] + dilation * Expr::Axis(static_cast<int>(axis) + 1) - Below(size);
    return Map(x, std::move(shape), at, true);
  }

  // Flips, rolls, repeats or tiles along an axis.
  Value Along(const Value& x, size_t axis) {
    const Expr extent = x.shape[axis];
    const int times = 2 + Below(2);
    Shape shape = x.shape;
    std::vector<Expr> at = AxesOf(shape);
    switch (Below(4)) {
      case 0:
        at[axis] = extent - 1 - at[axis];
        break;
      case 1:
        at[axis] = Mod(at[axis] + 1 + Below(3), extent);
        break;
      case 2:
        shape[axis] = extent * times;
        at[axis] = FloorDiv(at[axis], times);
        break;
      default:
        shape[axis] = extent * times;
        at[axis] = Mod(at[axis], extent);
    }
    return Map(x, std::move(shape), at, false);
  }

  Value Expand(const Value& x) {
    const size_t axis = Below(static_cast<int>(x.shape.size()) + 1);
    Shape shape = x.shape;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis),
                 OneIn(2) ? Expr(1) : RandomExtent());
    std::vector<Expr> at;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      at.push_back(Expr::Axis(static_cast<int>(i < axis ? i : i + 1)));
    }
    return Map(x, std::move(shape), at, false);
  }

  Value Drop(const Value& x, size_t axis) {
    const std::optional<int64_t> extent = x.shape[axis].constant();
    Shape shape = x.shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    std::vector<Expr> at;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      at.push_back(Expr::Axis(static_cast<int>(i < axis ? i : i - 1)));
    }
    at[axis] = extent && *extent > 0 ? Below(static_cast<int>(*extent)) : 0;
    return Map(x, std::move(shape), at, !extent || *extent == 0);
  }

  // Takes the diagonal of the first two axes of equal extent.
  Value Diagonal(const Value& x) {
    for (size_t j = 1; j < x.shape.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (!(x.shape[i] == x.shape[j])) continue;
        Shape shape = x.shape;
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(j));
        std::vector<Expr> at;
        for (size_t k = 0; k < x.shape.size(); ++k) {
          at.push_back(Expr::Axis(static_cast<int>(k == j ? i : k < j ? k : k - 1)));
        }
        return Map(x, std::move(shape), at, false);
      }
    }
    return Permute(x);
  }

  Value Reduce(const Value& x) {
    Shape kept;
    std::vector<int> axes;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      if (OneIn(2)) {
        axes.push_back(static_cast<int>(i));
      } else {
        kept.push_back(x.shape[i]);
      }
    }
    return Node(absl::StrCat(OneIn(2) ? "SumReduce" : "MaxReduce", "(%", x.id, ") {axes=[",
                             absl::StrJoin(axes, ", "), "]}"),
                std::move(kept));
  }

  // Adds another input, or a flipped copy of the value itself.
  Value Sum(const Value& x) {
    const Value other = OneIn(2) || x.shape.empty() ? Input(x.shape) : Along(x, 0);
    if (other.shape != x.shape) return other;
    return Node(absl::StrCat("Add(%", x.id, ", %", other.id, ")"), x.shape);
  }

  // Multiplies the last axis by a matrix.
  Value Product(const Value& x) {
    if (x.shape.empty()) return Expand(x);
    const Expr columns = 1 + Below(9);
    const Value w = Input({x.shape.back(), columns});
    std::string rows;
    for (size_t i = 0; i + 1 < x.shape.size(); ++i) rows += static_cast<char>('a' + i);
    Shape shape = x.shape;
    shape.back() = columns;
    return Node(
        absl::StrCat("Contract(%", x.id, ", %", w.id, ") {spec=\"", rows, "y,yz->", rows, "z\"}"),
        std::move(shape));
  }

  Value Softmax(const Value& x) {
    if (x.shape.empty()) return Expand(x);
    return Node(
        absl::StrCat("Softmax(%", x.id, ") {axis=", Below(static_cast<int>(x.shape.size())), "}"),
        x.shape);
  }

  std::mt19937_64 rng_;
  std::string text_;
  int next_ = 0;
  int maps_ = 0;
};

}  // namespace

MapCase RandomMaps(uint64_t seed) { return MapWriter(seed).Write(); }

}  // namespace athanor
