// Facts about the numbers in a value that hold for all inputs: none is infinite, how large they are
// at most, none is negative. Rules use them where an infinity would make their two sides differ, or
// where their new computation could overflow.
//
//   ValueFacts square = ValueFactsOf(Op::kMul, {}, {x, x}, /*operands_equal=*/true, types, result);
//   square.nonnegative == true
//
// NaN is always possible: facts hold for the elements that are not NaN. Pure functions,
// thread-safe.
#ifndef ATHANOR_COMPILER_RULES_TERMS_VALUE_FACTS_H_
#define ATHANOR_COMPILER_RULES_TERMS_VALUE_FACTS_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

struct ValueFacts {
  bool no_plus_infinity = false;
  bool no_minus_infinity = false;
  bool nonnegative = false;  // every number is zero, of either sign, or positive
  // Every number is at least the smallest normal number: its reciprocal is finite.
  bool positive = false;
  // Bound: no number's absolute value exceeds 2^magnitude, which the dtype can hold
  // (LargestExponent), so none is infinite. kUnknown if there is no known bound.
  static constexpr int kUnknown = 1 << 20;
  int magnitude = kUnknown;

  bool bounded() const { return no_plus_infinity && no_minus_infinity; }
  bool operator==(const ValueFacts&) const = default;
};

// Returns the facts that both imply together.
ValueFacts Joined(const ValueFacts& a, const ValueFacts& b);
// Returns the facts of a literal.
ValueFacts ValueFactsOf(const Tensor& value);
// Returns the facts of a node that follow from its operands alone. `operands_equal`: all operands
// are the same value. `operand` is the first operand's dtype, `result` the node's. `terms`, for a
// sum or contraction: the largest number of terms, nullopt if unknown.
ValueFacts ValueFactsOf(Op op, const Attrs& attrs, absl::Span<const ValueFacts> operands,
                        bool operands_equal, DType operand, DType result,
                        std::optional<int64_t> terms = std::nullopt);
// Returns the magnitude of a sum of `terms` numbers of this magnitude, in any order, including
// rounding; kUnknown if it is unknown.
int MagnitudeOfSum(int magnitude, std::optional<int64_t> terms);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_VALUE_FACTS_H_
