// Contractions of a block of a GPU's threads by matrix instructions (TileSchedule). A work item is
// a tile of the result, which the block's waves share as a grid of kTensorWaveRows x
// kTensorWaveColumns. It walks the sums kc at a time: the team copies kc x rows and kc x columns of
// the operands, as they are, into a stage of scratch; each wave multiplies them into its mr x nv
// fragments of sums. With several stages, copies run ahead of the products by all but one of them.
// The sums go to the epilogue through scratch, eight rows of each wave at a time. Several items may
// share the sums of a tile (split_sums.h).
//
// Row r of the fragments is at rows r * 32 + 16 * (row of the wave), column c at columns 8 * nv *
// (column of the wave) + 8 * c. Rows of a stage lie kTensorPadBytes further apart than they are
// long, so that eight of them, which an instruction loads together, are in banks of their own.
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/split_sums.h"
#include "compiler/codegen/lower/tile.h"
#include "compiler/ir/value/message.h"
#include "compiler/search/kernels/contract_roles.h"
#include "compiler/search/kernels/contract_schedule.h"
#include "compiler/search/kernels/matrix_instructions.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

using kir::Var;

namespace {

class TensorLowering {
 public:
  // `node`: the contraction, on the operands that the instruction takes.
  TensorLowering(KernelBuilder& b, const MatrixInstruction& mma, Node node)
      : b_(b),
        e_(b.emitter),
        mma_(mma),
        node_(std::move(node)),
        s_(std::get<TileSchedule>(b.choice.contract)),
        roles_(FindContractRoles(b.input.graph, node_, s_.swap)),
        chunk_(kTensorAccessBytes / DTypeBytes(mma.operands)),
        m_(roles_.SizeOf(roles_.rows)),
        n_(roles_.SizeOf(roles_.columns)),
        k_(roles_.SizeOf(roles_.sums)),
        rows_(TileRows(s_)),
        columns_(TileColumns(s_)) {}

  absl::Status Lower();

 private:
  static constexpr int kTeam = kir::kBlockThreads;

  // An operand's part of the tile: `width` of its rows or columns, of `extent` in all.
  struct Operand {
    NodeId node;
    const std::string* letters;
    bool row;
    Expr extent;
    int64_t width;
    bool along_sums;           // elements of one row or column lie side by side; else of one sum
    bool copies;               // in chunks beside the threads; else they load and store elements
    int64_t inner, stride;     // of a stage's rows: elements, and how far they are apart
    std::vector<int> buffers;  // of the stages
  };

  Operand OperandOf(bool row, int64_t width);
  // Loads by the threads are not ahead of anything: without copies, one stage is as good.
  bool copies() const { return left_->copies || right_->copies; }
  int stages() const { return copies() ? s_.stages : 1; }
  void MakeStages();
  // Fills a stage with the sums [k0, k0 + kc) of both operands. Elements beyond an extent, and of
  // sums from `end` on, are zeros, and nothing is read for them.
  void Fill(int stage, const Expr& k0, const Expr& end);
  void FillOperand(const Operand& operand, int stage, const Expr& first, const Expr& k0,
                   const Expr& end);
  void OneStage(const SumRange& range);
  void SeveralStages(const SumRange& range);
  void Multiply(int stage);
  kir::Matrix FragmentOf(const Operand& operand, int stage, const Expr& first, const Expr& k) const;
  // Counts a thread's sums that go to the epilogue together: slots of a row of its fragments.
  int SumsAtATime() const { return kTensorStagedSlots * s_.nv; }
  // Returns its n-th sum, in the order in which they go there.
  Var SumOf(int n);
  // Stores the result of the item's sums or, if they are split, of all its tile's.
  void Epilogue(const SplitSums* split);
  // Computes the epilogue of eight rows of each wave, from `first` on in the first wave, whose sums
  // are in scratch.
  void EpilogueOfRows(const Expr& first);
  Coordinates At(const std::string& letters, const Expr& m, const Expr& n, const Expr& k) const {
    Coordinates c = roles_.At(letters, batch_, m, n, k);
    for (Expr& e : c) e = e_.Simplify(e);
    return c;
  }

  static Expr Lane() { return Expr::Symbol(kir::kLane); }
  static Expr WaveRow() { return FloorDiv(Lane(), kTensorWaveColumns * kir::kWaveThreads); }
  static Expr WaveColumn() {
    return FloorDiv(Lane(), kir::kWaveThreads) - kTensorWaveColumns * WaveRow();
  }

  KernelBuilder& b_;
  kir::Emitter& e_;
  const MatrixInstruction& mma_;
  const Node node_;
  const TileSchedule& s_;
  ContractRoles roles_;
  const int64_t chunk_;  // elements
  Expr m_, n_, k_;
  const int64_t rows_, columns_;  // of the tile
  Coordinates batch_;
  Expr m_begin_, n_begin_;
  std::optional<Operand> left_, right_;
  std::vector<Var> sums_;
  int staged_sums_ = -1;
  absl::Status status_;
};

absl::Status TensorLowering::Lower() {
  e_.bounds().Set(kir::kLane, 0, kTeam - 1);
  std::vector<Expr> grid = roles_.ExtentsOf(roles_.batch);
  const auto batch_rank = static_cast<std::ptrdiff_t>(grid.size());
  grid.push_back(CeilDiv(n_, columns_));
  grid.push_back(CeilDiv(m_, rows_));
  if (s_.split > 1) grid.push_back(s_.split);
  for (Expr& e : grid) e = e_.Simplify(e);
  const Coordinates item = b_.SplitItem(grid, /*registers=*/true);
  batch_.assign(item.begin(), item.begin() + batch_rank);
  n_begin_ = item[batch_rank] * columns_;
  m_begin_ = item[batch_rank + 1] * rows_;
  left_ = OperandOf(/*row=*/true, rows_);
  right_ = OperandOf(/*row=*/false, columns_);
  MakeStages();
  staged_sums_ = e_.Scratch(mma_.sums, int64_t{kTensorStagedSlots} * s_.nv * kTensorSumsApart);
  const Var zero = e_.Sums(e_.Const(ZeroOf(mma_.sums)));
  for (int i = 0; i < s_.mr * s_.nv; ++i) sums_.push_back(e_.Mutable(zero));
  const SumRange range = s_.split > 1 ? ShareOf(e_, k_, s_.kc, s_.split, item.back()) : AllSums(k_);
  if (stages() == 1) {
    OneStage(range);
  } else {
    SeveralStages(range);
  }
  if (s_.split == 1) {
    Epilogue(nullptr);
    return status_;
  }
  const int count = 2 * s_.mr * SumsAtATime();
  ASSIGN_OR_RETURN(const SplitSums split, SplitSums::Make(b_, s_.split, count, mma_.sums));
  for (int n = 0; n < count; ++n) split.Keep(n, SumOf(n));
  split.IfLast([&] { Epilogue(&split); });
  return status_;
}

TensorLowering::Operand TensorLowering::OperandOf(bool row, int64_t width) {
  const int side = row ? roles_.row_operand : roles_.column_operand;
  const auto contiguous = [&](const std::string& group) {
    return IsContiguous(b_.input.graph, node_, roles_, side, group, &b_.input.has_memory);
  };
  const bool sums_contiguous = contiguous(roles_.sums);
  Operand o{.node = node_.inputs[side],
            .letters = &roles_.letters[side],
            .row = row,
            .extent = row ? m_ : n_,
            .width = width,
            // Bytes side by side in a register are sums' neighbours, and no load transposes them.
            .along_sums = sums_contiguous || DTypeBytes(mma_.operands) == 1};
  o.inner = o.along_sums ? s_.kc : width;
  o.stride = o.inner + kTensorPadBytes / DTypeBytes(mma_.operands);
  const bool neighbours =
      o.along_sums ? sums_contiguous : contiguous(row ? roles_.rows : roles_.columns);
  o.copies = b_.input.has_memory[o.node] && neighbours &&
             Divides(e_, chunk_, o.along_sums ? k_ : o.extent);
  return o;
}

void TensorLowering::MakeStages() {
  for (Operand* o : {&*left_, &*right_}) {
    const int64_t outer = o->along_sums ? o->width : s_.kc;
    for (int i = 0; i < stages(); ++i) {
      o->buffers.push_back(e_.Scratch(mma_.operands, outer * o->stride));
    }
  }
}

void TensorLowering::OneStage(const SumRange& range) {
  ForPieces(e_, range, s_.kc, [&](const Expr& k0) {
    Fill(0, k0, k_);
    if (copies()) e_.Wait(0);
    Multiply(0);
  });
}

// The stages are written out: buffers of their own show the barrier pass what may meet. All but one
// of them are filled ahead, with zeros beyond the sums, so that at each step one group is due.
void TensorLowering::SeveralStages(const SumRange& range) {
  const int ahead = s_.stages - 1;
  // All sums end where the operands do.
  const Expr end = s_.split > 1 ? e_.Coordinate(range.end, k_ + 1) : k_;
  for (int stage = 0; stage < ahead; ++stage) Fill(stage, range.begin + stage * s_.kc, end);
  e_.For(range.begin, range.end, s_.kc * s_.stages, [&](const Expr& first) {
    for (int stage = 0; stage < s_.stages; ++stage) {
      const Expr k0 = first + stage * s_.kc;
      e_.Wait(ahead - 1);
      Fill((stage + ahead) % s_.stages, k0 + ahead * s_.kc, end);
      if (const Var inside = stage == 0 ? kir::kNoVar : b_.at.Inside(k0, end);
          inside == kir::kNoVar) {
        Multiply(stage);
      } else {
        e_.If(inside, [&] { Multiply(stage); });
      }
    }
  });
  e_.Wait(0);
}

void TensorLowering::Fill(int stage, const Expr& k0, const Expr& end) {
  FillOperand(*left_, stage, m_begin_, k0, end);
  FillOperand(*right_, stage, n_begin_, k0, end);
  if (copies()) e_.Commit();
}

void TensorLowering::FillOperand(const Operand& o, int stage, const Expr& first, const Expr& k0,
                                 const Expr& end) {
  // A step moves a part of the stage that follows the last one's: a chunk or an element a thread.
  const int64_t part = o.copies ? chunk_ : 1, across = o.inner / part, rows = kTeam / across;
  const Expr row = e_.Simplify(FloorDiv(Lane(), across));
  const Expr at = e_.Simplify(part * (Lane() - across * row));
  e_.For(0, o.width * s_.kc / (kTeam * part), 1, [&](const Expr& p) {
    const Expr outer = e_.Simplify(p * rows + row);
    const Expr x = e_.Simplify(first + (o.along_sums ? outer : at));
    const Expr k = e_.Simplify(k0 + (o.along_sums ? at : outer));
    const Coordinates from = At(*o.letters, o.row ? x : Expr(0), o.row ? Expr(0) : x, k);
    const Expr to = e_.Simplify(outer * o.stride + at);
    PointLowering::Context context(&b_.at, kTeam, std::nullopt);
    if (o.copies) {
      e_.Copy(o.buffers[stage], to, b_.at.BufferOf(o.node, /*written=*/false),
              b_.at.Offset(o.node, from), static_cast<int>(chunk_),
              e_.And(b_.at.Inside(x, o.extent), b_.at.Inside(k, end)));
      return;
    }
    const Var value = b_.at.OrZero(o.node, from, {{x, o.extent}, {k, end}});
    e_.Store(o.buffers[stage], to, e_.Broadcast(value, kTeam), {});
  });
}

kir::Matrix TensorLowering::FragmentOf(const Operand& o, int stage, const Expr& first,
                                       const Expr& k) const {
  const Expr index = o.along_sums ? first * o.stride + k : k * o.stride + first;
  return {.buffer = o.buffers[stage],
          .index = e_.Simplify(index),
          .stride = o.stride,
          .transposed = o.along_sums != o.row};
}

void TensorLowering::Multiply(int stage) {
  e_.For(
      0, s_.kc / mma_.k, 1,
      [&](const Expr& step) {
        const Expr k = step * mma_.k;
        std::vector<Var> right;
        for (int c = 0; c < s_.nv; ++c) {
          const Expr first = (WaveColumn() * s_.nv + c) * mma_.n;
          right.push_back(e_.Fragment(FragmentOf(*right_, stage, first, k), kir::Part::kRight));
        }
        for (int r = 0; r < s_.mr; ++r) {
          const Expr first = (r * kTensorWaveRows + WaveRow()) * mma_.m;
          const Var left = e_.Fragment(FragmentOf(*left_, stage, first, k), kir::Part::kLeft);
          for (int c = 0; c < s_.nv; ++c) {
            const Var sum = sums_[r * s_.nv + c];
            e_.Assign(sum, e_.Mma(left, right[c], sum));
          }
        }
      },
      kir::AxisRole::kUnroll);
}

Var TensorLowering::SumOf(int n) {
  const int row = n / SumsAtATime(), slot = n % SumsAtATime() / s_.nv, c = n % s_.nv;
  return e_.Slot(sums_[row / 2 * s_.nv + c], row % 2 * kTensorStagedSlots + slot);
}

void TensorLowering::Epilogue(const SplitSums* split) {
  for (int r = 0; r < s_.mr; ++r) {
    for (int half = 0; half < 2; ++half) {
      const int first = (2 * r + half) * SumsAtATime();
      std::vector<Var> added;
      if (split != nullptr) added = split->Add(first, SumsAtATime());
      for (int i = 0; i < SumsAtATime(); ++i) {
        const Var value = split != nullptr ? added[i] : SumOf(first + i);
        e_.Store(staged_sums_, i * kTensorSumsApart + Lane(), value, {});
      }
      EpilogueOfRows(m_begin_ + r * kTensorWaveRows * mma_.m + half * mma_.m / 2);
    }
  }
}

// Reads a fragment of sums: thread t of a wave has in slots 0 and 1 columns 2 * (t % 4) and the
// next of row t / 4, in slots 2 and 3 those of eight rows further (codegen/cuda/fragments.cc).
void TensorLowering::EpilogueOfRows(const Expr& first) {
  // Lanes beyond the tile's columns are idle.
  std::optional<Expr> below = LanesBelow(e_, n_begin_, n_, static_cast<int>(columns_));
  if (columns_ < kTeam) below = below ? e_.Simplify(MinOf(*below, columns_)) : Expr(columns_);
  const Expr wave_column = FloorDiv(Lane(), mma_.n * s_.nv);
  const Expr c = FloorDiv(Lane(), mma_.n) - s_.nv * wave_column;
  const Expr pair = FloorDiv(Lane(), 2) - 4 * FloorDiv(Lane(), mma_.n);
  const Expr slot = Lane() - 2 * FloorDiv(Lane(), 2);
  e_.For(0, kTensorWaveRows, 1, [&](const Expr& wave_row) {
    const Expr begin = first + wave_row * mma_.m;
    e_.For(begin, MinOf(m_, begin + mma_.m / 2), 1, [&](const Expr& m) {
      BoundLanes(e_, below ? below : columns_, static_cast<int>(columns_));
      PointLowering::Context context(&b_.at, kTeam, below);
      const Expr wave = wave_row * kTensorWaveColumns + wave_column;
      const Expr thread = wave * kir::kWaveThreads + (m - begin) * 4 + pair;
      const Expr index = (slot * s_.nv + c) * kTensorSumsApart + thread;
      const Var sum = e_.Load(staged_sums_, e_.Simplify(index), kTeam, b_.at.mask());
      status_.Update(b_.StoreEpilogue(At(roles_.result, m, n_begin_ + Lane(), 0),
                                      [this, sum] { return e_.Cast(sum, node_.type.dtype); }));
      BoundLanes(e_, std::nullopt, kTeam);
    });
  });
}

}  // namespace

absl::Status LowerTensor(KernelBuilder& b) {
  RETURN_IF_ERROR(b.CheckEpilogue());
  const Graph& graph = b.input.graph;
  const auto refused = [&](const std::string& why) {
    return absl::InternalError(Cat(graph.Describe(b.choice.anchor), ": ", why));
  };
  Node node = graph.node(b.choice.anchor);
  const std::optional<TensorOperands> operands =
      FindTensorOperands(graph, node, &b.input.has_memory);
  if (!operands) return refused("no matrix instruction multiplies its operands");
  const MatrixInstruction& mma = *operands->instruction;
  if (!HasInstruction(b.input.target, mma)) {
    return refused(Cat("device '", b.input.target.device(), "', ", b.input.target.cpu(),
                       ", has no ", mma.name, " of ", DTypeName(mma.operands)));
  }
  if (!FitsTensor(std::get<TileSchedule>(b.choice.contract), mma)) {
    return refused(Cat("no tile of matrix instructions is \"", ScheduleText(b.choice), "\""));
  }
  node.inputs = {operands->operands[0], operands->operands[1]};
  return TensorLowering(b, mma, std::move(node)).Lower();
}

}  // namespace athanor
