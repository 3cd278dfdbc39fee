// Attention without the whole score matrix: the online softmax of Milakov and Gimelshein (2018)
// over blocks of keys, as in FlashAttention (Dao et al., 2022), with everything transposed: lanes
// run along queries, so that maxima and sums over keys are vector operations and both products are
// register tiles of broadcast key or value scalars against query vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/tile.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/extents.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

class AttentionLowering {
 public:
  explicit AttentionLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(b.choice.attention),
        accumulator_(AccumulatorOf(node_.type.dtype)),
        lanes_(b.LanesFor(DTypeBytes(accumulator_))),
        width_(lanes_ * s_.nv) {
    const Shape& q = Type(0).shape;
    const Shape& v = Type(2).shape;
    rank_ = q.size();
    queries_ = q[rank_ - 2];
    depth_ = q[rank_ - 1];
    keys_ = v[rank_ - 2];
    value_depth_ = v[rank_ - 1];
  }

  absl::Status Lower();

 private:
  const TensorType& Type(int input) const { return b_.input.graph.node(node_.inputs[input]).type; }
  Coordinates Place(const Expr& row, const Expr& column) const {
    Coordinates c = batch_;
    c.insert(c.end(), {row, column});
    return c;
  }
  Expr Query(int vector) const { return q0_ + vector * lanes_ + e_.Lane(lanes_); }
  std::optional<Expr> QueryCount(int vector) const {
    return LanesBelow(e_, q0_ + vector * lanes_, queries_, lanes_);
  }
  // Returns the index of element (row, vector) in a scratch matrix whose rows are `width_` queries.
  Expr Cell(const Expr& row, int vector) const {
    return row * width_ + vector * lanes_ + e_.Lane(lanes_);
  }
  Var Read(int buffer, const Expr& row, int vector) {
    return e_.Load(buffer, Cell(row, vector), lanes_, {});
  }
  void Write(int buffer, const Expr& row, int vector, Var v) {
    e_.Store(buffer, Cell(row, vector), e_.Broadcast(v, lanes_), {});
  }
  Var Fill(double value) { return e_.Broadcast(e_.Float(accumulator_, value), lanes_); }
  Var Op2(Op op, Var a, Var b) { return e_.Compute(op, accumulator_, {a, b}); }

  double Lowest() const {  // only -inf is smaller
    return accumulator_ == DType::kF64 ? std::numeric_limits<double>::lowest()
                                       : std::numeric_limits<float>::lowest();
  }

  void PackQueries();
  void KeyBlock(const Expr& k0);
  void Scores(const Expr& k0, const Expr& keys);
  Var Masked(Var score, const Expr& key, int vector);
  void Softmax(const Expr& k0, const Expr& keys);
  void Values(const Expr& k0, const Expr& keys);
  void Finish();

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const AttentionSchedule& s_;
  DType accumulator_;
  int lanes_, width_;
  size_t rank_ = 0;
  Expr queries_, depth_, keys_, value_depth_;
  Coordinates batch_;
  Expr q0_;
  bool causal_ = false;
  int query_ = -1, score_ = -1, sum_ = -1, peak_ = -1, total_ = -1;  // scratch matrices
  absl::Status status_;
};

absl::Status AttentionLowering::Lower() {
  RETURN_IF_ERROR(b_.CheckEpilogue());
  std::optional<int64_t> depth = depth_.constant(), value_depth = value_depth_.constant();
  if (!depth || !value_depth) return absl::InternalError("attention needs constant head sizes");
  causal_ = GetAttrOr<bool>(node_.attrs, "causal", false);
  query_ = e_.Scratch(accumulator_, *depth * width_);
  score_ = e_.Scratch(accumulator_, s_.key_block * width_);
  sum_ = e_.Scratch(accumulator_, *value_depth * width_);
  peak_ = e_.Scratch(accumulator_, width_);
  total_ = e_.Scratch(accumulator_, width_);
  e_.bounds().Set(kir::kLane, 0, lanes_ - 1);
  std::vector<Expr> grid(Type(0).shape.begin(), Type(0).shape.end() - 2);
  grid.push_back(CeilDiv(queries_, width_));
  for (Expr& e : grid) e = e_.Simplify(e);
  batch_ = b_.SplitItem(grid);
  q0_ = batch_.back() * width_;
  batch_.pop_back();
  PackQueries();
  Expr keys = keys_;
  // Later keys are hidden from all queries of the item.
  if (causal_) keys = MaxOf(0, MinOf(keys_, q0_ + width_ + keys_ - queries_));
  e_.For(0, keys, s_.key_block, [&](const Expr& k0) { KeyBlock(k0); });
  Finish();
  return status_;
}

// Copies queries to scratch, transposed and scaled. The running maximum, sum and values start
// empty.
void AttentionLowering::PackQueries() {
  double scale = GetAttrOr<double>(node_.attrs, "scale",
                                   1.0 / std::sqrt(static_cast<double>(*depth_.constant())));
  Var factor = e_.Float(accumulator_, scale);
  e_.For(0, depth_, 1, [&](const Expr& d) {
    for (int v = 0; v < s_.nv; ++v) {
      PointLowering::Context context(&b_.at, lanes_, QueryCount(v), v > 0);
      Var q = e_.Cast(b_.at.At(node_.inputs[0], Place(Query(v), d)), accumulator_);
      Write(query_, d, v, Op2(Op::kMul, q, factor));
    }
  });
  e_.For(0, value_depth_, 1, [&](const Expr& d) {
    for (int v = 0; v < s_.nv; ++v) Write(sum_, d, v, Fill(0));
  });
  for (int v = 0; v < s_.nv; ++v) {
    Write(peak_, 0, v, Fill(-std::numeric_limits<double>::infinity()));
    Write(total_, 0, v, Fill(0));
  }
}

void AttentionLowering::KeyBlock(const Expr& k0) {
  Expr keys = MinOf(keys_ - k0, s_.key_block);
  Scores(k0, keys);
  Softmax(k0, keys);
  Values(k0, keys);
}

void AttentionLowering::Scores(const Expr& k0, const Expr& keys) {
  ForRowTiles(e_, 0, keys, s_.mr, std::nullopt, [&](const Expr& first, int rows) {
    PointLowering::Context context(&b_.at, 1, std::nullopt);
    RegisterTile tile{.rows = rows, .vectors = s_.nv, .k_begin = 0, .k_end = depth_};
    tile.row_value = [&](int r, const Expr& d) {
      return e_.Cast(b_.at.At(node_.inputs[1], Place(k0 + first + r, d)), accumulator_);
    };
    tile.column_value = [&](int v, const Expr& d) { return Read(query_, d, v); };
    tile.initial = [&](int, int) { return Fill(0); };
    tile.store = [&](int r, int v, Var score) { Write(score_, first + r, v, score); };
    EmitRegisterTile(e_, tile);
  });
}

Var AttentionLowering::Masked(Var score, const Expr& key, int vector) {
  Var hidden = Fill(-std::numeric_limits<double>::infinity());
  if (node_.inputs.size() > 3) {
    const TensorType& type = Type(3);
    Coordinates at = Place(Query(vector), key);
    at.erase(at.begin(), at.end() - static_cast<std::ptrdiff_t>(type.shape.size()));
    for (size_t i = 0; i < at.size(); ++i) {
      if (type.shape[i].IsConstant(1)) at[i] = 0;
    }
    Var mask = b_.at.At(node_.inputs[3], at);
    if (type.dtype == DType::kBool) {
      score = e_.Compute(Op::kSelect, accumulator_, {mask, score, hidden});
    } else {
      // -inf hides even a NaN score.
      mask = e_.Cast(mask, accumulator_);
      Var hides = e_.Compute(Op::kLessThan, DType::kBool, {mask, Fill(Lowest())});
      score = e_.Compute(Op::kSelect, accumulator_, {hides, hidden, Op2(Op::kAdd, score, mask)});
    }
  }
  if (causal_) {
    // The last query sees the last key.
    Var last = e_.Index(Query(vector) + keys_ - queries_, lanes_);
    Var beyond = e_.Compute(Op::kLessThan, DType::kBool, {last, e_.Index(key, 1)});
    score = e_.Compute(Op::kSelect, accumulator_, {beyond, hidden, score});
  }
  return score;
}

void AttentionLowering::Softmax(const Expr& k0, const Expr& keys) {
  const bool masked = causal_ || node_.inputs.size() > 3;
  for (int v = 0; v < s_.nv; ++v) {
    PointLowering::Context context(&b_.at, lanes_, QueryCount(v), v > 0);
    Var before = Read(peak_, 0, v);
    Var peak = e_.Mutable(before);
    e_.For(0, keys, 1, [&](const Expr& k) {
      Var score = Read(score_, k, v);
      if (masked) {
        score = Masked(score, k0 + k, v);
        Write(score_, k, v, score);
      }
      e_.Assign(peak, Op2(Op::kMax, peak, score));
    });
    Write(peak_, 0, v, peak);
    // If every key so far is hidden the maximum is -inf; subtracting zero instead keeps exp(-inf) =
    // 0.
    Var none = e_.Compute(Op::kLessThan, DType::kBool, {peak, Fill(Lowest())});
    Var base = e_.Compute(Op::kSelect, accumulator_, {none, Fill(0), peak});
    Var minus = Op2(Op::kMul, base, Fill(-1));
    auto exp_from_base = [&](Var x) {
      return e_.Compute(Op::kExp, accumulator_, {Op2(Op::kAdd, x, minus)});
    };
    // Rescales what was summed under the former maximum to the new one.
    Var shrink = exp_from_base(before);
    Var total = e_.Mutable(Op2(Op::kMul, Read(total_, 0, v), shrink));
    e_.For(0, keys, 1, [&](const Expr& k) {
      Var weight = exp_from_base(Read(score_, k, v));
      Write(score_, k, v, weight);
      e_.Assign(total, Op2(Op::kAdd, total, weight));
    });
    Write(total_, 0, v, total);
    e_.For(0, value_depth_, 1,
           [&](const Expr& d) { Write(sum_, d, v, Op2(Op::kMul, Read(sum_, d, v), shrink)); });
  }
}

void AttentionLowering::Values(const Expr& k0, const Expr& keys) {
  ForRowTiles(e_, 0, value_depth_, s_.mr, std::nullopt, [&](const Expr& first, int rows) {
    PointLowering::Context context(&b_.at, 1, std::nullopt);
    RegisterTile tile{.rows = rows, .vectors = s_.nv, .k_begin = 0, .k_end = keys};
    tile.row_value = [&](int r, const Expr& k) {
      return e_.Cast(b_.at.At(node_.inputs[2], Place(k0 + k, first + r)), accumulator_);
    };
    tile.column_value = [&](int v, const Expr& k) { return Read(score_, k, v); };
    tile.initial = [&](int r, int v) { return Read(sum_, first + r, v); };
    tile.store = [&](int r, int v, Var sum) { Write(sum_, first + r, v, sum); };
    EmitRegisterTile(e_, tile);
  });
}

void AttentionLowering::Finish() {
  for (int v = 0; v < s_.nv; ++v) {
    const std::optional<Expr> below = QueryCount(v);
    if (below && below->constant().value_or(1) <= 0) continue;  // no queries at any size
    BoundLanes(e_, below, lanes_);
    PointLowering::Context context(&b_.at, lanes_, below, v > 0);
    Var total = Read(total_, 0, v);
    // A row with every key hidden is zero by definition (op table).
    Var none =
        e_.Compute(Op::kNot, DType::kBool,
                   {e_.Compute(Op::kOr, DType::kBool,
                               {e_.Compute(Op::kLessThan, DType::kBool, {Fill(0), total}),
                                e_.Compute(Op::kLessThan, DType::kBool, {total, Fill(0)})})});
    Var is_nan = e_.Compute(
        Op::kNot, DType::kBool,
        {e_.Compute(Op::kLessThan, DType::kBool, {Op2(Op::kMul, total, Fill(0)), Fill(1)})});
    Var empty = e_.And(none, e_.Compute(Op::kNot, DType::kBool, {is_nan}));
    e_.For(0, value_depth_, 1, [&](const Expr& d) {
      Coordinates anchor = Place(Query(v), d);
      for (Expr& c : anchor) c = e_.Simplify(c);
      status_.Update(b_.StoreEpilogue(anchor, [=, this] {
        Var value = Op2(Op::kDiv, Read(sum_, d, v), total);
        value = e_.Compute(Op::kSelect, accumulator_, {empty, Fill(0), value});
        return e_.Cast(value, node_.type.dtype);
      }));
    });
    BoundLanes(e_, std::nullopt, lanes_);
  }
}

}  // namespace

absl::Status LowerAttention(KernelBuilder& b) { return AttentionLowering(b).Lower(); }

}  // namespace athanor
