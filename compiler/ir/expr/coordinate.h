// A coordinate of an index map, prepared for many evaluations: dims are replaced by their sizes and
// axes by their positions, so that no name is looked up per element.
//
//   Coordinate row = Coordinate::Compile(map.coordinates[0], dims, /*rank=*/2).value();
//   std::optional<int64_t> index = row.Evaluate({3, 7});   // at $0 = 3, $1 = 7
#ifndef ATHANOR_COMPILER_IR_EXPR_COORDINATE_H_
#define ATHANOR_COMPILER_IR_EXPR_COORDINATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/expr/expr.h"

namespace athanor {

// Immutable, copied freely.
class Coordinate {
 public:
  // INVALID_ARGUMENT names a symbol that is neither a dim nor an axis below `rank`.
  static absl::StatusOr<Coordinate> Compile(const Expr& e, const Expr::Env& dims, int rank);

  // Returns nullopt if a divisor is not positive or the value is outside int64.
  std::optional<int64_t> Evaluate(absl::Span<const int64_t> axes) const;
  // Returns by how much the value grows with each step along `axis`, if that is a constant.
  std::optional<int64_t> SlopeAlong(int axis) const;

 private:
  struct Factor {
    Atom::Kind kind;
    int axis = -1;  // kSymbol: the axis, or -1 for `value`, whose product overflows
    int64_t value = 0;
    std::vector<Coordinate> args;
  };
  struct Term {
    int64_t coefficient;
    std::vector<Factor> factors;
  };

  static absl::StatusOr<Factor> CompileAtom(const Atom& atom, const Expr::Env& dims, int rank);
  bool Uses(int axis) const;
  static bool FactorUses(const Factor& factor, int axis);
  static std::optional<int64_t> EvaluateFactor(const Factor& factor,
                                               absl::Span<const int64_t> axes);

  std::vector<Term> terms_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_EXPR_COORDINATE_H_
