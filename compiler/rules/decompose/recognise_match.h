// What recognition rows are written with: axes of values by letter, through views.
//
//   Lettered v = SourceOf(site, {n, "bhqk"});   // Repeat(x[b, h, q]) along k gives {x, "bhq"}
#ifndef ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_
#define ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_

#include <optional>
#include <string>
#include <vector>

#include "compiler/rules/decompose/recognise.h"

namespace athanor {

// The letter of an axis of size 1 that stands for no axis of what is matched, as keepdims leaves
// it.
inline constexpr char kUnitLetter = '1';

// `map` read at `coordinates` of its result: those of its operand.
std::vector<Expr> Compose(const IndexMap& map, const std::vector<Expr>& coordinates);

// A node and the name of each of its axes.
struct Lettered {
  NodeId node = -1;
  std::string letters;
  bool operator==(const Lettered&) const = default;
};

// The node furthest below `v` whose axes are distinct whole axes of `v`: views that permute and
// repeat are passed, as are those that insert axes of size 1 on the way. `passed`, if given,
// receives the views.
Lettered SourceOf(const RecognitionSite& site, const Lettered& v,
                  std::vector<NodeId>* passed = nullptr);
// The same, and the node may have further axes of size 1, which get kUnitLetter:
// Repeat(Mul(m[b, h, q, 1], -1)) along k gives {Mul, "bhq1"}.
Lettered UnitSourceOf(const RecognitionSite& site, const Lettered& v,
                      std::vector<NodeId>* passed = nullptr);
// As SourceOf, but passing only permutations.
Lettered PermutedSourceOf(const RecognitionSite& site, const Lettered& v,
                          std::vector<NodeId>* passed = nullptr);

// What `v` reads through all views, as a view with only the axes that matter to it, and their
// letters: x[b, s, 16*h + d] repeated along k is that view of x with "bshd". nullopt if `v` is no
// view.
struct LetteredView {
  RecognisedOperand operand;
  std::string letters;
};
std::optional<LetteredView> ViewWithoutRepetition(const RecognitionSite& site, const Lettered& v);

// The value that every element of a float node has, where it follows from constants alone.
std::optional<double> ScalarValue(const RecognitionSite& site, NodeId n);
// `n` as `factor` times a view of another node, where it is a product with, or quotient by, a
// scalar below views.
struct ScaledOperand {
  RecognisedOperand operand;
  double factor;
};
std::optional<ScaledOperand> ScaledOperandOf(const RecognitionSite& site, NodeId n);
// Between which numbers the elements of a node are, where that follows from constants, bools and
// integers within `depth` ops; nullopt if it does not, or if an element may be infinite or NaN.
struct Range {
  double low, high;
};
std::optional<Range> FiniteRange(const RecognitionSite& site, NodeId n, int depth = 12);
// The value of an integer node at `coordinates`, as an expression over them and the dims, all of
// which `bounds` knows.
std::optional<Expr> IndexValue(const RecognitionSite& site, NodeId n,
                               const std::vector<Expr>& coordinates, const Bounds& bounds);

// The one row that is a file of its own.
std::optional<Recognised> MatchAttention(const RecognitionSite& site, NodeId n);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_DECOMPOSE_RECOGNISE_MATCH_H_
