// The registry of rules: one row per rule, of every family.
//
//   for (const RuleRow& row : RuleRows()) std::cout << row.name << ": " << row.algebra << "\n";
//   RuleChoice choice{.disabled = {"layout", "recognise_attention"}};
//   absl::Status known = CheckRuleChoice(choice);
//
// A family is a function that lists its rows (FuseRows() in fuse.cc); rule_row.cc joins the lists.
// A row of e-graph rules looks like this:
//
//   std::vector<egraph::RuleSpec> DoubleNot(const TermLanguage&, const FactsAnalysis&) {
//     return {{.premises = {"(Not (Not ?x))"}, .conclusions = {"?x"}}};
//   }
//   void DoubleNotExample(ExampleBuilder& e) {
//     const NodeId x = e.Input({e.Size()}, DType::kBool);
//     e.Output(e.x().Add(Op::kNot, {e.x().Add(Op::kNot, {x})}));
//   }
//   {.name = "double_not", .family = "algebra", .rule_class = RuleClass::kExact,
//    .algebra = "not(not(x)) = x", .rewrites = DoubleNot, .example = DoubleNotExample}
//
// Where the result's attributes must be computed, a rule applies a function (term_expansion.h).
// rule_rows_test runs each row alone on its example and compares both sides with the reference
// evaluator. Rows are constants; the registry is thread-safe.
#ifndef ATHANOR_COMPILER_RULES_FAMILIES_RULE_ROW_H_
#define ATHANOR_COMPILER_RULES_FAMILIES_RULE_ROW_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/egraph/match/rule.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/decompose/recognise.h"
#include "compiler/rules/decompose/rule_example.h"
#include "compiler/rules/terms/facts.h"
#include "compiler/rules/terms/term_language.h"

namespace athanor {

// How far both sides of a rule may differ.
enum class RuleClass : uint8_t {
  kExact,          // not at all, or within the error bounds that the op table gives their ops
  kReassociating,  // by rounding: the same sums and products in another order
  kApproximate,    // by more, as lower precision does; used on request only
};
std::string_view RuleClassName(RuleClass rule_class);  // "exact", "reassociating", "approximate"

struct RuleRow {
  std::string_view name;    // unique: "contract_takes_scale"
  std::string_view family;  // one of RuleFamilies()
  RuleClass rule_class = RuleClass::kExact;
  std::string_view algebra;  // what it says, for people

  // At most one of these says how it acts; without any the row is a switch, read where the decision
  // is made (families fuse and library).
  // The rules of the row in an e-graph of this language. Both are borrowed by what is returned. The
  // first may leave its name empty and gets the row's; others have names that start with it.
  using Rewrites = std::vector<egraph::RuleSpec> (*)(const TermLanguage&, const FactsAnalysis&);
  Rewrites rewrites = nullptr;
  const RecognitionRow* recognises = nullptr;
  const DecompositionRow* decomposes = nullptr;

  // Builds a small random graph on which the row fires. Needed unless the row is a switch.
  void (*example)(ExampleBuilder& e) = nullptr;

  bool is_switch() const { return !rewrites && !recognises && !decomposes; }
};

// All rows, in the order they are tried.
absl::Span<const RuleRow> RuleRows();
// nullptr where there is none.
const RuleRow* FindRule(std::string_view name);
// "algebra", "recognise", "decompose", "fuse", "layout", "library".
absl::Span<const std::string_view> RuleFamilies();

// Which rows may be used; part of the key of everything that is found with them.
struct RuleChoice {
  std::set<std::string> disabled;  // names of rows or families
  bool approximate = false;        // rows of that class, too

  bool Allows(const RuleRow& row) const;
  // Canonical: "all", "-algebra -double_not +approximate".
  std::string ToText() const;
  bool operator==(const RuleChoice&) const = default;
};

// INVALID_ARGUMENT names what is neither a row nor a family, and the families there are.
absl::Status CheckRuleChoice(const RuleChoice& choice);

// The families' rows, which RuleRows() joins.
std::vector<RuleRow> AlgebraRows();
std::vector<RuleRow> RecogniseRows();
std::vector<RuleRow> DecomposeRows();
std::vector<RuleRow> FuseRows();  // switches
std::vector<RuleRow> LayoutRows();
std::vector<RuleRow> LibraryRows();  // switches

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_RULE_ROW_H_
