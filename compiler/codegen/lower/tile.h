// The register tile that contractions and attention are made of: rows x vectors of accumulators in
// registers. Each step of the reduction reads one broadcast scalar per row and one vector per
// column block.
#ifndef ATHANOR_COMPILER_CODEGEN_LOWER_TILE_H_
#define ATHANOR_COMPILER_CODEGEN_LOWER_TILE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/kir/emitter.h"

namespace athanor {

struct RegisterTile {
  int rows;
  int vectors;
  Expr k_begin, k_end;
  std::function<kir::Var(int row, const Expr& k)> row_value;        // scalar, accumulator dtype
  std::function<kir::Var(int vector, const Expr& k)> column_value;  // vector, accumulator dtype
  std::function<kir::Var(int row, int vector)> initial;             // vector
  std::function<void(int row, int vector, kir::Var sum)> store;
};

void EmitRegisterTile(kir::Emitter& e, const RegisterTile& tile);

// Covers rows [begin, end) with tiles (RowTiles of contract_schedule.h). No row is computed twice
// or read beyond the end.
void ForRowTiles(kir::Emitter& e, const Expr& begin, const Expr& end, int rows,
                 std::optional<int64_t> left,
                 absl::FunctionRef<void(const Expr& first, int rows)> body);

// Clears columns [begin, end), in whole vectors, of the first `rows` rows of a panel in scratch
// that is `width` columns wide.
void ClearColumns(kir::Emitter& e, int panel, const Expr& rows, int64_t width, const Expr& begin,
                  const Expr& end, DType dtype, int lanes);

// Reports whether `size` is known to divide n.
bool Divides(const kir::Emitter& e, int64_t size, const Expr& n);

// The sums [begin, end) of `all`.
struct SumRange {
  Expr begin, end, all;
};
// Returns all sums. An empty reduction has one, of zeros, since loops are proved to run.
inline SumRange AllSums(const Expr& sums) { return {0, MaxOf(sums, 1), sums}; }

// Covers the sums with pieces that begin at k0; tells the bounds where all of them are proved to be
// whole.
void ForPieces(kir::Emitter& e, const SumRange& sums, int64_t piece,
               absl::FunctionRef<void(const Expr& k0)> body);

// Returns how many lanes of the vector whose lane 0 is `first` are below `end`, as a count for
// masks; nullopt if all are proved to be.
std::optional<Expr> LanesBelow(const kir::Emitter& e, const Expr& first, const Expr& end,
                               int lanes);

// Bounds "lane" to the lanes that an epilogue uses. Lanes beyond `below` (of LanesBelow) are
// masked, so index expressions need not hold for them.
void BoundLanes(kir::Emitter& e, const std::optional<Expr>& below, int lanes);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_LOWER_TILE_H_
