// Contractions: a grid of (batch, column panels, row blocks); inside a work item, pieces of the
// reduction, for each piece the item's column panels, for each panel register tiles over the rows;
// the sums go through scratch to the epilogue. Panels are packed ahead, packed in scratch, or read
// where they lie. The scheme is that of packed register-tiled products (Goto and van de Geijn,
// 2008), without a packed row operand: rows are read as broadcast scalars, so their layout matters
// to the caches only, and then they are copied.
//
// Where the column operand is contiguous along the sums, tiles of dot products read both operands
// in vectors along the sums.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower.h"
#include "compiler/codegen/pack_windows.h"
#include "compiler/codegen/tile.h"
#include "compiler/search/access.h"
#include "compiler/search/contract_roles.h"
#include "compiler/search/extents.h"

namespace athanor {

using kir::Var;

namespace {

constexpr int kCacheLineBytes = 64;

class ContractLowering {
 public:
  explicit ContractLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(b.choice.contract),
        roles_(FindContractRoles(b.input.graph, node_, s_.swap)),
        accumulator_(AccumulatorOf(node_.type.dtype)),
        lanes_(b.LanesFor(DTypeBytes(accumulator_))),
        vectors_(s_.columns == ColumnAccess::kDots ? 1 : s_.nv),
        width_(lanes_ * vectors_),
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

  // The item's panels; those that may be cut off apart from the others if `split`, by tiles of as
  // many vectors as they have.
  void ForPanels(bool split, absl::FunctionRef<void(const Expr& panel)> body);
  // Registers for the item's place in the batch: what is known of them needs no proof where they
  // are used.
  void BindBatch();
  void Panels();
  void VisitPiece(const Piece& k);
  void CopyRows(const Piece& k);
  void PackPanel(const Expr& n0, const Piece& k);
  void Tile(const Expr& panel, const Expr& m0, int rows, const Piece& k);
  Var ColumnVector(const Expr& panel, int vector, const Expr& k, const Piece& piece);
  void DotPanel(const Expr& panel);
  void DotTile(const Expr& n0, const Expr& first, int columns, const Expr& m0, int rows);
  void Epilogue(const Expr& panel, const Expr& m0, int rows);
  // Asks for the operand's element at these coordinates, if it is read from memory as it is.
  void Prefetch(NodeId operand, Coordinates at);

  // Coordinates of an operand or of the result where the flattened indices are m, n, k.
  Coordinates At(const std::string& letters, const Expr& m, const Expr& n, const Expr& k) const;
  Expr LaneIndex(const Expr& n0, int vector) const {
    return n0 + vector * lanes_ + Expr::Symbol(kir::kLane);
  }
  // Where the sums of row m lie between the tile, whose first row is m0, and its epilogue.
  Expr SumIndex(const Expr& panel, const Expr& m, const Expr& m0, int vector) const {
    Expr row = keeps_rows_ ? m - m_begin_ : m - m0;
    if (blocked_) row += (panel - first_) * s_.rows_per_item;
    return row * width_ + vector * lanes_ + Expr::Symbol(kir::kLane);
  }
  Expr PackIndex(const Expr& k, int vector) const {
    return k * width_ + vector * lanes_ + Expr::Symbol(kir::kLane);
  }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const ContractSchedule& s_;
  ContractRoles roles_;
  DType accumulator_;
  int lanes_;
  int vectors_;           // of a panel
  int width_;             // of a panel, in elements
  int tile_vectors_;      // of the panel at hand
  bool windows_ = false;  // panels are packed from windows
  int64_t kc_ = 0;        // of the schedule, in whole windows
  Expr m_, n_, k_;
  bool blocked_ = false;     // the reduction is visited in pieces of kc
  bool keeps_rows_ = false;  // scratch has sums of all the item's rows
  Coordinates batch_;
  Expr m_begin_, m_end_;
  Expr first_, last_;  // the item's panels
  int sums_ = -1, pack_ = -1, rows_ = -1;
  int64_t row_stride_ = 0;  // between the copied rows
  absl::Status status_;
};

absl::Status ContractLowering::Lower() {
  if (!IsEpilogue(b_.input.graph, b_.input.has_memory, b_.choice.root, b_.choice.anchor)) {
    return absl::InternalError(absl::StrCat(b_.input.graph.Describe(b_.choice.root),
                                            " is no epilogue of ",
                                            b_.input.graph.Describe(b_.choice.anchor)));
  }
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
  if (s_.columns == ColumnAccess::kPack) pack_ = e_.Scratch(accumulator_, piece * width_);
  const int64_t sum_rows = blocked_      ? s_.panels_per_item * s_.rows_per_item
                           : keeps_rows_ ? s_.rows_per_item
                                         : s_.mr;
  sums_ = e_.Scratch(accumulator_, sum_rows * width_);
  if (s_.copy_rows) {
    row_stride_ = piece + kCacheLineBytes / DTypeBytes(accumulator_);
    rows_ = e_.Scratch(accumulator_, s_.rows_per_item * row_stride_);
  }
  Expr panels = CeilDiv(n_, width_);
  std::vector<Expr> grid = roles_.ExtentsOf(roles_.batch);
  const size_t batch_rank = grid.size();
  grid.push_back(CeilDiv(panels, s_.panels_per_item));
  grid.push_back(CeilDiv(m_, s_.rows_per_item));
  for (Expr& e : grid) e = e_.Simplify(e);
  b_.SetGrid(Product(grid));
  Coordinates item = Delinearize(b_.Item(), grid);
  for (Expr& c : item) c = e_.Simplify(c);
  batch_.assign(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(batch_rank));
  if (windows_) BindBatch();
  m_begin_ = item[batch_rank + 1] * s_.rows_per_item;
  m_end_ = e_.Simplify(MinOf(m_, m_begin_ + s_.rows_per_item));
  first_ = item[batch_rank] * s_.panels_per_item;
  last_ = s_.panels_per_item == 1 ? first_ + 1 : MinOf(panels, first_ + s_.panels_per_item);
  if (dots) {
    ForPanels(/*split=*/false, [&](const Expr& panel) { DotPanel(panel); });
  } else {
    Panels();
  }
  return status_;
}

void ContractLowering::BindBatch() {
  for (size_t i = 0; i < batch_.size(); ++i) {
    if (batch_[i].constant() || batch_[i].symbol()) continue;
    const Expr place = e_.Symbol(e_.Index(batch_[i], 1));
    e_.bounds().SetExtent(*place.symbol(), roles_.extents.at(roles_.batch[i]));
    batch_[i] = place;
  }
}

void ContractLowering::ForPanels(bool split, absl::FunctionRef<void(const Expr&)> body) {
  const Expr whole = e_.Simplify(FloorDiv(n_, width_));
  if (!split || e_.Simplify(n_ - whole * width_).IsConstant(0)) {
    if (s_.panels_per_item == 1) return body(first_);
    return e_.For(first_, last_, 1, body);
  }
  if (!whole.IsConstant(0)) {
    e_.For(first_, MinOf(last_, whole), 1, [&](const Expr& panel) {
      e_.bounds().Set(*panel.symbol(), first_, whole - 1);
      body(panel);
    });
  }
  const std::optional<int64_t> rest = e_.Simplify(n_ - whole * width_).constant();
  if (windows_ && rest) tile_vectors_ = static_cast<int>((*rest + lanes_ - 1) / lanes_);
  e_.For(MaxOf(first_, whole), last_, 1, body);
  tile_vectors_ = vectors_;
}

void ContractLowering::Panels() {
  if (!blocked_) return VisitPiece({0, k_});
  // An empty reduction still has its one visit: the epilogue reads the sums.
  e_.For(0, MaxOf(k_, 1), kc_, [&](const Expr& k0) { VisitPiece({k0, MinOf(k_, k0 + kc_)}); });
  ForPanels(/*split=*/false, [&](const Expr& panel) {
    e_.For(m_begin_, m_end_, 1, [&](const Expr& m) { Epilogue(panel, m, 1); });
  });
}

void ContractLowering::VisitPiece(const Piece& k) {
  if (s_.copy_rows) CopyRows(k);
  // Only vectors read in place need masks, which cost more than the loads; of windows the last
  // panel may have fewer.
  ForPanels(/*split=*/windows_ || s_.columns == ColumnAccess::kInPlace, [&](const Expr& panel) {
    if (s_.columns == ColumnAccess::kPack) PackPanel(panel * width_, k);
    ForRowTiles(e_, m_begin_, m_end_, s_.mr, [&](const Expr& m0, int rows) {
      Tile(panel, m0, rows, k);
      if (!blocked_) Epilogue(panel, m0, rows);
    });
  });
}

void ContractLowering::CopyRows(const Piece& k) {
  const NodeId operand = node_.inputs[roles_.row_operand];
  e_.For(m_begin_, m_end_, 1, [&](const Expr& m) {
    e_.VectorFor(k.begin, k.end, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
      PointLowering::Context context(&b_.at, lanes_, count);
      const Expr at = i + Expr::Symbol(kir::kLane);
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
  e_.For(piece.begin, piece.end, 1, [&](const Expr& k) {
    for (int v = 0; v < vectors_; ++v) {
      PointLowering::Context context(&b_.at, lanes_, LanesBelow(e_, n0 + v * lanes_, n_, lanes_));
      Expr n = LaneIndex(n0, v);
      Var value = b_.at.At(operand, At(roles_.letters[roles_.column_operand], 0, n, k));
      value = e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
      e_.Store(pack_, PackIndex(k - piece.begin, v), value, {});
    }
  });
}

Var ContractLowering::ColumnVector(const Expr& panel, int v, const Expr& k, const Piece& piece) {
  if (s_.columns == ColumnAccess::kPack) {
    return e_.Load(pack_, PackIndex(k - piece.begin, v), lanes_, {});
  }
  if (s_.columns == ColumnAccess::kAhead) {
    Coordinates c = batch_;
    c.insert(c.end(), {panel, k, v * lanes_ + Expr::Symbol(kir::kLane)});
    Var value = e_.Load(b_.at.BufferOf(s_.packed, false), b_.at.Offset(s_.packed, c), lanes_, {});
    return e_.Cast(value, accumulator_);
  }
  const NodeId operand = node_.inputs[roles_.column_operand];
  const std::string& letters = roles_.letters[roles_.column_operand];
  const Expr n0 = panel * width_ + v * lanes_;
  const int bytes = lanes_ * DTypeBytes(b_.input.graph.node(operand).type.dtype);
  if (s_.prefetch && v * bytes % kCacheLineBytes == 0) {
    Prefetch(operand, At(letters, 0, n0, k + s_.kc));
  }
  PointLowering::Context context(&b_.at, lanes_, LanesBelow(e_, n0, n_, lanes_));
  Var value = b_.at.At(operand, At(letters, 0, n0 + Expr::Symbol(kir::kLane), k));
  return e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
}

void ContractLowering::Tile(const Expr& panel, const Expr& m0, int rows, const Piece& piece) {
  PointLowering::Context context(&b_.at, 1, std::nullopt);
  NodeId row_operand = node_.inputs[roles_.row_operand];
  kir::Mask later;  // sums of an earlier piece exist
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
    if (!blocked_) return e_.Broadcast(e_.Const(IdentityOf(Op::kAdd, accumulator_)), lanes_);
    return e_.Load(sums_, SumIndex(panel, m0 + r, m0, v), lanes_, later);
  };
  tile.store = [&](int r, int v, Var sum) {
    e_.Store(sums_, SumIndex(panel, m0 + r, m0, v), sum, {});
  };
  EmitRegisterTile(e_, tile);
}

void ContractLowering::DotPanel(const Expr& panel) {
  const Expr n0 = panel * width_;
  ForRowTiles(e_, n0, e_.Simplify(MinOf(n_, n0 + width_)), s_.nv, [&](const Expr& n, int columns) {
    ForRowTiles(e_, m_begin_, m_end_, s_.mr,
                [&](const Expr& m0, int rows) { DotTile(n0, n, columns, m0, rows); });
  });
  e_.For(m_begin_, m_end_, 1, [&](const Expr& m) { Epilogue(panel, m, 1); });
}

void ContractLowering::DotTile(const Expr& n0, const Expr& first, int columns, const Expr& m0,
                               int rows) {
  const NodeId row_operand = node_.inputs[roles_.row_operand];
  const NodeId column_operand = node_.inputs[roles_.column_operand];
  const std::string& letters = roles_.letters[roles_.column_operand];
  const Var zero = e_.Broadcast(e_.Const(IdentityOf(Op::kAdd, accumulator_)), lanes_);
  std::vector<Var> sums;
  for (int i = 0; i < rows * columns; ++i) sums.push_back(e_.Mutable(zero));
  e_.VectorFor(0, k_, lanes_, [&](const Expr& i, const std::optional<Expr>& count) {
    PointLowering::Context context(&b_.at, lanes_, count);
    const Expr k = i + Expr::Symbol(kir::kLane);
    auto vector = [&](NodeId operand, const Coordinates& at) {
      Var value = e_.Broadcast(e_.Cast(b_.at.At(operand, at), accumulator_), lanes_);
      // Beyond the last element is anything, infinities included.
      return count
                 ? e_.Compute(Op::kSelect, accumulator_, {e_.LaneMask(*count, lanes_), value, zero})
                 : value;
    };
    std::vector<Var> column;
    for (int c = 0; c < columns; ++c) {
      // The next tile's columns, while this one's are read.
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
    if (view.op != Op::kIndexMap || view.attrs.contains("fill")) return;
    at = MapCoordinates(GetAttr<IndexMap>(view.attrs, "map"), at, e_.bounds());
    operand = view.inputs[0];
  }
  e_.Prefetch(b_.at.BufferOf(operand, false), b_.at.Offset(operand, at));
}

void ContractLowering::Epilogue(const Expr& panel, const Expr& m0, int rows) {
  e_.For(m0, m0 + rows, 1, [&](const Expr& m) {
    for (int v = 0; v < tile_vectors_; ++v) {
      Expr n0 = panel * width_ + v * lanes_;
      std::optional<Expr> below = LanesBelow(e_, n0, n_, lanes_);
      if (below && below->constant().value_or(1) <= 0) continue;  // no columns for any size
      BoundLanes(e_, below, lanes_);
      PointLowering::Context context(&b_.at, lanes_, std::move(below));
      Coordinates anchor = At(roles_.result, m, n0 + Expr::Symbol(kir::kLane), 0);
      b_.at.Provide(b_.choice.anchor, [&, v](const Coordinates&) {
        return e_.Cast(e_.Load(sums_, SumIndex(panel, m, m0, v), lanes_, {}), node_.type.dtype);
      });
      auto root = RootCoordinates(b_.input.graph, b_.input.has_memory, b_.choice.root,
                                  b_.choice.anchor, anchor, e_.bounds());
      if (!root) {
        status_ = absl::InternalError(absl::StrCat(b_.input.graph.Describe(b_.choice.root),
                                                   " is no epilogue of the contraction"));
        return;
      }
      b_.StoreRoot(*root);
    }
    BoundLanes(e_, std::nullopt, lanes_);
  });
}

Coordinates ContractLowering::At(const std::string& letters, const Expr& m, const Expr& n,
                                 const Expr& k) const {
  Coordinates c = roles_.At(letters, batch_, m, n, k);
  for (Expr& e : c) e = e_.Simplify(e);
  return c;
}

}  // namespace

absl::Status LowerContract(KernelBuilder& b) {
  if (b.choice.contract.columns == ColumnAccess::kLibrary) return LowerLibraryProduct(b);
  return ContractLowering(b).Lower();
}

}  // namespace athanor
