// A map kernel: lanes along the root's last axis, every value of its own. Where neighbouring axes
// do not merge, as under windows and padding, an item walks over several rows.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/axes.h"
#include "compiler/search/access.h"
#include "compiler/search/extents.h"
#include "compiler/search/repeats.h"

namespace athanor {
namespace {

using kir::Var;

// Where along an axis all conditions of filled maps that move with it hold, as far as they are
// linear in it; `tested`: there are such conditions.
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
  return interior;
}

class RowsMap {
 public:
  RowsMap(KernelBuilder* b, const Axes& axes, const Accesses& accesses)
      : b_(*b),
        e_(b->emitter),
        axes_(axes),
        lanes_(b->LanesFor(accesses.widest_bytes)),
        height_(axes.extents[axes.extents.size() - 2]),
        width_(axes.extents.back()),
        down_(InteriorOf(accesses, axes.symbols[axes.symbols.size() - 2], height_)),
        along_(InteriorOf(accesses, axes.symbols.back(), width_)) {}

  void Lower() {
    const WalkSchedule& walk = b_.choice.walk;
    const int64_t block = walk.rows;
    std::vector<Expr> items(axes_.extents.begin(), axes_.extents.end() - 2);
    // Rows of an item: as many as have its elements, in whole blocks.
    const Expr width = e_.Simplify(MaxOf(width_, 1));  // rows of nothing are rows
    const Expr rows = MaxOf(FloorDiv(walk.elements, width * block), 1) * block;
    items.push_back(CeilDiv(height_, rows));
    b_.SetGrid(Product(items));
    const Coordinates at = Delinearize(b_.Item(), items);
    for (size_t i = 0; i + 1 < at.size(); ++i) outer_.push_back(Coordinate(at[i], items[i]));
    const Expr begin = Coordinate(at.back() * rows, height_);
    const Expr end = Limit(MinOf(begin + rows, height_));
    const Expr whole = block == 1 ? end : Limit(begin + FloorDiv(end - begin, block) * block);
    b_.at.SetHoists();
    e_.For(begin, whole, block, [&](const Expr& y) {
      e_.bounds().Set(*y.symbol(), 0, height_ - block);
      Rows(y, block);
    });
    if (block == 1) return;
    e_.For(whole, end, 1, [&](const Expr& y) {
      e_.bounds().Set(*y.symbol(), 0, height_ - 1);
      Rows(y, 1);
    });
  }

 private:
  Expr Coordinate(const Expr& value, const Expr& extent) {
    return e_.Coordinate(e_.Simplify(value), extent);
  }
  Expr Limit(const Expr& value) { return e_.Coordinate(e_.Simplify(value), height_ + 1); }

  // True where [i, i + count) is inside.
  Var IsInside(const Interior& interior, const Expr& i, int64_t count) {
    const auto less = [&](const Expr& x, const Expr& y) {
      return e_.Compute(Op::kLessThan, DType::kBool, {e_.Index(x, 1), e_.Index(y, 1)});
    };
    const Var below = less(i + (count - 1), interior.end);
    return interior.begin.IsConstant(0) ? below : e_.And(less(interior.begin - 1, i), below);
  }

  // `body` twice: for a step that is inside, of which the tests then know it, and for any other.
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

  // `split`: the columns' interior is worth code of its own.
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

  // Columns of which any may be outside of what is read.
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
      element.push_back(lanes_ == 1 ? x : x + Expr::Symbol(kir::kLane));
      b_.StoreRoot(Place(axes_, element));
    }
  }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Axes& axes_;
  const int lanes_;
  const Expr height_, width_;
  const Interior down_, along_;
  Coordinates outer_;
};

// Whether rows take so little that an item has several: no reduction of more than a few elements.
bool IsLight(const LowerInput& in, const Accesses& accesses) {
  return std::all_of(accesses.reductions.begin(), accesses.reductions.end(), [&](const Access& r) {
    const Node& node = in.graph.node(r.node);
    return OpInfo(node.op).op_class == OpClass::kReduction && IsShortReduction(in.graph, node);
  });
}

// The whole of the only axis, or rows that take long.
void LowerLine(KernelBuilder& b, const Axes& axes, int lanes, bool chunked) {
  const Expr length = axes.extents.back();
  std::vector<Expr> outer(axes.extents.begin(), axes.extents.end() - 1);
  const int64_t chunk = b.choice.walk.elements;
  if (chunked) outer.push_back(CeilDiv(length, chunk));
  b.SetGrid(Product(outer));
  Coordinates at = Delinearize(b.Item(), outer);
  for (Expr& c : at) c = b.emitter.Simplify(c);
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
                        element.push_back(i + Expr::Symbol(kir::kLane));
                        b.StoreRoot(Place(axes, element));
                      });
}

// Pieces of long rows.
void LowerPieces(KernelBuilder& b, const Axes& axes, int lanes) {
  kir::Emitter& e = b.emitter;
  const Expr length = axes.extents.back();
  const int64_t piece = b.choice.walk.elements, step = int64_t{lanes} * b.choice.walk.unroll;
  std::vector<Expr> items(axes.extents.begin(), axes.extents.end() - 1);
  items.push_back(CeilDiv(length, piece));
  b.SetGrid(Product(items));
  const Coordinates at = Delinearize(b.Item(), items);
  Coordinates outer;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    outer.push_back(e.Coordinate(e.Simplify(at[i]), items[i]));
  }
  const Expr begin = e.Coordinate(e.Simplify(at.back() * piece), length);
  const auto limit = [&](const Expr& to) { return e.Coordinate(e.Simplify(to), length + 1); };
  const Expr end = limit(MinOf(begin + piece, length));
  const Expr whole = limit(begin + FloorDiv(end - begin, step) * step);
  b.at.SetHoists();
  const auto store = [&](const Expr& x, const std::optional<Expr>& count) {
    PointLowering::Context context(&b.at, lanes, count);
    Coordinates element = outer;
    element.push_back(x + Expr::Symbol(kir::kLane));
    b.StoreRoot(Place(axes, element));
  };
  e.For(begin, whole, step, [&](const Expr& x) {
    e.bounds().Set(*x.symbol(), 0, length - step);
    e.bounds().Set(kir::kLane, 0, lanes - 1);
    for (int64_t part = 0; part < step; part += lanes) store(x + part, std::nullopt);
  });
  e.For(whole, end, lanes, [&](const Expr& x) {
    e.bounds().Set(*x.symbol(), 0, length - 1);
    e.bounds().Set(kir::kLane, 0, length - 1 - x);
    store(x, end - x);
  });
  e.bounds().Set(kir::kLane, 0, lanes - 1);
}

}  // namespace

absl::Status LowerMap(KernelBuilder& b) {
  Axes axes = RootAxes(b.root);
  MergeAxes(b.input, b.choice.root, axes, b.emitter.bounds());
  Bounds bounds = b.emitter.bounds();
  for (size_t i = 0; i < axes.symbols.size(); ++i) {
    bounds.SetExtent(axes.symbols[i], axes.extents[i]);
  }
  const Accesses accesses =
      CollectAccesses(b.input.graph, b.input.has_memory, b.choice.root, axes.root, bounds);
  const std::optional<int64_t> longest = bounds.Maximum(axes.extents.back());
  // So that one long axis can be shared out.
  const bool chunked = !longest || *longest > 2 * b.choice.walk.elements;
  const int lanes = b.LanesFor(accesses.widest_bytes);
  if (axes.extents.size() > 1 && chunked) {
    LowerPieces(b, axes, lanes);
  } else if (axes.extents.size() > 1 && IsLight(b.input, accesses)) {
    RowsMap(&b, axes, accesses).Lower();
  } else {
    LowerLine(b, axes, lanes, chunked);
  }
  return absl::OkStatus();
}

}  // namespace athanor
