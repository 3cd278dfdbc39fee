// Contractions: a grid of (batch, column panels, row blocks). A work item loops over pieces of the
// reduction, for each piece over its column panels, and for each panel over register tiles of the
// rows. The sums go through scratch to the epilogue. Panels are packed ahead, packed in scratch, or
// read in place. The scheme is that of packed register-tiled products (Goto and van de Geijn,
// 2008), without a packed row operand: rows are read as broadcast scalars, so their layout matters
// to the caches only, and then they are copied. Panels that are packed ahead may be wider than
// tiles; then each part of one counts as a panel.
//
// If the column operand is contiguous along the sums, tiles of dot products read both operands in
// vectors along the sums.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/pack_windows.h"
#include "compiler/codegen/lower/tile.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

constexpr int kCacheLineBytes = 64;

// Reports whether an epilogue is so short that writing it out for each of a tile's vectors costs
// less than storing and loading the sums.
bool IsShort(const KernelBuilder& b) {
  constexpr size_t kMostNodes = 8;
  std::set<NodeId> seen;
  std::vector<NodeId> todo = {b.choice.root};
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    const Node& node = b.input.graph.node(id);
    if (id == b.choice.anchor || (id != b.choice.root && b.input.has_memory[id])) continue;
    if (!seen.insert(id).second) continue;
    switch (node.op) {
      case Op::kIndexMap:
        if (node.attrs.contains("fill")) return false;
        break;
      case Op::kConstant:
      case Op::kCast:
      case Op::kAdd:
      case Op::kMul:
      case Op::kMax:
      case Op::kMin:
        break;
      default:
        return false;
    }
    if (seen.size() > kMostNodes) return false;
    todo.insert(todo.end(), node.inputs.begin(), node.inputs.end());
  }
  return true;
}

class ContractLowering {
 public:
  explicit ContractLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(std::get<PanelSchedule>(b.choice.contract)),
        roles_(FindContractRoles(b.input.graph, node_, s_.swap)),
        accumulator_(AccumulatorOf(node_.type.dtype)),
        lanes_(b.LanesFor(DTypeBytes(accumulator_))),
        vectors_(s_.columns == ColumnAccess::kDots ? 1 : s_.nv),
        width_(lanes_ * vectors_),
        parts_(s_.panel > 0 ? s_.panel / s_.nv : 1),
        tile_vectors_(vectors_),
        m_(roles_.SizeOf(roles_.rows)),
        n_(roles_.SizeOf(roles_.columns)),
        k_(roles_.SizeOf(roles_.sums)) {}

  absl::Status Lower();

 private:
  // A piece of the reduction.
  struct Piece {
    Expr begin, end;
  };

  // Reports whether the last panel is a large part of all panels, so that tiles of fewer vectors
  // for it are worth compiling. A size that calls choose is expected to be a quarter of its
  // maximum.
  bool HasFewPanels() const {
    constexpr int64_t kExpected = 4, kFew = 4;
    const std::optional<int64_t> most = e_.bounds().Maximum(n_);
    return most && *most <= kExpected * kFew * width_;
  }
  // Runs `body` for the item's panels; if they are split, separately for whole panels and for the
  // partial one.
  void ForPanels(absl::FunctionRef<void(const Expr& panel)> body);
  // Runs `body` for tiles of as many vectors as the packed panel has columns for, or a few more.
  void ForVectors(const Expr& panel, const Piece& k, absl::FunctionRef<void()> body);
  // Returns how many vectors tiles may have, in rising order, for panels that are cut off or, if
  // they are not split, for all.
  std::vector<int> TileVectors() const;
  // Returns how many columns the last panel has, 0 if it is whole, if that is known.
  std::optional<int64_t> LastColumns() const {
    return e_.Simplify(n_ - FloorDiv(n_, width_) * width_).constant();
  }
  std::optional<int64_t> Left() const { return RowsLeft(m_.constant(), s_); }
  void Panels();
  void VisitPiece(const Piece& k);
  void CopyRows(const Piece& k);
  void PackPanel(const Expr& n0, const Piece& k);
  // Clears those of the packed panel's first `end` vectors that have no column.
  void ClearVectors(const Expr& n0, int end, const Piece& k);
  void Tile(const Expr& panel, const Expr& m0, int rows, const Piece& k);
  Var ColumnVector(const Expr& panel, int vector, const Expr& k, const Piece& piece);
  // Sets where in the packed operand the tile's panel is.
  void FindPacked(const Expr& panel);
  void DotPanel(const Expr& panel);
  void DotTile(const Expr& n0, const Expr& first, int columns, const Expr& m0, int rows);
  // Computes the epilogue of the panel's columns in rows [begin, end), whose sums are in scratch.
  void Epilogue(const Expr& panel, const Expr& begin, const Expr& end);
  // Computes the epilogue of the panel's vector in row m; its sums are `sum`.
  void VectorEpilogue(const Expr& panel, const Expr& m, int vector, Var sum);
  // Computes the epilogue at row m and the lanes from column n on, in the context they have.
  void LanesEpilogue(const Expr& m, const Expr& n, Var sum);
  // Prefetches the operand's element at these coordinates, if it is read from memory as it is.
  void Prefetch(NodeId operand, Coordinates at);

  // Returns the coordinates of an operand or of the result at the flattened indices m, n, k.
  Coordinates At(const std::string& letters, const Expr& m, const Expr& n, const Expr& k) const;
  // Returns the scratch index of row m's sums of columns `place` + lane of the panel, from the
  // tile, whose first row is m0, to its epilogue.
  Expr SumIndex(const Expr& panel, const Expr& m, const Expr& m0, const Expr& place) const {
    Expr row = keeps_rows_ ? m - m_begin_ : m - m0;
    if (blocked_) row += (panel - first_) * s_.rows_per_item;
    return row * width_ + place + e_.Lane(lanes_);
  }
  // Returns the end of the panel's columns that there are, as a register unless it is known.
  Expr EndOf(const Expr& n0) {
    const Expr end = e_.Simplify(MinOf(n_, n0 + width_));
    return end == e_.Simplify(n0 + width_) ? end : e_.Coordinate(end, n_ + 1);
  }
  // Returns how many columns a vector has of the panel that begins at n0; nullopt: all lanes.
  std::optional<Expr> Below(const Expr& n0, int vector) const {
    if (vector < full_vectors_) return std::nullopt;
    return LanesBelow(e_, n0 + vector * lanes_, n_, lanes_);
  }
  // Reports whether the panel may have no column for the vector.
  bool MayBeEmpty(int vector) const { return vector > full_vectors_; }
  Expr PackIndex(const Expr& k, const Expr& place) const {
    return k * width_ + place + e_.Lane(lanes_);
  }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const PanelSchedule& s_;
  ContractRoles roles_;
  DType accumulator_;
  int lanes_;
  int vectors_;           // of a panel
  int width_;             // of a panel, in elements
  int parts_;             // panels in one that is packed ahead
  int tile_vectors_;      // vectors of the current panel
  int full_vectors_ = 0;  // vectors among them known to have all their columns
  bool split_ = false;    // whole panels get code of their own
  bool direct_ = false;   // the epilogue takes the sums from registers
  bool windows_ = false;  // panels are packed from windows
  int64_t kc_ = 0;        // s_.kc, in whole windows
  Expr m_, n_, k_;
  bool blocked_ = false;     // the reduction is visited in pieces of kc
  bool keeps_rows_ = false;  // scratch has sums of all the item's rows
  Coordinates batch_;
  Expr m_begin_, m_end_;
  Expr first_, last_;  // the item's panels
  // kAhead: the stored panel that the tile reads, and its first column in there.
  Expr packed_panel_, packed_column_;
  int sums_ = -1, pack_ = -1, rows_ = -1;
  int64_t row_stride_ = 0;  // distance of the copied rows
  absl::Status status_;
};

absl::Status ContractLowering::Lower() {
  if (s_.panel % s_.nv != 0) {
    return absl::InternalError(
        absl::StrCat("contraction: tiles of ", s_.nv, " vectors do not walk panels of ", s_.panel));
  }
  RETURN_IF_ERROR(b_.CheckEpilogue());
  e_.bounds().Set(kir::kLane, 0, lanes_ - 1);
  const bool dots = s_.columns == ColumnAccess::kDots;
  windows_ = s_.columns == ColumnAccess::kPack &&
             IsWindows(b_.input.graph, node_, roles_, roles_.column_operand, roles_.columns,
                       &b_.input.has_memory);
  kc_ = s_.kc;
  if (const int64_t taps = TapsOf(roles_); windows_ && taps > 1) {
    kc_ = std::max<int64_t>(1, s_.kc / taps) * taps;
  }
  std::optional<int64_t> k_max = e_.bounds().Maximum(k_);
  const int64_t piece = std::min(k_max.value_or(kc_), kc_);
  blocked_ = !dots && (!k_max || *k_max > kc_);
  keeps_rows_ = dots || blocked_;
  // For longer sums the way through memory costs little, and writing the epilogue out is slow to
  // compile.
  constexpr int64_t kShortSums = 128;
  direct_ = !keeps_rows_ && piece <= kShortSums && IsShort(b_);
  // The tiles of packed panels need no masks but for stores of their own, so whole ones need no
  // code of their own.
  split_ = s_.columns == ColumnAccess::kInPlace || (s_.columns == ColumnAccess::kPack && direct_);
  if (s_.columns == ColumnAccess::kPack) pack_ = e_.Scratch(accumulator_, piece * width_);
  const int64_t sum_rows = blocked_      ? s_.panels_per_item * s_.rows_per_item
                           : keeps_rows_ ? s_.rows_per_item
                                         : s_.mr;
  if (!direct_) sums_ = e_.Scratch(accumulator_, sum_rows * width_);
  if (s_.copy_rows) {
    // A cache line longer than the piece, so that rows do not share the same sets of the cache.
    row_stride_ = piece + kCacheLineBytes / DTypeBytes(accumulator_);
    rows_ = e_.Scratch(accumulator_, s_.rows_per_item * row_stride_);
  }
  Expr panels = CeilDiv(n_, width_);
  std::vector<Expr> grid = roles_.ExtentsOf(roles_.batch);
  const size_t batch_rank = grid.size();
  grid.push_back(CeilDiv(panels, s_.panels_per_item));
  grid.push_back(CeilDiv(m_, s_.rows_per_item));
  for (Expr& e : grid) e = e_.Simplify(e);
  const Coordinates item = b_.SplitItem(grid, /*registers=*/true);
  batch_.assign(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(batch_rank));
  m_begin_ = item[batch_rank + 1] * s_.rows_per_item;
  m_end_ = e_.Simplify(MinOf(m_, m_begin_ + s_.rows_per_item));
  first_ = item[batch_rank] * s_.panels_per_item;
  last_ = s_.panels_per_item == 1 ? first_ + 1 : MinOf(panels, first_ + s_.panels_per_item);
  if (dots) {
    ForPanels([&](const Expr& panel) { DotPanel(panel); });
  } else {
    Panels();
  }
  return status_;
}

void ContractLowering::ForPanels(absl::FunctionRef<void(const Expr&)> body) {
  const Expr whole = e_.Simplify(FloorDiv(n_, width_));
  const Expr rest = e_.Simplify(n_ - whole * width_);
  if (!split_ || rest.IsConstant(0)) {
    full_vectors_ = rest.IsConstant(0) ? vectors_ : 0;
    if (s_.panels_per_item == 1) return body(first_);
    return e_.For(first_, last_, 1, body);
  }
  if (!whole.IsConstant(0)) {
    full_vectors_ = vectors_;
    e_.For(first_, MinOf(last_, whole), 1, [&](const Expr& panel) {
      e_.bounds().Set(*panel.symbol(), first_, whole - 1);
      body(panel);
    });
  }
  const std::optional<int64_t> columns = rest.constant();
  if (columns) tile_vectors_ = static_cast<int>((*columns + lanes_ - 1) / lanes_);
  full_vectors_ = static_cast<int>(columns.value_or(0) / lanes_);
  e_.For(MaxOf(first_, whole), last_, 1, body);
  tile_vectors_ = vectors_;
  full_vectors_ = 0;
}

std::vector<int> ContractLowering::TileVectors() const {
  std::vector<int> numbers;
  const std::optional<int64_t> last = LastColumns();
  if (last && *last > 0) {
    numbers.push_back(static_cast<int>((*last + lanes_ - 1) / lanes_));
    if (split_ || e_.Simplify(FloorDiv(n_, width_)).IsConstant(0)) return numbers;
  } else if (!last && HasFewPanels()) {
    // Epilogues written out for each vector are long: there one vector is told from several.
    for (int v = 1; v < vectors_ && !(direct_ && v > 1); v *= 2) numbers.push_back(v);
  }
  if (numbers.empty() || numbers.back() < vectors_) numbers.push_back(vectors_);
  return numbers;
}

void ContractLowering::ForVectors(const Expr& panel, const Piece& k,
                                  absl::FunctionRef<void()> body) {
  if (s_.columns != ColumnAccess::kPack || full_vectors_ == vectors_) return body();
  const std::vector<int> numbers = TileVectors();
  const int full = full_vectors_, vectors = tile_vectors_;
  const auto less = [&](Var a, Var b) { return e_.Compute(Op::kLessThan, DType::kBool, {a, b}); };
  const auto number = [&](int64_t value) { return e_.Const(Scalar::Signed(DType::kI64, value)); };
  const Var columns = numbers.size() > 1 ? e_.Index(n_ - panel * width_, 1) : kir::kNoVar;
  int above = 0;
  for (const int v : numbers) {
    Var here = v == numbers.back() ? kir::kNoVar : less(columns, number(v * lanes_ + 1));
    if (above > 0) here = e_.And(here, less(number(above * lanes_), columns));
    const auto tiles = [&] {
      tile_vectors_ = v;
      full_vectors_ = std::max(full, above);
      if (v > above + 1 && !LastColumns()) ClearVectors(panel * width_, v, k);
      body();
    };
    if (here == kir::kNoVar) {
      tiles();
    } else {
      e_.If(here, tiles);
    }
    above = v;
  }
  tile_vectors_ = vectors;
  full_vectors_ = full;
}

void ContractLowering::Panels() {
  if (!blocked_) return VisitPiece({0, k_});
  // An empty reduction still gets one visit, because the epilogue reads the sums.
  e_.For(0, MaxOf(k_, 1), kc_, [&](const Expr& k0) { VisitPiece({k0, MinOf(k_, k0 + kc_)}); });
  ForPanels([&](const Expr& panel) { Epilogue(panel, m_begin_, m_end_); });
}

void ContractLowering::VisitPiece(const Piece& k) {
  if (s_.copy_rows) CopyRows(k);
  ForPanels([&](const Expr& panel) {
    if (s_.columns == ColumnAccess::kPack) PackPanel(panel * width_, k);
    ForVectors(panel, k, [&] {
      ForRowTiles(e_, m_begin_, m_end_, s_.mr, Left(), [&](const Expr& m0, int rows) {
        Tile(panel, m0, rows, k);
        if (!blocked_ && !direct_) Epilogue(panel, m0, m0 + rows);
      });
    });
  });
}

void ContractLowering::CopyRows(const Piece& k) {
  const NodeId operand = node_.inputs[roles_.row_operand];
  e_.For(m_begin_, m_end_, 1, [&](const Expr& m) {
    e_.VectorFor(k.begin, k.end, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
      PointLowering::Context context(&b_.at, lanes_, count);
      const Expr at = i + e_.Lane(lanes_);
      Var value = b_.at.At(operand, At(roles_.letters[roles_.row_operand], m, 0, at));
      value = e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
      e_.Store(rows_, (m - m_begin_) * row_stride_ + at - k.begin, value, b_.at.mask());
    });
  });
}

void ContractLowering::PackPanel(const Expr& n0, const Piece& piece) {
  NodeId operand = node_.inputs[roles_.column_operand];
  if (windows_) {
    return PackWindows(b_, {.roles = roles_,
                            .operand = operand,
                            .batch = batch_,
                            .dtype = accumulator_,
                            .lanes = lanes_,
                            .vectors = tile_vectors_,
                            .width = width_,
                            .scratch = pack_,
                            .first = n0,
                            .k_begin = piece.begin,
                            .k_end = piece.end});
  }
  const Expr end = EndOf(n0);
  e_.For(piece.begin, piece.end, 1, [&](const Expr& k) {
    e_.VectorFor(n0, end, lanes_, vectors_,
                 [&](const Expr& n, const std::optional<Expr>& count, int /*part*/) {
                   PointLowering::Context context(&b_.at, lanes_, count);
                   const std::string& letters = roles_.letters[roles_.column_operand];
                   Var value = b_.at.At(operand, At(letters, 0, n + e_.Lane(lanes_), k));
                   value = e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
                   e_.Store(pack_, PackIndex(k - piece.begin, n - n0), value, {});
                 });
  });
}

void ContractLowering::ClearVectors(const Expr& n0, int end, const Piece& piece) {
  const Expr begin = e_.Simplify(CeilDiv(n_ - n0, lanes_) * lanes_);
  ClearColumns(e_, pack_, piece.end - piece.begin, width_, begin, end * lanes_, accumulator_,
               lanes_);
}

void ContractLowering::FindPacked(const Expr& panel) {
  packed_panel_ = panel;
  packed_column_ = 0;
  if (parts_ == 1) return;
  packed_panel_ = e_.Coordinate(FloorDiv(panel, parts_), CeilDiv(n_, parts_ * width_));
  packed_column_ = e_.Coordinate(Mod(panel, parts_), parts_) * width_;
}

Var ContractLowering::ColumnVector(const Expr& panel, int v, const Expr& k, const Piece& piece) {
  if (s_.columns == ColumnAccess::kPack) {
    return e_.Load(pack_, PackIndex(k - piece.begin, v * lanes_), lanes_, {});
  }
  if (s_.columns == ColumnAccess::kAhead) {
    Coordinates c = batch_;
    c.insert(c.end(), {packed_panel_, k, packed_column_ + v * lanes_ + e_.Lane(lanes_)});
    Var value = e_.Load(b_.at.BufferOf(b_.choice.packed, false), b_.at.Offset(b_.choice.packed, c),
                        lanes_, {});
    return e_.Cast(value, accumulator_);
  }
  const NodeId operand = node_.inputs[roles_.column_operand];
  const std::string& letters = roles_.letters[roles_.column_operand];
  const Expr n0 = panel * width_ + v * lanes_;
  const int bytes = lanes_ * DTypeBytes(b_.input.graph.node(operand).type.dtype);
  // Prefetches each cache line once, a visit of kc elements ahead.
  if (s_.prefetch && v * bytes % kCacheLineBytes == 0) {
    Prefetch(operand, At(letters, 0, n0, k + s_.kc));
  }
  PointLowering::Context context(&b_.at, lanes_, Below(panel * width_, v), MayBeEmpty(v));
  Var value = b_.at.At(operand, At(letters, 0, n0 + e_.Lane(lanes_), k));
  return e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
}

void ContractLowering::Tile(const Expr& panel, const Expr& m0, int rows, const Piece& piece) {
  PointLowering::Context context(&b_.at, 1, std::nullopt);
  NodeId row_operand = node_.inputs[roles_.row_operand];
  if (s_.columns == ColumnAccess::kAhead) FindPacked(panel);
  kir::Mask later;  // true if sums of an earlier piece exist
  if (blocked_) {
    Var zero = e_.Const(Scalar::Signed(DType::kI64, 0));
    later.predicate = e_.Compute(Op::kLessThan, DType::kBool, {zero, e_.Index(piece.begin, 1)});
  }
  RegisterTile tile{
      .rows = rows, .vectors = tile_vectors_, .k_begin = piece.begin, .k_end = piece.end};
  tile.row_value = [&](int r, const Expr& k) {
    if (s_.copy_rows) {
      return e_.Load(rows_, (m0 + r - m_begin_) * row_stride_ + k - piece.begin, 1, {});
    }
    Var v = b_.at.At(row_operand, At(roles_.letters[roles_.row_operand], m0 + r, 0, k));
    return e_.Cast(v, accumulator_);
  };
  tile.column_value = [&](int v, const Expr& k) { return ColumnVector(panel, v, k, piece); };
  tile.initial = [&](int r, int v) {
    if (!blocked_) return e_.Broadcast(e_.Const(ZeroOf(accumulator_)), lanes_);
    return e_.Load(sums_, SumIndex(panel, m0 + r, m0, v * lanes_), lanes_, later);
  };
  tile.store = [&](int r, int v, Var sum) {
    if (direct_) return VectorEpilogue(panel, m0 + r, v, sum);
    e_.Store(sums_, SumIndex(panel, m0 + r, m0, v * lanes_), sum, {});
  };
  EmitRegisterTile(e_, tile);
}

void ContractLowering::DotPanel(const Expr& panel) {
  const Expr n0 = panel * width_;
  const Expr end = e_.Simplify(MinOf(n_, n0 + width_));
  ForRowTiles(e_, n0, end, s_.nv, std::nullopt, [&](const Expr& n, int columns) {
    ForRowTiles(e_, m_begin_, m_end_, s_.mr, Left(),
                [&](const Expr& m0, int rows) { DotTile(n0, n, columns, m0, rows); });
  });
  Epilogue(panel, m_begin_, m_end_);
}

void ContractLowering::DotTile(const Expr& n0, const Expr& first, int columns, const Expr& m0,
                               int rows) {
  const NodeId row_operand = node_.inputs[roles_.row_operand];
  const NodeId column_operand = node_.inputs[roles_.column_operand];
  const std::string& letters = roles_.letters[roles_.column_operand];
  const Var zero = e_.Broadcast(e_.Const(ZeroOf(accumulator_)), lanes_);
  std::vector<Var> sums;
  for (int i = 0; i < rows * columns; ++i) sums.push_back(e_.Mutable(zero));
  e_.VectorFor(0, k_, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    const Expr k = i + e_.Lane(lanes_);
    auto vector = [&](NodeId operand, const Coordinates& at) {
      Var value = e_.Broadcast(e_.Cast(b_.at.At(operand, at), accumulator_), lanes_);
      // Lanes beyond the last element may hold anything, infinities included.
      return count
                 ? e_.Compute(Op::kSelect, accumulator_, {e_.LaneMask(*count, lanes_), value, zero})
                 : value;
    };
    std::vector<Var> column;
    for (int c = 0; c < columns; ++c) {
      // Prefetches the next tile's columns while this tile's are read.
      if (s_.prefetch) Prefetch(column_operand, At(letters, 0, first + c + columns, i));
      column.push_back(vector(column_operand, At(letters, 0, first + c, k)));
    }
    for (int r = 0; r < rows; ++r) {
      const Var row = vector(row_operand, At(roles_.letters[roles_.row_operand], m0 + r, 0, k));
      for (int c = 0; c < columns; ++c) {
        const Var sum = sums[r * columns + c];
        e_.Assign(sum, e_.Fma(row, column[c], sum));
      }
    }
  });
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      e_.Store(sums_, (m0 + r - m_begin_) * width_ + first + c - n0,
               e_.Reduce(Op::kAdd, sums[r * columns + c]), {});
    }
  }
}

void ContractLowering::Prefetch(NodeId operand, Coordinates at) {
  while (!b_.input.has_memory[operand]) {
    const Node& view = b_.input.graph.node(operand);
    if (!IsIndexMap(view.op) || view.attrs.contains("fill")) return;
    at = MapCoordinates(GetAttr<IndexMap>(view.attrs, "map"), at, e_.bounds());
    operand = view.inputs[0];
  }
  e_.Prefetch(b_.at.BufferOf(operand, false), b_.at.Offset(operand, at));
}

void ContractLowering::Epilogue(const Expr& panel, const Expr& begin, const Expr& end) {
  const Expr n0 = panel * width_;
  // Tiles of dot products write no sums beyond the columns, which a team's threads must not read.
  const bool masked = s_.columns == ColumnAccess::kDots && b_.choice.team > 1;
  const auto sum = [&](const Expr& m, const Expr& n, const std::optional<Expr>& below) {
    kir::Mask mask;
    if (masked) mask.count = below;
    return e_.Load(sums_, SumIndex(panel, m, begin, n - n0), lanes_, mask);
  };
  if (vectors_ == 1) {
    return e_.For(begin, end, 1,
                  [&](const Expr& m) { VectorEpilogue(panel, m, 0, sum(m, n0, Below(n0, 0))); });
  }
  const Expr last = EndOf(n0);
  const auto vector = [&](const Expr& m, const Expr& n, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    LanesEpilogue(m, n, sum(m, n, count));
  };
  const bool cut = !Divides(e_, lanes_, n_);
  e_.For(begin, end, 1, [&](const Expr& m) {
    if (cut) {
      return e_.VectorFor(n0, last, lanes_, [&](const Expr& n, const std::optional<Expr>& count) {
        vector(m, n, count);
      });
    }
    e_.For(n0, last, lanes_, [&](const Expr& n) {
      e_.bounds().Set(*n.symbol(), n0, n_ - lanes_);
      vector(m, n, std::nullopt);
    });
  });
}

void ContractLowering::VectorEpilogue(const Expr& panel, const Expr& m, int v, Var sum) {
  const Expr n0 = panel * width_;
  const std::optional<Expr> below = Below(n0, v);
  if (below && below->constant().value_or(1) <= 0) return;  // no columns at any size
  BoundLanes(e_, below, lanes_);
  {
    PointLowering::Context context(&b_.at, lanes_, below, MayBeEmpty(v));
    LanesEpilogue(m, n0 + v * lanes_, sum);
  }
  BoundLanes(e_, std::nullopt, lanes_);
}

void ContractLowering::LanesEpilogue(const Expr& m, const Expr& n, Var sum) {
  status_.Update(b_.StoreEpilogue(At(roles_.result, m, n + e_.Lane(lanes_), 0),
                                  [this, sum] { return e_.Cast(sum, node_.type.dtype); }));
}

Coordinates ContractLowering::At(const std::string& letters, const Expr& m, const Expr& n,
                                 const Expr& k) const {
  Coordinates c = roles_.At(letters, batch_, m, n, k);
  for (Expr& e : c) e = e_.Simplify(e);
  return c;
}

}  // namespace

absl::Status LowerContract(KernelBuilder& b) {
  const ContractSchedule& s = b.choice.contract;
  if (std::holds_alternative<LibrarySchedule>(s)) return LowerLibraryProduct(b);
  if (std::holds_alternative<CallSchedule>(s)) return LowerCall(b);
  if (IsTensor(s)) return LowerTensor(b);
  if (std::holds_alternative<TileSchedule>(s)) return LowerStaged(b);
  return ContractLowering(b).Lower();
}

}  // namespace athanor
