#include "compiler/codegen/lower/tile.h"

#include <algorithm>
#include <vector>

#include "compiler/codegen/lower/lower.h"
#include "compiler/search/kernels/contract_schedule.h"

namespace athanor {

using kir::Var;

void EmitRegisterTile(kir::Emitter& e, const RegisterTile& tile) {
  std::vector<Var> sums;
  for (int r = 0; r < tile.rows; ++r) {
    for (int v = 0; v < tile.vectors; ++v) sums.push_back(e.Mutable(tile.initial(r, v)));
  }
  e.For(tile.k_begin, tile.k_end, 1, [&](const Expr& k) {
    std::vector<Var> columns;
    for (int v = 0; v < tile.vectors; ++v) columns.push_back(tile.column_value(v, k));
    for (int r = 0; r < tile.rows; ++r) {
      Var row = tile.row_value(r, k);
      for (int v = 0; v < tile.vectors; ++v) {
        Var sum = sums[r * tile.vectors + v];
        e.Assign(sum, e.Fma(row, columns[v], sum));
      }
    }
  });
  for (int r = 0; r < tile.rows; ++r) {
    for (int v = 0; v < tile.vectors; ++v) tile.store(r, v, sums[r * tile.vectors + v]);
  }
}

void ForRowTiles(kir::Emitter& e, const Expr& begin, const Expr& end, int rows,
                 std::optional<int64_t> left, absl::FunctionRef<void(const Expr&, int)> body) {
  Expr first = begin;
  for (int step : RowTiles(rows, left)) {
    Expr whole = e.Simplify(FloorDiv(end - first, step) * step);
    if (whole.IsConstant(0)) continue;
    Expr last = e.Simplify(first + whole);
    e.For(first, last, step, [&](const Expr& r) {
      // The loop variable is at most last - step, which proves that the tile's rows are below
      // `end`.
      e.bounds().Set(*r.symbol(), first, last - step);
      body(r, step);
    });
    first = last;
    if (e.Simplify(end - first).IsConstant(0)) return;
  }
}

void ClearColumns(kir::Emitter& e, int panel, const Expr& rows, int64_t width, const Expr& begin,
                  const Expr& end, DType dtype, int lanes) {
  const Var zero = e.Broadcast(e.Const(ZeroOf(dtype)), lanes);
  e.For(begin, end, lanes, [&](const Expr& column) {
    e.For(0, rows, 1,
          [&](const Expr& row) { e.Store(panel, row * width + column + e.Lane(lanes), zero, {}); });
  });
}

bool Divides(const kir::Emitter& e, int64_t size, const Expr& n) {
  return e.Simplify(n - FloorDiv(n, size) * size).IsConstant(0);
}

void ForPieces(kir::Emitter& e, const SumRange& sums, int64_t piece,
               absl::FunctionRef<void(const Expr& k0)> body) {
  e.For(sums.begin, sums.end, piece, [&](const Expr& k0) {
    if (Divides(e, piece, sums.all) && e.bounds().NonNegative(sums.all - piece)) {
      e.bounds().Set(*k0.symbol(), 0, sums.all - piece);
    }
    body(k0);
  });
}

std::optional<Expr> LanesBelow(const kir::Emitter& e, const Expr& first, const Expr& end,
                               int lanes) {
  if (e.bounds().NonNegative(end - first - lanes)) return std::nullopt;
  return e.Simplify(end - first);
}

void BoundLanes(kir::Emitter& e, const std::optional<Expr>& below, int lanes) {
  const int64_t count = below ? below->constant().value_or(lanes) : lanes;
  e.bounds().Set(kir::kLane, 0, std::min<int64_t>(count, lanes) - 1);
}

}  // namespace athanor
