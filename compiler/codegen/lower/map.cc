// A map kernel: lanes run along the root's last axis, each with an element of its own. If
// neighbouring axes cannot merge, as under windows and padding, an item walks over several rows.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/lower/axes.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/repeats.h"

namespace athanor {
namespace {

using kir::Var;

// Range of an axis in which all conditions of filled maps hold that are linear in it. `tested`:
// there are such conditions.
struct Interior {
  Expr begin = 0, end;
  bool tested = false;
};

Interior InteriorOf(const Accesses& a, const std::string& symbol, const Expr& extent) {
  Interior interior{0, extent, false};
  for (const Condition& c : a.conditions) {
    const std::optional<Expr::Affine> affine = c.coordinate.AsAffine(symbol);
    if (!affine || !affine->stride.constant() || *affine->stride.constant() <= 0) continue;
    const std::optional<int64_t> least = a.bounds.Minimum(affine->base),
                                 most = a.bounds.Maximum(affine->base);
    if (!least || !most) continue;
    const Expr& stride = affine->stride;
    interior.begin = MaxOf(interior.begin, CeilDiv(-*least, stride));
    interior.end = MinOf(interior.end, FloorDiv(c.extent - 1 - *most, stride) + 1);
    interior.tested = true;
  }
  // The range is empty, as where more pieces are joined than have rows of their own.
  if (a.bounds.NonNegative(interior.begin - interior.end)) return {0, extent, false};
  return interior;
}

// Positions along an axis where Selects by position change: the first positions of all pieces but
// the first, in order, as far as that is proved.
using Cuts = std::vector<Expr>;

constexpr size_t kMostCuts = 7;

Cuts CutsOf(const Accesses& a, const Axes& axes, size_t axis) {
  Cuts cuts;
  for (const Condition& c : a.choices) {
    const std::optional<Expr::Affine> affine =
        (c.coordinate - c.extent).AsAffine(axes.symbols[axis]);
    if (!affine || !affine->stride.IsConstant(1)) continue;
    const Expr cut = a.bounds.Simplify(-1 * affine->base);
    std::set<std::string> symbols;
    cut.CollectSymbols(&symbols);
    const bool moves = std::any_of(symbols.begin(), symbols.end(), [&](const std::string& s) {
      return s[0] == '$' ||
             std::find(axes.symbols.begin(), axes.symbols.end(), s) != axes.symbols.end();
    });
    const auto at_most = [&](const Expr& x, const Expr& y) { return a.bounds.NonNegative(y - x); };
    if (moves || !at_most(0, cut) || !at_most(cut, axes.extents[axis])) continue;
    size_t place = 0;
    while (place < cuts.size() && at_most(cuts[place], cut)) ++place;
    if (place > 0 && cuts[place - 1] == cut) continue;
    if (place < cuts.size() && !at_most(cut, cuts[place])) continue;
    cuts.insert(cuts.begin() + static_cast<std::ptrdiff_t>(place), cut);
  }
  if (cuts.size() > kMostCuts) cuts.clear();
  return cuts;
}

// Input of a map kernel.
struct Map {
  KernelBuilder& b;
  const Axes& axes;
  Bounds bounds;  // of the axes' symbols
  Accesses accesses;
  int lanes;

  Accesses Collect(const Bounds& known) const {
    return CollectAccesses(b.input.graph, b.input.has_memory, b.choice.root, axes.root, known);
  }
};

// An item's position: coordinates of the outer axes, and its range along the next.
struct Item {
  Coordinates outer;
  Expr begin, end;
};

// Puts a position along an axis into a register.
Expr Limit(kir::Emitter& e, const Expr& value, const Expr& extent) {
  return e.Coordinate(e.Simplify(value), extent + 1);
}

// Makes items of all axes before `axis` and `step` elements of that one. The position is divided
// out of the item's number only once.
Item MakeItems(KernelBuilder& b, const Axes& axes, size_t axis, const Expr& step) {
  kir::Emitter& e = b.emitter;
  const Expr& extent = axes.extents[axis];
  std::vector<Expr> items(axes.extents.begin(),
                          axes.extents.begin() + static_cast<std::ptrdiff_t>(axis));
  items.push_back(CeilDiv(extent, step));
  b.SetGrid(Product(items));
  const Coordinates at = Delinearize(b.Item(), items);
  Item item;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    item.outer.push_back(e.Coordinate(e.Simplify(at[i]), items[i]));
  }
  item.begin = e.Coordinate(e.Simplify(at.back() * step), extent);
  item.end = Limit(e, MinOf(item.begin + step, extent), extent);
  return item;
}

// Runs `body` for each piece of the outer axes that the item lies in, with bounds that say so.
void ForEachPiece(const Map& map, const Coordinates& outer, Bounds bounds,
                  absl::FunctionRef<void(const Bounds& bounds)> body, size_t axis = 0,
                  size_t known = 0) {
  if (axis == outer.size()) return body(bounds);
  const Cuts cuts = CutsOf(map.accesses, map.axes, axis);
  const std::optional<std::string> place = outer[axis].symbol();
  if (cuts.empty() || !place || known + cuts.size() > kMostCuts) {
    return ForEachPiece(map, outer, std::move(bounds), body, axis + 1, known);
  }
  kir::Emitter& e = map.b.emitter;
  const auto below = [&](const Expr& x, const Expr& y) {
    return e.Compute(Op::kLessThan, DType::kBool, {e.Index(x, 1), e.Index(y, 1)});
  };
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const Expr first = i == 0 ? Expr(0) : cuts[i - 1];
    const Expr end = i == cuts.size() ? map.axes.extents[axis] : cuts[i];
    Var inside = i == 0 ? kir::kNoVar : below(first - 1, outer[axis]);
    if (i < cuts.size()) inside = e.And(inside, below(outer[axis], end));
    e.If(inside, [&] {
      e.Narrow(*place, first, end - 1, [&] {
        bounds.Set(map.axes.symbols[axis], first, end - 1);
        ForEachPiece(map, outer, bounds, body, axis + 1, known + cuts.size());
      });
    });
  }
}

class RowsMap {
 public:
  explicit RowsMap(const Map& map)
      : map_(map),
        b_(map.b),
        e_(map.b.emitter),
        axes_(map.axes),
        lanes_(map.lanes),
        height_(axes_.extents[axes_.extents.size() - 2]),
        width_(axes_.extents.back()) {}

  void Lower() {
    const WalkSchedule& walk = b_.choice.walk;
    // Rows per item: as many as have walk.elements, in whole blocks.
    const Expr width = e_.Simplify(MaxOf(width_, 1));  // empty rows are rows too
    const Expr rows = MaxOf(FloorDiv(walk.elements, width * walk.rows), 1) * walk.rows;
    const size_t axis = axes_.extents.size() - 2;
    const Item item = MakeItems(b_, axes_, axis, rows);
    outer_ = item.outer;
    b_.at.SetHoists();
    const Cuts cuts = CutsOf(map_.accesses, axes_, axis);
    ForEachPiece(map_, outer_, map_.bounds, [&](const Bounds& bounds) {
      if (cuts.empty()) {
        Find(bounds);
        return Blocks(item.begin, item.end, 0, height_);
      }
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const Expr first = i == 0 ? Expr(0) : cuts[i - 1];
        const Expr last = i == cuts.size() ? height_ : cuts[i];
        Bounds piece = bounds;
        piece.Set(axes_.symbols[axis], first, last - 1);
        Find(piece);
        const Expr begin = Limit(e_, MaxOf(item.begin, first), height_);
        const Expr end = Limit(e_, MaxOf(MinOf(item.end, last), begin), height_);
        Blocks(begin, end, first, last);
      }
    });
  }

 private:
  // Finds the interiors for these bounds of the axes.
  void Find(const Bounds& bounds) {
    const Accesses a = map_.accesses.choices.empty() ? map_.accesses : map_.Collect(bounds);
    down_ = InteriorOf(a, axes_.symbols[axes_.symbols.size() - 2], height_);
    along_ = InteriorOf(a, axes_.symbols.back(), width_);
  }

  // Computes the rows [begin, end), which lie in the piece [first, last).
  void Blocks(const Expr& begin, const Expr& end, const Expr& first, const Expr& last) {
    const int64_t block = b_.choice.walk.rows;
    const Expr whole =
        block == 1 ? end : Limit(e_, begin + FloorDiv(end - begin, block) * block, height_);
    e_.For(begin, whole, block, [&](const Expr& y) {
      e_.bounds().Set(*y.symbol(), first, last - block);
      Rows(y, block);
    });
    if (block == 1) return;
    e_.For(whole, end, 1, [&](const Expr& y) {
      e_.bounds().Set(*y.symbol(), first, last - 1);
      Rows(y, 1);
    });
  }

  // Returns a bool that is true if [i, i + count) is inside.
  Var IsInside(const Interior& interior, const Expr& i, int64_t count) {
    const auto less = [&](const Expr& x, const Expr& y) {
      return e_.Compute(Op::kLessThan, DType::kBool, {e_.Index(x, 1), e_.Index(y, 1)});
    };
    const Var below = less(i + (count - 1), interior.end);
    return interior.begin.IsConstant(0) ? below : e_.And(less(interior.begin - 1, i), below);
  }

  // Emits `body` twice: for steps that are inside, with bounds that say so, and for all others.
  void Split(const Interior& interior, const Expr& i, int64_t count,
             absl::FunctionRef<void(bool inside)> body) {
    const Var inside = IsInside(interior, i, count);
    e_.If(inside, [&] {
      e_.Narrow(*i.symbol(), interior.begin, interior.end - count, [&] { body(true); });
    });
    e_.If(e_.Compute(Op::kNot, DType::kBool, {inside}), [&] { body(false); });
  }

  void Rows(const Expr& y, int64_t rows) {
    if (!down_.tested) return Columns(y, rows, true);
    Split(down_, y, rows, [&](bool inside) { Columns(y, rows, inside); });
  }

  // `split`: gives the columns' interior code of its own.
  void Columns(const Expr& y, int64_t rows, bool split) {
    const int unroll = b_.choice.walk.unroll;
    if (!along_.tested) {
      e_.VectorFor(0, width_, lanes_, unroll,
                   [&](const Expr& x, const std::optional<Expr>& count, int) {
                     Vectors(y, rows, x, count);
                   });
      return;
    }
    const int64_t step = int64_t{lanes_} * unroll;
    const std::optional<int64_t> widest = e_.bounds().Maximum(width_);
    if (!split || (widest && *widest <= step)) return Partial(y, rows, 0, width_);
    e_.For(0, width_, step, [&](const Expr& x) {
      e_.bounds().Set(*x.symbol(), 0, width_ - 1);
      Split(along_, x, step, [&](bool inside) {
        if (!inside && unroll == 1) return Edge(y, rows, x);
        if (!inside) return Partial(y, rows, x, MinOf(x + step, width_));
        e_.bounds().Set(kir::kLane, 0, lanes_ - 1);
        for (int part = 0; part < unroll; ++part) {
          Vectors(y, rows, x + part * lanes_, std::nullopt);
        }
      });
    });
  }

  // Computes columns that may lie outside of what is read.
  void Partial(const Expr& y, int64_t rows, const Expr& begin, const Expr& end) {
    e_.For(begin, end, lanes_, [&](const Expr& x) {
      e_.bounds().Set(*x.symbol(), 0, width_ - 1);
      Edge(y, rows, x);
    });
  }
  void Edge(const Expr& y, int64_t rows, const Expr& x) {
    e_.bounds().Set(kir::kLane, 0, width_ - 1 - x);
    Vectors(y, rows, x, width_ - x);
    e_.bounds().Set(kir::kLane, 0, lanes_ - 1);
  }

  void Vectors(const Expr& y, int64_t rows, const Expr& x, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    for (int64_t row = 0; row < rows; ++row) {
      Coordinates element = outer_;
      element.push_back(y + row);
      element.push_back(x + e_.Lane(lanes_));
      b_.StoreRoot(Place(axes_, element));
    }
  }

  const Map& map_;
  KernelBuilder& b_;
  kir::Emitter& e_;
  const Axes& axes_;
  const int lanes_;
  const Expr height_, width_;
  Interior down_, along_;
  Coordinates outer_;
};

// Reports whether rows are so cheap that an item has several: no reduction of more than a few
// elements.
bool IsLight(const LowerInput& in, const Accesses& accesses) {
  return std::all_of(accesses.reductions.begin(), accesses.reductions.end(), [&](const Access& r) {
    const Node& node = in.graph.node(r.node);
    return OpInfo(node.op).op_class == OpClass::kReduction && IsShortReduction(in.graph, node);
  });
}

// Walks over the only axis, or over rows that take long.
void LowerLine(KernelBuilder& b, const Axes& axes, int lanes, bool chunked) {
  const Expr length = axes.extents.back();
  std::vector<Expr> outer(axes.extents.begin(), axes.extents.end() - 1);
  const int64_t chunk = b.choice.walk.elements;
  if (chunked) outer.push_back(CeilDiv(length, chunk));
  Coordinates at = b.SplitItem(outer);
  Expr begin = 0, end = length;
  if (chunked) {
    begin = at.back() * chunk;
    end = MinOf(length, begin + chunk);
    at.pop_back();
  }
  b.emitter.VectorFor(begin, end, lanes, b.choice.walk.unroll,
                      [&](const Expr& i, const std::optional<Expr>& count, int) {
                        PointLowering::Context context(&b.at, lanes, count);
                        Coordinates element = at;
                        element.push_back(i + b.emitter.Lane(lanes));
                        b.StoreRoot(Place(axes, element));
                      });
}

// Walks over pieces of long rows.
void LowerPieces(const Map& map) {
  KernelBuilder& b = map.b;
  kir::Emitter& e = b.emitter;
  const Axes& axes = map.axes;
  const int lanes = map.lanes;
  const Expr length = axes.extents.back();
  const int64_t step = int64_t{lanes} * b.choice.walk.unroll;
  const Item item = MakeItems(b, axes, axes.extents.size() - 1, b.choice.walk.elements);
  const Expr whole =
      step == 1 ? item.end
                : Limit(e, item.begin + FloorDiv(item.end - item.begin, step) * step, length);
  b.at.SetHoists();
  const auto store = [&](const Expr& x, const std::optional<Expr>& count) {
    PointLowering::Context context(&b.at, lanes, count);
    Coordinates element = item.outer;
    element.push_back(x + e.Lane(lanes));
    b.StoreRoot(Place(axes, element));
  };
  ForEachPiece(map, item.outer, map.bounds, [&](const Bounds&) {
    e.For(item.begin, whole, step, [&](const Expr& x) {
      e.bounds().Set(*x.symbol(), 0, length - step);
      e.bounds().Set(kir::kLane, 0, lanes - 1);
      for (int64_t part = 0; part < step; part += lanes) store(x + part, std::nullopt);
    });
    if (step == 1) return;
    e.For(whole, item.end, lanes, [&](const Expr& x) {
      e.bounds().Set(*x.symbol(), 0, length - 1);
      e.bounds().Set(kir::kLane, 0, length - 1 - x);
      store(x, item.end - x);
    });
    e.bounds().Set(kir::kLane, 0, lanes - 1);
  });
}

}  // namespace

absl::Status LowerMap(KernelBuilder& b) {
  Axes axes = RootAxes(b.root);
  MergeAxes(b.input, b.choice.root, axes, b.emitter.bounds());
  Map map{b, axes, b.emitter.bounds(), {}, 1};
  for (size_t i = 0; i < axes.symbols.size(); ++i) {
    map.bounds.SetExtent(axes.symbols[i], axes.extents[i]);
  }
  map.accesses = map.Collect(map.bounds);
  map.lanes = b.LanesFor(map.accesses.widest_bytes);
  const std::optional<int64_t> longest = map.bounds.Maximum(axes.extents.back());
  // Lets several items share one long axis.
  const bool chunked = !longest || *longest > 2 * b.choice.walk.elements;
  if (axes.extents.size() > 1 && chunked) {
    LowerPieces(map);
  } else if (axes.extents.size() > 1 && IsLight(b.input, map.accesses)) {
    RowsMap(map).Lower();
  } else {
    LowerLine(b, axes, map.lanes, chunked);
  }
  return absl::OkStatus();
}

}  // namespace athanor
