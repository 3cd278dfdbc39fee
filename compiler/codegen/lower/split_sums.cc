#include "compiler/codegen/lower/split_sums.h"

#include <optional>

#include "compiler/ir/value/message.h"

namespace athanor {

using kir::Var;

absl::StatusOr<SplitSums> SplitSums::Make(KernelBuilder& b, int shares, int vectors, DType dtype) {
  SplitSums split(b, shares, vectors, dtype);
  const std::optional<int64_t> items = b.emitter.bounds().Maximum(b.grid);
  const int64_t item_bytes = int64_t{vectors} * kir::kBlockThreads * DTypeBytes(dtype);
  int64_t bytes = 0;
  if (!items || __builtin_mul_overflow(*items, item_bytes, &bytes)) {
    return absl::InternalError(Cat(b.input.graph.Describe(b.choice.anchor),
                                   ": its sums are split, and its ", b.grid.ToString(),
                                   " items have no bound, or none that memory of a launch has"));
  }
  split.sums_ = b.emitter.Launch(dtype, bytes / DTypeBytes(dtype));
  split.counters_ = b.emitter.Counters(*items / shares);
  return split;
}

Expr SplitSums::IndexOf(const Expr& item, int n) const {
  return b_->emitter.Simplify((item * vectors_ + n) * kir::kBlockThreads +
                              Expr::Symbol(kir::kLane));
}

void SplitSums::Keep(int n, Var sum) const {
  b_->emitter.Store(sums_, IndexOf(b_->Item(), n), sum, {});
}

void SplitSums::IfLast(absl::FunctionRef<void()> body) const {
  b_->emitter.If(b_->emitter.LastTicket(counters_, Tile(), shares_), body);
}

std::vector<Var> SplitSums::Add(int first, int count) const {
  kir::Emitter& e = b_->emitter;
  const Var zero = e.Broadcast(e.Const(ZeroOf(dtype_)), kir::kBlockThreads);
  std::vector<Var> sums;
  for (int i = 0; i < count; ++i) sums.push_back(e.Mutable(zero));
  e.For(0, shares_, 1, [&](const Expr& share) {
    const Expr item = Tile() * shares_ + share;
    for (int i = 0; i < count; ++i) {
      const Var kept = e.Load(sums_, IndexOf(item, first + i), kir::kBlockThreads, {});
      e.Assign(sums[i], e.Add(sums[i], kept));
    }
  });
  return sums;
}

SumRange ShareOf(const kir::Emitter& e, const Expr& sums, int64_t step, int shares,
                 const Expr& share) {
  const Expr each = e.Simplify(CeilDiv(CeilDiv(sums, step), shares) * step);
  const Expr begin = e.Simplify(share * each);
  return {begin, e.Simplify(MinOf(sums, begin + each)), sums};
}

}  // namespace athanor
