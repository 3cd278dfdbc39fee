// Facts about the numbers in a value, whatever the inputs are: that none is infinite, how large
// they are at most, that none is negative. Rules ask where an infinity would make their two sides
// differ, and where an intermediate of the other side could overflow.
//
//   ValueFacts square = ValueFactsOf(multiply, {}, {x, x}, /*operands_equal=*/true, f32, f32);
//   square.nonnegative == true
//
// NaN is always possible: facts are about the elements that are none. What an op says of its result
// is the trait `values` of its row. Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_IR_OPS_VALUE_FACTS_H_
#define ATHANOR_COMPILER_IR_OPS_VALUE_FACTS_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

struct ValueFacts {
  bool no_plus_infinity = false;
  bool no_minus_infinity = false;
  bool nonnegative = false;  // zero of either sign, or above
  bool positive = false;  // at least the dtype's smallest normal number: its reciprocal is finite
  // No number is beyond 2^magnitude, which is at most what the dtype holds (LargestExponent): none
  // is infinite then. kUnknown where no such bound is known.
  static constexpr int kUnknown = 1 << 20;
  int magnitude = kUnknown;

  bool bounded() const { return no_plus_infinity && no_minus_infinity; }
  bool operator==(const ValueFacts&) const = default;
};

// Describes an op's result to the op's `values`.
struct ValueQuery {
  const Attrs& attrs;
  absl::Span<const ValueFacts> operands;
  bool operands_equal = false;  // all operands are one value
  DType operand;                // of the first operand; of a leaf the result's
  DType result;
  // How many a sum or contraction sums at most; nullopt where that is unknown.
  std::optional<int64_t> terms = std::nullopt;
};

// Facts about a node's result by its operands; others than these do not follow from them alone.
// `operands_equal`, `operand`, `result` and `terms` as in ValueQuery.
ValueFacts ValueFactsOf(Op op, const Attrs& attrs, absl::Span<const ValueFacts> operands,
                        bool operands_equal, DType operand, DType result,
                        std::optional<int64_t> terms = std::nullopt);
// Facts about a literal.
ValueFacts ValueFactsOf(const Tensor& value);

// For the ops' `values`. What either of two facts says of one value; what both say, so of a value
// whose elements are from either.
ValueFacts Joined(const ValueFacts& a, const ValueFacts& b);
ValueFacts Common(const ValueFacts& a, const ValueFacts& b);
// The same facts and those that follow from them in the result's dtype.
ValueFacts Derived(ValueFacts facts, const ValueQuery& query);
// A result that is nowhere negative where its operand is not.
ValueFacts NonNegativeAsOperand(const ValueQuery& query);
// Magnitudes; kUnknown where one is. A sum is of so many numbers of this magnitude, in any order,
// rounding included.
int ShiftedMagnitude(int magnitude, int by);
int MagnitudeOfProduct(int a, int b);
int MagnitudeOfSum(int magnitude, std::optional<int64_t> terms);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_OPS_VALUE_FACTS_H_
