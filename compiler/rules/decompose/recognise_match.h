// Helpers that recognition rows are written with: axes of values named by letters, read through
// views.
//
//   Lettered v = SourceOf(site, {n, "bhqk"});   // Repeat(x[b, h, q]) along k gives {x, "bhq"}
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_

#include <optional>
#include <string>
#include <vector>

#include "compiler/rules/decompose/recognise.h"

namespace athanor {

// Letter of an axis of size 1 that corresponds to no axis of the pattern, such as one left by
// keepdims.
inline constexpr char kUnitLetter = '1';

// Returns the operand's coordinates when `map` is read at `coordinates` of its result.
std::vector<Expr> Compose(const IndexMap& map, const std::vector<Expr>& coordinates);

// A node, with a letter for each of its axes.
struct Lettered {
  NodeId node = -1;
  std::string letters;
  bool operator==(const Lettered&) const = default;
};

// Follows views downwards from `v` as long as the node's axes are distinct whole axes of `v`, and
// returns the last such node. Passes views that permute and repeat, and those that insert axes of
// size 1 on the way. `passed`, if given, receives the views.
Lettered SourceOf(const RecognitionSite& site, const Lettered& v,
                  std::vector<NodeId>* passed = nullptr);
// Same, but the node may have additional axes of size 1, which get kUnitLetter: Repeat(Mul(m[b, h,
// q, 1], -1)) along k gives {Mul, "bhq1"}.
Lettered UnitSourceOf(const RecognitionSite& site, const Lettered& v,
                      std::vector<NodeId>* passed = nullptr);
// Same as SourceOf, but passes only permutations.
Lettered PermutedSourceOf(const RecognitionSite& site, const Lettered& v,
                          std::vector<NodeId>* passed = nullptr);

// Reads `v` through all views and returns them as one view, with only the axes that it uses and
// their letters. For example, x[b, s, 16*h + d] repeated along k is that view of x with "bshd".
// Returns nullopt if `v` is no view.
struct LetteredView {
  RecognisedOperand operand;
  std::string letters;
};
std::optional<LetteredView> ViewWithoutRepetition(const RecognitionSite& site, const Lettered& v);

// Returns the value of every element of a float node, if it follows from constants alone.
std::optional<double> ScalarValue(const RecognitionSite& site, NodeId n);
// Returns `n` as `factor` times a view of another node, if it is a product with, or a quotient by,
// a scalar below views.
struct ScaledOperand {
  RecognisedOperand operand;
  double factor;
};
std::optional<ScaledOperand> ScaledOperandOf(const RecognitionSite& site, NodeId n);
// Returns bounds on a node's elements, if they follow from constants, bools and integers within
// `depth` ops. Returns nullopt otherwise, or if an element may be infinite or NaN.
struct Range {
  double low, high;
};
std::optional<Range> FiniteRange(const RecognitionSite& site, NodeId n, int depth = 12);
// Returns the value of an integer node at `coordinates`, as an expression over these and the dims.
// REQUIRES: `bounds` has all of them.
std::optional<Expr> IndexValue(const RecognitionSite& site, NodeId n,
                               const std::vector<Expr>& coordinates, const Bounds& bounds);

// Row in a file of its own, recognise_attention.cc.
std::optional<Recognised> MatchAttention(const RecognitionSite& site, NodeId n);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_
