// What is known of the numbers in a value, whatever the inputs are: that none is infinite, how
// large they are at most, that none is negative. Rules ask where an infinity would make their two
// sides differ, and where what they compute instead could overflow.
//
//   ValueFacts square = ValueFactsOf(Op::kMul, {}, {x, x}, /*operands_equal=*/true, types, result);
//   square.nonnegative == true
//
// NaN is always possible: facts are about the elements that are none. Pure functions, thread-safe.
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
  bool nonnegative = false;  // zero of either sign, or above
  bool positive = false;  // at least the dtype's smallest normal number: its reciprocal is finite
  // No number is beyond 2^magnitude, which is at most what the dtype holds (LargestExponent): none
  // is infinite then. kUnknown where no such bound is known.
  static constexpr int kUnknown = 1 << 20;
  int magnitude = kUnknown;

  bool bounded() const { return no_plus_infinity && no_minus_infinity; }
  bool operator==(const ValueFacts&) const = default;
};

// What both say together.
ValueFacts Joined(const ValueFacts& a, const ValueFacts& b);
// Of a literal.
ValueFacts ValueFactsOf(const Tensor& value);
// Of a node by its operands: what is not said does not follow from them alone. `operands_equal`:
// all operands are one value. `operand` is the first operand's dtype, `result` the node's. `terms`
// of a sum or contraction: how many are summed at most, nullopt where that is unknown.
ValueFacts ValueFactsOf(Op op, const Attrs& attrs, absl::Span<const ValueFacts> operands,
                        bool operands_equal, DType operand, DType result,
                        std::optional<int64_t> terms = std::nullopt);
// The magnitude of a sum of so many numbers of this magnitude, in any order, rounding included;
// kUnknown where it is unknown.
int MagnitudeOfSum(int magnitude, std::optional<int64_t> terms);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_VALUE_FACTS_H_
