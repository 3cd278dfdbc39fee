// Contractions of a block of a GPU's threads whose operands are both staged in shared memory
// (TileSchedule): tiles of the memory hierarchy, as CUTLASS and others have them. A work item is a
// tile of the result. It walks the sums kc at a time: the team copies kc x rows and kc x columns
// into scratch, then each thread multiplies them into its block of mr x nv sums, which are
// registers. The sums go to the epilogue through scratch, where lanes run along columns. Several
// items may share the sums of a tile (split_sums.h).
//
// The threads are a grid of kStagedThreadRows x kStagedThreadColumns. Thread (row, column) has the
// elements (row + r * kStagedThreadRows, column + c * kStagedThreadColumns), so that neighbouring
// threads read neighbours; `row` and `column` are quotient and rest of the lane.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/split_sums.h"
#include "compiler/codegen/lower/tile.h"
#include "compiler/search/kernels/access.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/extents.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

class StagedLowering {
 public:
  explicit StagedLowering(KernelBuilder& b)
      : b_(b),
        e_(b.emitter),
        node_(b.input.graph.node(b.choice.anchor)),
        s_(std::get<TileSchedule>(b.choice.contract)),
        roles_(FindContractRoles(b.input.graph, node_, s_.swap)),
        accumulator_(AccumulatorOf(node_.type.dtype)),
        m_(roles_.SizeOf(roles_.rows)),
        n_(roles_.SizeOf(roles_.columns)),
        k_(roles_.SizeOf(roles_.sums)) {}

  absl::Status Lower();

 private:
  static constexpr int kTeam = kir::kBlockThreads;

  // An operand's part of the tile: `width` of its rows or columns, of `extent` in all.
  struct Stage {
    NodeId operand;
    const std::string* letters;
    bool row;
    Expr extent;
    int64_t width;
    // Lanes run along the sums, `group` elements of each sum side by side; else along the elements.
    bool along_sums;
    int64_t group;
    int buffer;
  };

  Stage StageOf(bool row, int64_t width);
  // Copies the stage's elements from `first` on, of the sums [k0, k0 + kc). Those beyond either
  // extent are zeros, and nothing is read for them.
  void Copy(const Stage& stage, const Expr& first, const Expr& k0);
  // Returns where the stage has element `x` of sum `k`, kc sums deep.
  Expr IndexOf(const Stage& stage, const Expr& x, const Expr& k) const {
    if (!stage.along_sums) return k * stage.width + x;
    const Expr group = FloorDiv(x, stage.group);
    return group * (kTeam + stage.group) + k * stage.group + x - group * stage.group;
  }
  void Multiply(const Stage& rows, const Stage& columns, const std::vector<Var>& sums);
  // Stores the result of these sums, thread by thread.
  void Epilogue(const std::vector<Var>& sums);
  Coordinates At(const std::string& letters, const Expr& m, const Expr& n, const Expr& k) const {
    Coordinates c = roles_.At(letters, batch_, m, n, k);
    for (Expr& e : c) e = e_.Simplify(e);
    return c;
  }

  static Expr Lane() { return Expr::Symbol(kir::kLane); }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const Node& node_;
  const TileSchedule& s_;
  ContractRoles roles_;
  DType accumulator_;
  Expr m_, n_, k_;
  int64_t rows_ = 0, columns_ = 0;  // of the tile
  Coordinates batch_;
  Expr m_begin_, n_begin_;
  int sums_ = -1;
  absl::Status status_;
};

absl::Status StagedLowering::Lower() {
  RETURN_IF_ERROR(b_.CheckEpilogue());
  if (!FitsStaged(s_, DTypeBytes(accumulator_))) {
    return absl::InternalError(absl::StrCat(b_.input.graph.Describe(b_.choice.anchor),
                                            ": no tile of staged operands is \"",
                                            ScheduleText(b_.choice), "\""));
  }
  rows_ = TileRows(s_);
  columns_ = TileColumns(s_);
  e_.bounds().Set(kir::kLane, 0, kTeam - 1);
  std::vector<Expr> grid = roles_.ExtentsOf(roles_.batch);
  const size_t batch_rank = grid.size();
  grid.push_back(CeilDiv(n_, columns_));
  grid.push_back(CeilDiv(m_, rows_));
  if (s_.split > 1) grid.push_back(s_.split);
  for (Expr& e : grid) e = e_.Simplify(e);
  const Coordinates item = b_.SplitItem(grid, /*registers=*/true);
  batch_.assign(item.begin(), item.begin() + static_cast<std::ptrdiff_t>(batch_rank));
  n_begin_ = item[batch_rank] * columns_;
  m_begin_ = item[batch_rank + 1] * rows_;
  const Stage rows = StageOf(/*row=*/true, rows_), columns = StageOf(/*row=*/false, columns_);
  sums_ = e_.Scratch(accumulator_, rows_ * columns_);
  const Var zero = e_.Broadcast(e_.Const(ZeroOf(accumulator_)), kTeam);
  const int count = s_.mr * s_.nv;
  std::vector<Var> sums;
  for (int i = 0; i < count; ++i) sums.push_back(e_.Mutable(zero));
  const SumRange range = s_.split > 1 ? ShareOf(e_, k_, s_.kc, s_.split, item.back()) : AllSums(k_);
  ForPieces(e_, range, s_.kc, [&](const Expr& k0) {
    Copy(rows, m_begin_, k0);
    Copy(columns, n_begin_, k0);
    Multiply(rows, columns, sums);
  });
  if (s_.split == 1) {
    Epilogue(sums);
    return status_;
  }
  ASSIGN_OR_RETURN(const SplitSums split, SplitSums::Make(b_, s_.split, count, accumulator_));
  for (int i = 0; i < count; ++i) split.Keep(i, sums[i]);
  split.IfLast([&] { Epilogue(split.Add(0, count)); });
  return status_;
}

StagedLowering::Stage StagedLowering::StageOf(bool row, int64_t width) {
  const int side = row ? roles_.row_operand : roles_.column_operand;
  Stage stage{.operand = node_.inputs[side],
              .letters = &roles_.letters[side],
              .row = row,
              .extent = row ? m_ : n_,
              .width = width,
              .along_sums = IsContiguous(b_.input.graph, node_, roles_, side, roles_.sums,
                                         &b_.input.has_memory),
              .group = kTeam / s_.kc};
  const int64_t elements =
      stage.along_sums ? width / stage.group * (kTeam + stage.group) : width * s_.kc;
  stage.buffer = e_.Scratch(accumulator_, elements);
  return stage;
}

void StagedLowering::Copy(const Stage& stage, const Expr& first, const Expr& k0) {
  // Step p stores 128 elements side by side, each thread one: that no two threads meet is plain.
  const int64_t across = stage.along_sums ? stage.group : stage.width;
  const Expr quotient = e_.Simplify(FloorDiv(Lane(), across));
  const Expr rest = e_.Simplify(Lane() - across * quotient);
  const int64_t apart = stage.along_sums ? kTeam + stage.group : kTeam;
  e_.For(0, stage.width * s_.kc / kTeam, 1, [&](const Expr& p) {
    PointLowering::Context context(&b_.at, kTeam, std::nullopt);
    const Expr x = e_.Simplify(first + (stage.along_sums ? p * across + rest : rest));
    const Expr k =
        e_.Simplify(k0 + (stage.along_sums ? quotient : p * (kTeam / across) + quotient));
    Var value = b_.at.OrZero(
        stage.operand, At(*stage.letters, stage.row ? x : Expr(0), stage.row ? Expr(0) : x, k),
        {{x, stage.extent}, {k, k_}});
    value = e_.Broadcast(e_.Cast(value, accumulator_), kTeam);
    e_.Store(stage.buffer, p * apart + Lane(), value, {});
  });
}

void StagedLowering::Multiply(const Stage& rows, const Stage& columns,
                              const std::vector<Var>& sums) {
  const Expr row = FloorDiv(Lane(), kStagedThreadColumns);
  const Expr column = Lane() - row * kStagedThreadColumns;
  e_.For(0, s_.kc, 1, [&](const Expr& k) {
    const auto load = [&](const Stage& stage, const Expr& x) {
      return e_.Load(stage.buffer, e_.Simplify(IndexOf(stage, x, k)), kTeam, {});
    };
    std::vector<Var> right;
    for (int c = 0; c < s_.nv; ++c) {
      right.push_back(load(columns, column + c * kStagedThreadColumns));
    }
    for (int r = 0; r < s_.mr; ++r) {
      const Var left = load(rows, row + r * kStagedThreadRows);
      for (int c = 0; c < s_.nv; ++c) {
        const Var sum = sums[r * s_.nv + c];
        e_.Assign(sum, e_.Fma(left, right[c], sum));
      }
    }
  });
}

void StagedLowering::Epilogue(const std::vector<Var>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    e_.Store(sums_, static_cast<int64_t>(i) * kTeam + Lane(), sums[i], {});
  }
  // Lanes beyond the tile's columns are idle.
  std::optional<Expr> below = LanesBelow(e_, n_begin_, n_, static_cast<int>(columns_));
  if (columns_ < kTeam) below = below ? e_.Simplify(MinOf(*below, columns_)) : Expr(columns_);
  const Expr column = FloorDiv(Lane(), kStagedThreadColumns);
  e_.For(m_begin_, MinOf(m_, m_begin_ + rows_), 1, [&](const Expr& m) {
    BoundLanes(e_, below ? below : columns_, static_cast<int>(columns_));
    PointLowering::Context context(&b_.at, kTeam, below);
    const Expr at = m - m_begin_, row = FloorDiv(at, kStagedThreadRows);
    const Expr thread = (at - row * kStagedThreadRows) * kStagedThreadColumns + Lane() -
                        column * kStagedThreadColumns;
    const Var sum =
        e_.Load(sums_, e_.Simplify((row * s_.nv + column) * kTeam + thread), kTeam, b_.at.mask());
    status_.Update(b_.StoreEpilogue(At(roles_.result, m, n_begin_ + Lane(), 0),
                                    [this, sum] { return e_.Cast(sum, node_.type.dtype); }));
    BoundLanes(e_, std::nullopt, kTeam);
  });
}

}  // namespace

absl::Status LowerStaged(KernelBuilder& b) { return StagedLowering(b).Lower(); }

}  // namespace athanor
