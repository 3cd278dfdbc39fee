// Attention over keys and values that lie in blocks of a pool (PagedAttention). A work item has the
// rows of a tile, the heads that share one head of keys, and all keys that these rows see.
//
// Bits of a row follow from its own sequence alone: not from the item's other rows, from how many
// there are, nor from the sizes of table and pool. For each element of the result:
//
//   split    the 256 keys from an absolute position that is a multiple of 256 on
//   score    one chain of multiply-adds over the depth, ascending; then scale, softcap
//   maximum  of the split's scores that the row sees
//   weight   exp(score - maximum), always by vectors of 16 lanes
//   sum      of weights: by lane over the split's groups of 16 keys, ascending, then of the lanes
//   value    one chain of weight * value over the split's keys, ascending
//   merge    (maximum, sum, value) of the splits, ascending, by the online softmax
//
// Lanes of a vector are 16 keys whose slots lie together, then columns of values. Rows times heads
// are a register tile's scalars, so each key is read once an item. Rows of one sequence that are
// neighbours are computed jointly, a run. Scores of a key that only some rows see are computed for
// all; a row selects its own ahead of its maximum. Values are multiplied jointly where all rows of
// the run see their keys, and else row by row up to the row's own end: a slot that a row does not
// see may hold NaN.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/tile.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "compiler/search/kernels/state_layout.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

enum Operand { kQ, kK, kV, kTable, kSequence, kPosition, kSink };

class PagedLowering {
 public:
  explicit PagedLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(b.choice.attention),
        real_(node_.type.dtype),
        rows_(ShapeOf(kQ)[0]),
        slots_(ShapeOf(kK)[0]),
        heads_(*ShapeOf(kK)[1].constant()),
        group_(*ShapeOf(kQ)[1].constant() / heads_),
        groups_of_block_(GetAttr<int64_t>(node_.attrs, "block") / kLanes) {}

  absl::Status Lower();

 private:
  static constexpr int kLanes = kPagedLanes;
  static constexpr int64_t kSplit = kPagedSplit;
  static constexpr int64_t kGroups = kSplit / kLanes;  // of keys, in a split

  // Rows of the tile at neighbouring positions of one sequence.
  struct Run {
    Expr first, rows;  // of the tile
    Expr sequence;
    Expr position;  // of the first row
  };

  const Shape& ShapeOf(int operand) const {
    return b_.input.graph.node(node_.inputs[operand]).type.shape;
  }
  static Expr Lane() { return Expr::Symbol(kir::kLane); }
  bool windowed() const { return node_.attrs.contains("window"); }
  // Rows of the item, at most.
  int64_t tile() const { return s_.row_tile; }
  static int64_t VectorsOf(int64_t elements) { return (elements + kLanes - 1) / kLanes; }
  int64_t value_vectors() const { return VectorsOf(width_); }
  std::optional<Expr> ColumnsBelow(int64_t vector) const {
    return LanesBelow(e_, vector * kLanes, width_, kLanes);
  }
  Expr SumAt(const Expr& scalar, int64_t vector) const {
    return (scalar * value_vectors() + vector) * kLanes + Lane();
  }
  // The keys that row `r` of the run sees are [BeginOf, EndOf).
  Expr BeginOf(const Run& run, const Expr& r) const {
    if (!windowed()) return 0;
    return MaxOf(run.position + r + 1 - GetAttr<int64_t>(node_.attrs, "window"), 0);
  }
  static Expr EndOf(const Run& run, const Expr& r) { return run.position + r + 1; }
  // The number of keys that there are places for.
  Expr Places() const { return ShapeOf(kTable)[1] * (groups_of_block_ * kLanes); }
  // Numbers the run's rows by head: row `r`, head `h` of the group.
  Expr Scalar(const Expr& r, const Expr& h) const { return r * group_ + h; }
  Expr Scalars(const Run& run) const { return run.rows * group_; }

  // Keeps a value in a register whose bounds are known.
  Expr Register(const Expr& value, const Expr& lower, const Expr& upper);
  Expr Bounded(Var v, const Expr& lower, const Expr& upper);
  Var Int(const Expr& value) { return e_.Index(value, 1); }
  Var True() { return e_.Const(Scalar::Unsigned(DType::kBool, 1)); }
  Var Less(Var a, Var b) { return e_.Compute(Op::kLessThan, DType::kBool, {a, b}); }
  Var Less(const Expr& a, const Expr& b) {
    return e_.Compute(Op::kLessThan, DType::kBool, {Int(a), Int(b)});
  }
  Var Op2(Op op, DType dtype, Var a, Var b) { return e_.Compute(op, dtype, {a, b}); }
  Var Real2(Op op, Var a, Var b) { return Op2(op, real_, a, b); }
  Var Fill(double value) { return e_.Broadcast(e_.Float(real_, value), kLanes); }
  Var Read(int buffer, const Expr& index) { return e_.Load(buffer, index, kLanes, {}); }
  void Write(int buffer, const Expr& index, Var v) {
    e_.Store(buffer, index, e_.Broadcast(v, kLanes), {});
  }
  Var ReadInt(int buffer, const Expr& index) { return e_.Load(buffer, index, 1, {}); }
  Var IndexOf(int operand, const Coordinates& at);  // i64, a scalar

  // Calls `body` for each of the run's scalars, or of a row's.
  void ForScalars(const Run& run, absl::FunctionRef<void(const Expr& r, const Expr& h)> body);
  void ForHeads(absl::FunctionRef<void(const Expr& h)> body);
  void ForVectors(absl::FunctionRef<void(int vector)> body);
  // Covers so many scalars with register tiles.
  void ForTiles(const Expr& scalars, absl::FunctionRef<void(const Expr& first, int scalars)> body);

  void MakeScratch();
  // Reads sequence and position of the tile's rows; returns whether all are inside.
  Var ReadRows(const Expr& rows);
  void ForRuns(const Expr& rows, absl::FunctionRef<void(const Expr& first, const Expr& rows)> body);
  void LowerRun(const Expr& first, const Expr& rows);
  void PackQueries(const Run& run);
  void Start(const Run& run);
  void LowerSplit(const Run& run, const Expr& split);
  // Returns a key as one of the split's, 0 or 256 if it lies outside.
  Expr InSplit(const Expr& split, const Expr& key);
  // Finds the slots of the split's groups of keys [first, last); returns whether all are inside.
  Var FindSlots(const Run& run, const Expr& split, const Expr& first, const Expr& last);
  void Scores(const Run& run, const Expr& first, const Expr& last);
  void ScoreTiles(const Run& run, const Expr& group, int groups);
  // Prefetches 16 elements of the head's keys or values in a group of slots.
  void Prefetch(Operand operand, const Expr& slot, const Expr& line);
  // Reports whether keys and values lie in groups of slots, and are read once by a row.
  bool ReadsGroups() const;
  // Computes weights of a row that sees keys [begin, end) of the split, maximum and sum.
  void Weights(const Expr& scalar, const Expr& begin, const Expr& end);
  Var Score(Var product);
  // Adds the split to what the run has so far.
  void Values(const Run& run, const Expr& split);
  // Adds weights times values of keys [begin, end) of the split, for `scalars` scalars and
  // `vectors` vectors of columns.
  void AddValues(const Expr& scalar, int scalars, int vector, int vectors, const Expr& begin,
                 const Expr& end);
  // Does so for all columns of the scalars [first, first + scalars).
  void AddTiles(const Expr& first, const Expr& scalars, const Expr& begin, const Expr& end);
  Var Value(const Expr& slot, int vector);
  void Merge(const Expr& scalar);
  // Returns the maximum, or 0 if it is -inf, of which -inf minus -inf would be NaN; negated.
  Var MinusBase(Var peak);
  Var ExpOf(Var x, Var minus) {
    return e_.Compute(Op::kExp, real_, {e_.Broadcast(Real2(Op::kAdd, x, minus), kLanes)});
  }
  void Finish(const Run& run);

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const AttentionSchedule& s_;
  const DType real_;
  Expr rows_, slots_;
  const int64_t heads_, group_, groups_of_block_;
  int64_t depth_ = 0, width_ = 0;
  Expr first_row_, head_;    // of the item; head of keys
  bool prefetches_ = false;  // in the code of this run
  // Scratch by row of the tile: i64. Sequences have a neighbour of no sequence on both sides.
  int sequence_ = -1, position_ = -1, run_end_ = -1;
  int slot_ = -1, next_slot_ = -1;  // by group of keys in the split, and in the next one: i64
  int query_ = -1, weight_ = -1;    // by scalar: `depth_`, and kSplit
  // By scalar: of all splits so far, and of the last one. Maxima and sums are in all lanes.
  int peak_ = -1, total_ = -1, sum_ = -1, split_peak_ = -1, split_total_ = -1, split_sum_ = -1;
  absl::Status status_;
};

Expr PagedLowering::Register(const Expr& value, const Expr& lower, const Expr& upper) {
  const Expr simple = e_.Simplify(value);
  if (simple.constant() || simple.symbol()) return simple;
  return Bounded(Int(simple), lower, upper);
}

Expr PagedLowering::Bounded(Var v, const Expr& lower, const Expr& upper) {
  const Expr symbol = e_.Symbol(v);
  e_.bounds().Set(*symbol.symbol(), lower, upper);
  return symbol;
}

Var PagedLowering::IndexOf(int operand, const Coordinates& at) {
  PointLowering::Context context(&b_.at, 1, std::nullopt);
  return e_.Cast(b_.at.At(node_.inputs[operand], at), DType::kI64);
}

void PagedLowering::ForScalars(const Run& run,
                               absl::FunctionRef<void(const Expr&, const Expr&)> body) {
  e_.For(0, run.rows, 1, [&](const Expr& r) { ForHeads([&](const Expr& h) { body(r, h); }); });
}

void PagedLowering::ForHeads(absl::FunctionRef<void(const Expr&)> body) {
  e_.For(0, group_, 1, body);
}

void PagedLowering::ForTiles(const Expr& scalars, absl::FunctionRef<void(const Expr&, int)> body) {
  const Expr all = e_.Simplify(scalars);
  std::optional<int64_t> left = all.constant();
  if (left) left = *left % s_.mr;
  ForRowTiles(e_, 0, all, s_.mr, left, body);
}

void PagedLowering::ForVectors(absl::FunctionRef<void(int)> body) {
  for (int v = 0; v < value_vectors(); ++v) body(v);
}

absl::Status PagedLowering::Lower() {
  RETURN_IF_ERROR(b_.CheckEpilogue());
  if (!HasPagedKernel(b_.input.target)) {
    return absl::InternalError(
        absl::StrCat("device '", b_.input.target.device(), "' has no kernel of PagedAttention"));
  }
  if (!FitsPagedKernel(b_.input.graph, node_)) {
    return absl::InternalError(absl::StrCat(
        "the kernel of PagedAttention needs whole groups of ", kLanes, " slots, at most ",
        kMostPagedGroup, " heads that share one of keys, and widths of at most ", kMostPagedWidth));
  }
  depth_ = *ShapeOf(kQ)[2].constant();
  width_ = *ShapeOf(kV)[2].constant();
  MakeScratch();
  e_.bounds().Set(kir::kLane, 0, kLanes - 1);
  const Coordinates item = b_.SplitItem({e_.Simplify(CeilDiv(rows_, tile())), heads_});
  first_row_ = item[0] * tile();
  head_ = item[1];
  const Expr rows =
      tile() == 1 ? Expr(1) : Register(MinOf(rows_ - first_row_, tile()), 1, Expr(tile()));
  const Var inside = ReadRows(rows);
  e_.If(inside, [&] {
    ForRuns(rows, [&](const Expr& first, const Expr& count) { LowerRun(first, count); });
  });
  return status_;
}

void PagedLowering::MakeScratch() {
  const int64_t scalars = tile() * group_, columns = value_vectors() * kLanes;
  const auto ints = [&](int64_t count) { return e_.Scratch(DType::kI64, count); };
  sequence_ = ints(tile() + 2);
  position_ = ints(tile() + 2);
  run_end_ = ints(tile());
  slot_ = ints(kGroups);
  next_slot_ = ints(kGroups);
  query_ = e_.Scratch(real_, scalars * depth_);
  weight_ = e_.Scratch(real_, scalars * kSplit);
  sum_ = e_.Scratch(real_, scalars * columns);
  split_sum_ = e_.Scratch(real_, scalars * columns);
  for (int* buffer : {&peak_, &total_, &split_peak_, &split_total_}) {
    *buffer = e_.Scratch(real_, scalars * kLanes);
  }
}

Var PagedLowering::ReadRows(const Expr& rows) {
  const Var all = e_.Mutable(True());
  const auto store = [&](const Expr& place, Var sequence, Var position) {
    e_.Store(sequence_, place, sequence, {});
    e_.Store(position_, place, position, {});
  };
  store(0, Int(-1), Int(-1));
  e_.For(0, rows, 1, [&](const Expr& r) {
    const Var sequence = IndexOf(kSequence, {first_row_ + r});
    const Var position = IndexOf(kPosition, {first_row_ + r});
    const Var inside = e_.Compute(
        Op::kAnd, DType::kBool,
        {e_.CheckIndex(sequence, ShapeOf(kTable)[0], {}), e_.CheckIndex(position, Places(), {})});
    e_.Assign(all, Op2(Op::kAnd, DType::kBool, all, inside));
    store(r + 1, sequence, position);
  });
  store(rows + 1, Int(-1), Int(-1));
  return all;
}

void PagedLowering::ForRuns(const Expr& rows,
                            absl::FunctionRef<void(const Expr&, const Expr&)> body) {
  if (tile() == 1) return body(0, 1);
  // Reports whether the rows at two places of the scratch are of different runs.
  const auto differs = [&](const Expr& place) {
    const auto unequal = [&](Var a, Var b) {
      return e_.Compute(Op::kOr, DType::kBool, {Less(a, b), Less(b, a)});
    };
    const Var before = ReadInt(sequence_, place), behind = ReadInt(sequence_, place + 1);
    const Var next = Int(e_.Symbol(ReadInt(position_, place)) + 1);
    const Var position = ReadInt(position_, place + 1);
    return e_.Compute(Op::kOr, DType::kBool, {unequal(before, behind), unequal(next, position)});
  };
  const Var end = e_.Mutable(Int(0));
  e_.For(0, rows, 1, [&](const Expr& i) {
    const Expr r = rows - 1 - i;
    e_.Assign(end, e_.Compute(Op::kSelect, DType::kI64, {differs(r + 1), Int(r + 1), end}));
    e_.Store(run_end_, r, end, {});
  });
  e_.For(0, rows, 1, [&](const Expr& r) {
    e_.If(differs(r), [&] {
      const Expr last = Bounded(ReadInt(run_end_, r), r + 1, rows);
      const Expr count = Register(last - r, 1, Expr(tile()));
      // A decoding sequence has one row, in code that knows how many sums there are.
      e_.If(Less(count, 2), [&] { body(r, 1); });
      e_.If(Less(1, count), [&] { body(r, count); });
    });
  });
}

void PagedLowering::LowerRun(const Expr& first, const Expr& rows) {
  Run run{.first = first, .rows = rows};
  prefetches_ = rows.IsConstant(1) && ReadsGroups();
  run.sequence = Bounded(ReadInt(sequence_, first + 1), 0, ShapeOf(kTable)[0] - 1);
  run.position = Bounded(ReadInt(position_, first + 1), 0, Places() - rows);
  PackQueries(run);
  Start(run);
  e_.For(FloorDiv(BeginOf(run, 0), kSplit), CeilDiv(EndOf(run, rows - 1), kSplit), 1,
         [&](const Expr& split) { LowerSplit(run, split); });
  Finish(run);
}

// Copies queries to scratch, each scalar's one after another.
void PagedLowering::PackQueries(const Run& run) {
  ForScalars(run, [&](const Expr& r, const Expr& h) {
    e_.VectorFor(0, depth_, kLanes, [&](const Expr& d, const std::optional<Expr>& count) {
      PointLowering::Context context(&b_.at, kLanes, count);
      const Var q =
          b_.at.At(node_.inputs[kQ], {first_row_ + run.first + r, head_ * group_ + h, d + Lane()});
      e_.Store(query_, Scalar(r, h) * depth_ + d + Lane(), e_.Broadcast(q, kLanes), b_.at.mask());
    });
  });
  e_.bounds().Set(kir::kLane, 0, kLanes - 1);
}

// Begins with no keys: the sink alone, if there is one.
void PagedLowering::Start(const Run& run) {
  ForScalars(run, [&](const Expr& r, const Expr& h) {
    const Expr at = Scalar(r, h) * kLanes + Lane();
    Var peak = Fill(-std::numeric_limits<double>::infinity()), total = Fill(0);
    if (node_.inputs.size() > kSink) {
      PointLowering::Context context(&b_.at, 1, std::nullopt);
      peak = e_.Broadcast(b_.at.At(node_.inputs[kSink], {head_ * group_ + h}), kLanes);
      total = ExpOf(peak, MinusBase(peak));
    }
    Write(peak_, at, peak);
    Write(total_, at, total);
    ForVectors([&](int v) { Write(sum_, SumAt(Scalar(r, h), v), Fill(0)); });
  });
}

Expr PagedLowering::InSplit(const Expr& split, const Expr& key) {
  return Register(MaxOf(MinOf(key - split * kSplit, kSplit), 0), 0, Expr(kSplit));
}

void PagedLowering::LowerSplit(const Run& run, const Expr& split) {
  const Expr begin = InSplit(split, BeginOf(run, 0)),
             end = InSplit(split, EndOf(run, run.rows - 1));
  const Expr first = FloorDiv(begin, kLanes), last = CeilDiv(end, kLanes);
  e_.If(FindSlots(run, split, first, last), [&] {
    Scores(run, first, last);
    e_.For(0, run.rows, 1, [&](const Expr& r) {
      const Expr from = InSplit(split, BeginOf(run, r)), to = InSplit(split, EndOf(run, r));
      e_.If(Less(from, to),
            [&] { ForHeads([&](const Expr& h) { Weights(Scalar(r, h), from, to); }); });
    });
    Values(run, split);
  });
}

Var PagedLowering::FindSlots(const Run& run, const Expr& split, const Expr& first,
                             const Expr& last) {
  const Expr groups = e_.Simplify(FloorDiv(slots_, kLanes));
  const Var all = e_.Mutable(True());
  const auto slot_of = [&](const Expr& group) {
    const Var block = IndexOf(kTable, {run.sequence, FloorDiv(group, groups_of_block_)});
    return Int(e_.Symbol(block) * groups_of_block_ + Mod(group, groups_of_block_));
  };
  e_.For(first, last, 1, [&](const Expr& group) {
    const Var slot = slot_of(split * kGroups + group);
    e_.Assign(all, Op2(Op::kAnd, DType::kBool, all, e_.CheckIndex(slot, groups, {})));
    e_.Store(slot_, group, slot, {});
  });
  if (prefetches_) {
    const Expr most = ShapeOf(kTable)[1] * groups_of_block_ - 1;
    e_.For(0, kGroups, 1, [&](const Expr& group) {
      const Expr next = Register(MinOf((split + 1) * kGroups + group, most), 0, most);
      e_.Store(next_slot_, group, slot_of(next), {});
    });
  }
  return all;
}

void PagedLowering::Scores(const Run& run, const Expr& first, const Expr& last) {
  const Expr whole = e_.Simplify(first + FloorDiv(last - first, s_.nv) * s_.nv);
  e_.For(first, whole, s_.nv, [&](const Expr& group) {
    e_.bounds().Set(*group.symbol(), 0, Expr(kGroups - s_.nv));
    ScoreTiles(run, group, s_.nv);
  });
  if (s_.nv == 1) return;
  e_.For(whole, last, 1, [&](const Expr& group) {
    e_.bounds().Set(*group.symbol(), 0, Expr(kGroups - 1));
    ScoreTiles(run, group, 1);
  });
}

void PagedLowering::ScoreTiles(const Run& run, const Expr& group, int groups) {
  std::vector<Expr> slots;
  for (int v = 0; v < groups; ++v) {
    slots.push_back(Bounded(ReadInt(slot_, group + v), 0, FloorDiv(slots_, kLanes) - 1));
  }
  ForTiles(Scalars(run), [&](const Expr& scalar, int rows) {
    RegisterTile tile{.rows = rows, .vectors = groups, .k_begin = 0, .k_end = depth_};
    tile.row_value = [&](int r, const Expr& d) {
      return e_.Load(query_, (scalar + r) * depth_ + d, 1, {});
    };
    tile.column_value = [&](int v, const Expr& d) {
      if (prefetches_) Prefetch(kV, slots[v], d);
      PointLowering::Context context(&b_.at, kLanes, std::nullopt);
      return e_.Broadcast(b_.at.At(node_.inputs[kK], {slots[v] * kLanes + Lane(), head_, d}),
                          kLanes);
    };
    tile.initial = [&](int, int) { return Fill(0); };
    tile.store = [&](int r, int v, Var score) {
      Write(weight_, (scalar + r) * kSplit + (group + v) * kLanes + Lane(), score);
    };
    EmitRegisterTile(e_, tile);
  });
}

Var PagedLowering::Score(Var product) {
  const double scale =
      GetAttrOr<double>(node_.attrs, "scale", 1.0 / std::sqrt(static_cast<double>(depth_)));
  Var score = Real2(Op::kMul, product, Fill(scale));
  if (!node_.attrs.contains("softcap")) return score;
  const Var cap = Fill(GetAttr<double>(node_.attrs, "softcap"));
  score = e_.Compute(Op::kTanh, real_, {Real2(Op::kDiv, score, cap)});
  return Real2(Op::kMul, score, cap);
}

Var PagedLowering::MinusBase(Var peak) {
  const double lowest = real_ == DType::kF64 ? std::numeric_limits<double>::lowest()
                                             : std::numeric_limits<float>::lowest();
  const Var none = Less(peak, e_.Float(real_, lowest));
  const Var base = e_.Compute(Op::kSelect, real_, {none, e_.Float(real_, 0), peak});
  return Real2(Op::kMul, base, e_.Float(real_, -1));
}

void PagedLowering::Weights(const Expr& scalar, const Expr& begin, const Expr& end) {
  const Var hidden = Fill(-std::numeric_limits<double>::infinity());
  const Expr first = FloorDiv(begin, kLanes), last = CeilDiv(end, kLanes);
  const auto at = [&](const Expr& group) { return scalar * kSplit + group * kLanes + Lane(); };
  const Var peak = e_.Mutable(hidden);
  e_.For(first, last, 1, [&](const Expr& group) {
    Var seen = e_.LaneMask(end - group * kLanes, kLanes);
    if (windowed()) {
      const Var before = e_.LaneMask(begin - group * kLanes, kLanes);
      seen = e_.And(seen, e_.Compute(Op::kNot, DType::kBool, {before}));
    }
    const Var score = Score(Read(weight_, at(group)));
    const Var own = e_.Compute(Op::kSelect, real_, {seen, score, hidden});
    Write(weight_, at(group), own);
    e_.Assign(peak, Real2(Op::kMax, peak, own));
  });
  const Var most = e_.Reduce(Op::kMax, peak);
  const Var minus = MinusBase(most);
  const Var total = e_.Mutable(Fill(0));
  e_.For(first, last, 1, [&](const Expr& group) {
    const Var weight = ExpOf(Read(weight_, at(group)), minus);
    Write(weight_, at(group), weight);
    e_.Assign(total, Real2(Op::kAdd, total, weight));
  });
  Write(split_peak_, scalar * kLanes + Lane(), most);
  Write(split_total_, scalar * kLanes + Lane(), e_.Reduce(Op::kAdd, total));
}

void PagedLowering::Values(const Run& run, const Expr& split) {
  ForScalars(run, [&](const Expr& r, const Expr& h) {
    ForVectors([&](int v) { Write(split_sum_, SumAt(Scalar(r, h), v), Fill(0)); });
  });
  // Groups of keys that all rows see.
  const Expr begin = CeilDiv(InSplit(split, BeginOf(run, run.rows - 1)), kLanes);
  const Expr end = Register(FloorDiv(InSplit(split, EndOf(run, 0)), kLanes), 0, Expr(kGroups));
  const Expr joint = windowed() ? Register(MinOf(begin, end), 0, Expr(kGroups)) : Expr(0);
  const auto add_own = [&](const Expr& r, const Expr& from, const Expr& to) {
    e_.If(Less(from, to), [&] { AddTiles(Scalar(r, 0), group_, from, to); });
  };
  if (windowed()) {
    e_.For(0, run.rows, 1, [&](const Expr& r) {
      const Expr from = InSplit(split, BeginOf(run, r)), to = InSplit(split, EndOf(run, r));
      add_own(r, from, MinOf(to, joint * kLanes));
    });
  }
  AddTiles(0, Scalars(run), joint * kLanes, end * kLanes);
  e_.For(0, run.rows, 1, [&](const Expr& r) {
    const Expr from = InSplit(split, BeginOf(run, r)), to = InSplit(split, EndOf(run, r));
    add_own(r, MaxOf(from, end * kLanes), to);
    e_.If(Less(from, to), [&] { ForHeads([&](const Expr& h) { Merge(Scalar(r, h)); }); });
  });
}

void PagedLowering::AddTiles(const Expr& first, const Expr& scalars, const Expr& begin,
                             const Expr& end) {
  ForTiles(scalars, [&](const Expr& scalar, int rows) {
    for (int64_t v = 0; v < value_vectors(); v += s_.nv) {
      const auto vectors = static_cast<int>(std::min<int64_t>(s_.nv, value_vectors() - v));
      AddValues(first + scalar, rows, static_cast<int>(v), vectors, begin, end);
    }
  });
}

void PagedLowering::AddValues(const Expr& scalar, int scalars, int vector, int vectors,
                              const Expr& begin, const Expr& end) {
  std::vector<Var> sums;
  for (int r = 0; r < scalars; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sums.push_back(e_.Mutable(Read(split_sum_, SumAt(scalar + r, vector + v))));
    }
  }
  e_.For(FloorDiv(begin, kLanes), CeilDiv(end, kLanes), 1, [&](const Expr& group) {
    e_.bounds().Set(*group.symbol(), 0, Expr(kGroups - 1));
    const Expr slot = Bounded(ReadInt(slot_, group), 0, FloorDiv(slots_, kLanes) - 1);
    const bool prefetches = prefetches_ && vector == 0;
    const Expr next = prefetches ? e_.Symbol(ReadInt(next_slot_, group)) : Expr(0);
    const Expr key = group * kLanes;
    e_.For(MaxOf(begin - key, 0), MinOf(end - key, kLanes), 1, [&](const Expr& k) {
      e_.bounds().Set(*k.symbol(), 0, Expr(kLanes - 1));
      if (prefetches) {
        const int64_t lines = VectorsOf(depth_);
        for (int64_t line = 0; line < lines; ++line) Prefetch(kK, next, k * lines + line);
      }
      std::vector<Var> columns;
      for (int v = 0; v < vectors; ++v) columns.push_back(Value(slot * kLanes + k, vector + v));
      for (int r = 0; r < scalars; ++r) {
        const Var weight = e_.Load(weight_, (scalar + r) * kSplit + key + k, 1, {});
        for (int v = 0; v < vectors; ++v) {
          const Var sum = sums[r * vectors + v];
          e_.Assign(sum, e_.Fma(weight, columns[v], sum));
        }
      }
    });
  });
  for (int r = 0; r < scalars; ++r) {
    for (int v = 0; v < vectors; ++v) {
      Write(split_sum_, SumAt(scalar + r, vector + v), sums[r * vectors + v]);
    }
  }
}

Var PagedLowering::Value(const Expr& slot, int vector) {
  PointLowering::Context context(&b_.at, kLanes, ColumnsBelow(vector));
  const Expr column = vector * kLanes + Lane();
  return e_.Broadcast(b_.at.At(node_.inputs[kV], {slot, head_, column}), kLanes);
}

bool PagedLowering::ReadsGroups() const {
  const auto grouped = [&](Operand operand) {
    const Node& pool = b_.input.graph.node(node_.inputs[operand]);
    const Node& state = IsStateWrite(pool.op) ? b_.input.graph.node(pool.inputs[0]) : pool;
    return IsStateRead(state.op) && b_.input.has_memory[node_.inputs[operand]] &&
           !StateLayout(GetAttrOr<std::string>(state.attrs, "role", ""), pool.type.shape).empty();
  };
  return group_ <= s_.mr && grouped(kK) && grouped(kV);
}

void PagedLowering::Prefetch(Operand operand, const Expr& slot, const Expr& line) {
  const NodeId pool = node_.inputs[operand];
  const Expr group = b_.at.Offset(pool, {slot * kLanes, head_, 0});
  e_.Prefetch(b_.at.BufferOf(pool, /*written=*/false), e_.Simplify(group) + line * kLanes);
}

// The online softmax of two parts: each is scaled from its own maximum to that of both.
void PagedLowering::Merge(const Expr& scalar) {
  const Expr at = scalar * kLanes + Lane();
  const Var before = Read(peak_, at), of_split = Read(split_peak_, at);
  const Var peak = Real2(Op::kMax, before, of_split);
  const Var minus = MinusBase(peak);
  const Var shrink = ExpOf(before, minus), share = ExpOf(of_split, minus);
  const auto merged = [&](int all, int split, const Expr& place) {
    const Var added = Real2(Op::kMul, Read(split, place), share);
    Write(all, place, e_.Fma(Read(all, place), shrink, added));
  };
  Write(peak_, at, peak);
  merged(total_, split_total_, at);
  ForVectors([&](int v) { merged(sum_, split_sum_, SumAt(scalar, v)); });
}

void PagedLowering::Finish(const Run& run) {
  ForScalars(run, [&](const Expr& r, const Expr& h) {
    const Var total = Read(total_, Scalar(r, h) * kLanes + Lane());
    ForVectors([&](int v) {
      const std::optional<Expr> below = ColumnsBelow(v);
      BoundLanes(e_, below, kLanes);
      PointLowering::Context context(&b_.at, kLanes, below);
      Coordinates anchor = {first_row_ + run.first + r, head_ * group_ + h, v * kLanes + Lane()};
      for (Expr& c : anchor) c = e_.Simplify(c);
      status_.Update(b_.StoreEpilogue(anchor, [=, this] {
        return Real2(Op::kDiv, Read(sum_, SumAt(Scalar(r, h), v)), total);
      }));
      BoundLanes(e_, std::nullopt, kLanes);
    });
  });
}

}  // namespace

absl::Status LowerPaged(KernelBuilder& b) { return PagedLowering(b).Lower(); }

}  // namespace athanor
