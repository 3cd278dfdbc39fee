// The sums of a tile that several work items share (TileSchedule.split): item tile * S + share
// sums its share of the products and keeps the sums in memory of the launch. The last item of a
// tile to do so, by a ticket, adds up what all S have kept, its own too, in the order of the
// shares: the same bits whichever it is. Nobody waits for another.
//
//   absl::StatusOr<SplitSums> split = SplitSums::Make(b, /*shares=*/4, /*vectors=*/64, dtype);
//   split->Keep(n, sum);                                  // for each n below 64
//   split->IfLast([&] { Store(split->Add(0, 64)); });
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_SPLIT_SUMS_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_SPLIT_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/codegen/lower/tile.h"

namespace athanor {

class SplitSums {
 public:
  // Makes memory for so many vectors of sums, of a block's lanes, of each item. INTERNAL where the
  // number of items has no bound, or the memory no size. REQUIRES: the builder has its grid, of a
  // tile's items side by side; it is borrowed.
  static absl::StatusOr<SplitSums> Make(KernelBuilder& b, int shares, int vectors, DType dtype);

  // Keeps the n-th vector of the item's sums.
  void Keep(int n, kir::Var sum) const;
  // Runs `body` in the last item of the tile to come here.
  void IfLast(absl::FunctionRef<void()> body) const;
  // Returns vectors [first, first + count) of the tile's sums. In IfLast.
  std::vector<kir::Var> Add(int first, int count) const;

 private:
  SplitSums(KernelBuilder& b, int shares, int vectors, DType dtype)
      : b_(&b), shares_(shares), vectors_(vectors), dtype_(dtype) {}

  // As CheckTickets has it, which knows no largest size: not simplified, say to 0 for all calls.
  Expr Tile() const { return FloorDiv(b_->Item(), shares_); }
  // Returns where the n-th vector of an item lies: as registers are, without a mask.
  Expr IndexOf(const Expr& item, int n) const;

  KernelBuilder* b_;
  int shares_, vectors_;
  DType dtype_;
  int sums_ = -1, counters_ = -1;  // buffers
};

// Returns the sums that are the share's: whole steps of `step` sums. Late shares may have fewer
// than others, or none.
SumRange ShareOf(const kir::Emitter& e, const Expr& sums, int64_t step, int shares,
                 const Expr& share);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_SPLIT_SUMS_H_
