// What rows of the e-graph are written with: facts by the variables of a match, conditions, both
// orders of operands, index maps by what they do.
//
//   std::vector<egraph::RuleSpec> Row(const TermLanguage& language, const FactsAnalysis& facts) {
//     const RowTerms t(language, facts);
//     return Orders({.premises = {"?y = (Mul~ ?x ?s)"},
//                    .conclusions = {"?x"},
//                    .conditions = {t.UniformIs("s", 1)}});
//   }
//
// A RowTerms borrows both of its parts and is copied into the functions of a rule.
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

// One rule per order of the operands of the operators that are marked with '~' in the premises:
// "(Add~ (Mul~ ?x ?s) ?y)" gives four. A marked operator's payload variable is called differently
// where its operands are swapped: see SpecOf. Rules after the first are named "<name>.1" and so on.
// REQUIRES: a name, and premises that parse.
std::vector<egraph::RuleSpec> Orders(egraph::RuleSpec spec);
std::vector<egraph::RuleSpec> Joined(std::vector<std::vector<egraph::RuleSpec>> parts);

// Whether sums and products of this dtype are rounded to nothing but itself, so that the order of
// operations changes roundings only: f32, f64 and, without any rounding, integers.
bool IsWide(DType dtype);
// The example's dtype where it is wide, else f32.
inline DType WideDType(const ExampleBuilder& e) {
  return IsWide(e.dtype()) ? e.dtype() : DType::kF32;
}
// Whether a factor of this size brings nothing near overflow or underflow that was not there.
bool IsTame(double factor);

// Whether a term of this magnitude makes no sum overflow that did not without it, nor keeps one
// from it: it is less than the rounding of the largest number.
bool HasHeadroom(int magnitude, DType dtype);

// --- Index maps by what they do. Maps have no fill. ---

// `inner` read at the coordinates of `outer`: the map of the view of a view. `bounds` holds dims.
IndexMap ComposeMaps(const IndexMap& outer, const IndexMap& inner, const Bounds& bounds);
bool IsIdentityMap(const IndexMap& map, const Shape& operand);
// The axis of the result that each axis of the operand is, of its own; -1 for axes of size 1 that
// the result has not. nullopt for maps that do more: these are permutations, repetitions, new and
// dropped axes of size 1.
std::optional<std::vector<int>> AxesOfMap(const IndexMap& map, const Shape& operand);
// AxesOfMap of a map that repeats nothing: both sides hold the same elements.
std::optional<std::vector<int>> PermutationOfMap(const IndexMap& map, const Shape& operand);
// The axes of the result that coordinates use.
std::vector<bool> AxesUsed(const IndexMap& map);

class RowTerms {
 public:
  RowTerms(const TermLanguage& language, const FactsAnalysis& facts)
      : language_(&language), facts_(&facts) {}

  const TermLanguage& language() const { return *language_; }
  const FactsAnalysis& facts() const { return *facts_; }

  // Of the class of a variable.
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
  // Of a payload variable.
  const Attrs& AttrsOf(const egraph::Match& m, std::string_view variable) const {
    return language_->attrs(m.Payload(variable));
  }
  // The map of an IndexMap's payload; nullptr if it has a fill.
  const IndexMap* View(const egraph::Match& m, std::string_view variable) const;
  // The axes of a contraction's payload, the operand that the premise names first at the left,
  // whichever it is in the node.
  ContractSpec SpecOf(const egraph::Match& m, const std::string& variable) const;

  // Conditions.
  egraph::Condition IsWeight(std::string variable) const;
  egraph::Condition IsNoWeight(std::string variable) const;
  egraph::Condition IsStored(std::string variable) const;
  egraph::Condition IsUniform(std::string variable) const;
  egraph::Condition IsNotUniform(std::string variable) const;
  egraph::Condition UniformIs(std::string variable, double value) const;
  // A uniform factor that is tame.
  egraph::Condition IsFactor(std::string variable) const;
  // No element is infinite.
  egraph::Condition IsBounded(std::string variable) const;
  // No product of an element of one with one of the other overflows.
  egraph::Condition IsProductBounded(std::string a, std::string b) const;
  egraph::Condition HasWideDType(std::string variable) const;
  // The payload is that of a map without fill.
  egraph::Condition IsView(std::string variable) const;

  // The magnitude of a contraction of operands that have these facts but, as they are read, these
  // types; ValueFacts::kUnknown where it is unknown or overflow is possible.
  int MagnitudeOfContract(const ValueFacts& lhs, const ValueFacts& rhs,
                          absl::Span<const TensorType> types, const ContractSpec& spec) const;

  // Builds the other side on operands of the match; nullopt where the rule does not apply after
  // all.
  using Builder = std::function<std::optional<NodeId>(const egraph::Match&, TermExpansion&)>;
  // Makes what is built one with the class of `root`.
  egraph::Applier Equal(std::string root, Builder builder) const;

 private:
  const TermLanguage* language_;
  const FactsAnalysis* facts_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_ROW_TERMS_H_
