// Helpers that e-graph rows are written with: facts by the variables of a match, conditions, both
// orders of operands, index maps by their effect.
//
//   std::vector<egraph::RuleSpec> Row(const TermLanguage& language, const FactsAnalysis& facts) {
//     const RowTerms t(language, facts);
//     return Orders({.premises = {"?y = (Mul~ ?x ?s)"},
//                    .conclusions = {"?x"},
//                    .conditions = {t.UniformIs("s", 1)}});
//   }
//
// A RowTerms borrows the language and the facts, and is copied into the functions of a rule.
#ifndef ATHANOR_COMPILER_RULES_FAMILIES_ROW_TERMS_H_
#define ATHANOR_COMPILER_RULES_FAMILIES_ROW_TERMS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/egraph/match/rule.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/decompose/rule_example.h"
#include "compiler/rules/terms/facts.h"
#include "compiler/rules/terms/term_expansion.h"
#include "compiler/rules/terms/term_language.h"

namespace athanor {

// Returns one rule per order of the operands of the operators that the premises mark with '~':
// "(Add~ (Mul~ ?x ?s) ?y)" gives four. If a marked operator's operands are swapped, its payload
// variable has another name: see SpecOf. Rules after the first are named "<name>.1" and so on.
// REQUIRES: the spec has a name, and its premises parse.
std::vector<egraph::RuleSpec> Orders(egraph::RuleSpec spec);
std::vector<egraph::RuleSpec> Joined(std::vector<std::vector<egraph::RuleSpec>> parts);

// Reports whether sums and products of this dtype are rounded to the dtype itself, so that the
// order of operations changes only roundings: f32, f64 and integers, which do not round.
bool IsWide(DType dtype);
// Returns the example's dtype if it is wide, else f32.
inline DType WideDType(const ExampleBuilder& e) {
  return IsWide(e.dtype()) ? e.dtype() : DType::kF32;
}
// Reports whether a factor of this size cannot cause overflow or underflow by itself.
bool IsTame(double factor);

// Reports whether a term of this magnitude neither makes a sum overflow nor prevents its overflow,
// because it is less than the rounding of the largest number.
bool HasHeadroom(int magnitude, DType dtype);

// --- Index maps by their effect. Maps have no fill. ---

// Returns the map of a view of a view: `inner` read at the coordinates of `outer`. `bounds` holds
// dims.
IndexMap ComposeMaps(const IndexMap& outer, const IndexMap& inner, const Bounds& bounds);
bool IsIdentityMap(const IndexMap& map, const Shape& operand);
// Returns the axis of the result that each axis of the operand becomes; -1 for axes of size 1 that
// the result does not have. Covers permutations, repetitions, and new or dropped axes of size 1;
// returns nullopt for other maps.
std::optional<std::vector<int>> AxesOfMap(const IndexMap& map, const Shape& operand);
// Same as AxesOfMap, but only for maps that repeat nothing: both sides hold the same elements.
std::optional<std::vector<int>> PermutationOfMap(const IndexMap& map, const Shape& operand);
// Returns the axes of the result that the coordinates use.
std::vector<bool> AxesUsed(const IndexMap& map);

class RowTerms {
 public:
  RowTerms(const TermLanguage& language, const FactsAnalysis& facts)
      : language_(&language), facts_(&facts) {}

  const TermLanguage& language() const { return *language_; }
  const FactsAnalysis& facts() const { return *facts_; }

  // Returns the facts of a variable's class.
  const Facts& FactsOf(const egraph::Match& m, std::string_view variable) const {
    return facts_->Get(m.graph(), m.Class(variable));
  }
  const TensorType& Type(const egraph::Match& m, std::string_view variable) const {
    return FactsOf(m, variable).type;
  }
  const Shape& ShapeOf(const egraph::Match& m, std::string_view variable) const {
    return Type(m, variable).shape;
  }
  std::optional<double> Uniform(const egraph::Match& m, std::string_view variable) const {
    return facts_->Uniform(m.graph(), m.Class(variable));
  }
  // Returns the attributes of a payload variable.
  const Attrs& AttrsOf(const egraph::Match& m, std::string_view variable) const {
    return language_->attrs(m.Payload(variable));
  }
  // Returns the map of an IndexMap's payload; nullptr if it has a fill.
  const IndexMap* View(const egraph::Match& m, std::string_view variable) const;
  // Returns the axes of a contraction's payload. The left side belongs to the operand that the
  // premise names first, whichever it is in the node.
  ContractSpec SpecOf(const egraph::Match& m, const std::string& variable) const;

  // --- conditions
  egraph::Condition IsWeight(std::string variable) const;
  egraph::Condition IsNoWeight(std::string variable) const;
  egraph::Condition IsStored(std::string variable) const;
  egraph::Condition IsUniform(std::string variable) const;
  egraph::Condition IsNotUniform(std::string variable) const;
  egraph::Condition UniformIs(std::string variable, double value) const;
  // A uniform factor that is tame.
  egraph::Condition IsFactor(std::string variable) const;
  // True if no element is infinite.
  egraph::Condition IsBounded(std::string variable) const;
  // True if no product of an element of `a` and an element of `b` overflows.
  egraph::Condition IsProductBounded(std::string a, std::string b) const;
  egraph::Condition HasWideDType(std::string variable) const;
  // True if the payload is that of a map without fill.
  egraph::Condition IsView(std::string variable) const;

  // Returns the magnitude of a contraction of operands with these facts, read with these types;
  // ValueFacts::kUnknown if it is unknown or overflow is possible.
  int MagnitudeOfContract(const ValueFacts& lhs, const ValueFacts& rhs,
                          absl::Span<const TensorType> types, const ContractSpec& spec) const;

  // Builds the other side of a rule from operands of the match; nullopt if the rule does not apply
  // after all.
  using Builder = std::function<std::optional<NodeId>(const egraph::Match&, TermExpansion&)>;
  // Unites the built node's class with the class of `root`.
  egraph::Applier Equal(std::string root, Builder builder) const;

 private:
  const TermLanguage* language_;
  const FactsAnalysis* facts_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_ROW_TERMS_H_
