// Contractions: a grid of (batch, column panels, row blocks); inside a work item, column panels
// packed ahead or in scratch, register tiles over the rows, the sums through a scratch tile to the
// epilogue. The scheme is that of packed register-tiled products (Goto and van de Geijn, 2008),
// without a packed row operand: rows are read as broadcast scalars, so their layout does not
// matter.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower.h"
#include "compiler/codegen/tile.h"
#include "compiler/search/access.h"
#include "compiler/search/contract_roles.h"

namespace athanor {

using kir::Var;

namespace {

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
        width_(lanes_ * s_.nv),
        m_(roles_.SizeOf(roles_.rows)),
        n_(roles_.SizeOf(roles_.columns)),
        k_(roles_.SizeOf(roles_.sums)) {}

  absl::Status Lower();

 private:
  void Panel(const Expr& panel);
  void PackPanel(const Expr& n0, const Expr& k_begin, const Expr& k_end);
  void Tile(const Expr& panel, const Expr& m0, int rows, const Expr& k_begin, const Expr& k_end);
  void Epilogue(const Expr& panel, const Expr& m0, int rows);

  // Coordinates of an operand or of the result where the flattened indices are m, n, k.
  Coordinates At(const std::string& letters, const Expr& m, const Expr& n, const Expr& k) const;
  Expr LaneIndex(const Expr& n0, int vector) const {
    return n0 + vector * lanes_ + Expr::Symbol(kir::kLane);
  }
  // Where the sums of row m of the block lie between the tile and its epilogue.
  Expr SumIndex(const Expr& row, int vector) const {
    return row * width_ + vector * lanes_ + Expr::Symbol(kir::kLane);
  }
  Expr SumRow(const Expr& m, const Expr& m0) const { return blocked_ ? m - m_begin_ : m - m0; }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const ContractSchedule& s_;
  ContractRoles roles_;
  DType accumulator_;
  int lanes_;
  int width_;
  Expr m_, n_, k_;
  bool blocked_ = false;  // the reduction is visited in pieces of kc
  Coordinates batch_;
  Expr m_begin_, m_end_;
  int sums_ = -1, pack_ = -1;
  absl::Status status_;
};

absl::Status ContractLowering::Lower() {
  if (!IsEpilogue(b_.input.graph, b_.input.has_memory, b_.choice.root, b_.choice.anchor)) {
    return absl::InternalError(absl::StrCat(b_.input.graph.Describe(b_.choice.root),
                                            " is no epilogue of ",
                                            b_.input.graph.Describe(b_.choice.anchor)));
  }
  e_.bounds().Set(kir::kLane, 0, lanes_ - 1);
  std::optional<int64_t> k_max = e_.bounds().Maximum(k_);
  blocked_ = !k_max || *k_max > s_.kc;
  if (s_.packed < 0)
    pack_ = e_.Scratch(accumulator_, std::min(k_max.value_or(s_.kc), s_.kc) * width_);
  sums_ = e_.Scratch(accumulator_, (blocked_ ? s_.rows_per_item : s_.mr) * width_);
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
  m_begin_ = item[batch_rank + 1] * s_.rows_per_item;
  m_end_ = e_.Simplify(MinOf(m_, m_begin_ + s_.rows_per_item));
  Expr first = item[batch_rank] * s_.panels_per_item;
  if (s_.panels_per_item == 1) {
    Panel(first);
  } else {
    e_.For(first, MinOf(panels, first + s_.panels_per_item), 1, [&](const Expr& p) { Panel(p); });
  }
  return status_;
}

void ContractLowering::Panel(const Expr& panel) {
  auto rows = [&](const Expr& k_begin, const Expr& k_end) {
    if (s_.packed < 0) PackPanel(panel * width_, k_begin, k_end);
    ForRowTiles(e_, m_begin_, m_end_, s_.mr, [&](const Expr& m0, int tile_rows) {
      Tile(panel, m0, tile_rows, k_begin, k_end);
      if (!blocked_) Epilogue(panel, m0, tile_rows);
    });
  };
  if (!blocked_) return rows(0, k_);
  // An empty reduction still has its one visit: the epilogue reads the sums.
  e_.For(0, MaxOf(k_, 1), s_.kc, [&](const Expr& k0) { rows(k0, MinOf(k_, k0 + s_.kc)); });
  e_.For(m_begin_, m_end_, 1, [&](const Expr& m) { Epilogue(panel, m, 1); });
}

void ContractLowering::PackPanel(const Expr& n0, const Expr& k_begin, const Expr& k_end) {
  NodeId operand = node_.inputs[roles_.column_operand];
  e_.For(k_begin, k_end, 1, [&](const Expr& k) {
    for (int v = 0; v < s_.nv; ++v) {
      PointLowering::Context context(&b_.at, lanes_, LanesBelow(e_, n0 + v * lanes_, n_, lanes_));
      Expr n = LaneIndex(n0, v);
      Var value = b_.at.At(operand, At(roles_.letters[roles_.column_operand], 0, n, k));
      value = e_.Broadcast(e_.Cast(value, accumulator_), lanes_);
      e_.Store(pack_, SumIndex(k - k_begin, v), value, {});
    }
  });
}

void ContractLowering::Tile(const Expr& panel, const Expr& m0, int rows, const Expr& k_begin,
                            const Expr& k_end) {
  PointLowering::Context context(&b_.at, 1, std::nullopt);
  NodeId row_operand = node_.inputs[roles_.row_operand];
  kir::Mask later;  // sums of an earlier piece exist
  if (blocked_) {
    Var zero = e_.Const(Scalar::Signed(DType::kI64, 0));
    later.predicate = e_.Compute(Op::kLessThan, DType::kBool, {zero, e_.Index(k_begin, 1)});
  }
  RegisterTile tile{.rows = rows, .vectors = s_.nv, .k_begin = k_begin, .k_end = k_end};
  tile.row_value = [&](int r, const Expr& k) {
    Var v = b_.at.At(row_operand, At(roles_.letters[roles_.row_operand], m0 + r, 0, k));
    return e_.Cast(v, accumulator_);
  };
  tile.column_value = [&](int v, const Expr& k) {
    if (s_.packed < 0) return e_.Load(pack_, SumIndex(k - k_begin, v), lanes_, {});
    Coordinates c = batch_;
    c.insert(c.end(), {panel, k, v * lanes_ + Expr::Symbol(kir::kLane)});
    Var value = e_.Load(b_.at.BufferOf(s_.packed, false), b_.at.Offset(s_.packed, c), lanes_, {});
    return e_.Cast(value, accumulator_);
  };
  tile.initial = [&](int r, int v) {
    if (!blocked_) return e_.Broadcast(e_.Const(IdentityOf(Op::kAdd, accumulator_)), lanes_);
    return e_.Load(sums_, SumIndex(SumRow(m0 + r, m0), v), lanes_, later);
  };
  tile.store = [&](int r, int v, Var sum) {
    e_.Store(sums_, SumIndex(SumRow(m0 + r, m0), v), sum, {});
  };
  EmitRegisterTile(e_, tile);
}

void ContractLowering::Epilogue(const Expr& panel, const Expr& m0, int rows) {
  e_.For(m0, m0 + rows, 1, [&](const Expr& m) {
    for (int v = 0; v < s_.nv; ++v) {
      Expr n0 = panel * width_ + v * lanes_;
      std::optional<Expr> below = LanesBelow(e_, n0, n_, lanes_);
      if (below && below->constant().value_or(1) <= 0) continue;  // no columns for any size
      BoundLanes(e_, below, lanes_);
      PointLowering::Context context(&b_.at, lanes_, std::move(below));
      Coordinates anchor = At(roles_.result, m, n0 + Expr::Symbol(kir::kLane), 0);
      b_.at.Provide(b_.choice.anchor, [&, v](const Coordinates&) {
        return e_.Cast(e_.Load(sums_, SumIndex(SumRow(m, m0), v), lanes_, {}), node_.type.dtype);
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
  std::map<char, Expr> at;
  auto place = [&](const std::string& group, const Coordinates& c) {
    for (size_t i = 0; i < group.size(); ++i) at[group[i]] = c[i];
  };
  place(roles_.batch, batch_);
  place(roles_.rows, Delinearize(m, roles_.ExtentsOf(roles_.rows)));
  place(roles_.columns, Delinearize(n, roles_.ExtentsOf(roles_.columns)));
  place(roles_.sums, Delinearize(k, roles_.ExtentsOf(roles_.sums)));
  Coordinates c;
  for (char letter : letters) c.push_back(e_.Simplify(at[letter]));
  return c;
}

}  // namespace

absl::Status LowerContract(KernelBuilder& b) { return ContractLowering(b).Lower(); }

}  // namespace athanor
