// The registry of rules: one row per rule, for all families.
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
// If the result's attributes must be computed, a rule applies a function (term_expansion.h).
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

// Difference allowed between the two sides of a rule.
enum class RuleClass : uint8_t {
  kExact,          // no difference, or within the error bounds of the ops in the op table
  kReassociating,  // rounding: the same sums and products in another order
  kApproximate,    // more than rounding, such as lower precision; used on request only
};
std::string_view RuleClassName(RuleClass rule_class);  // "exact", "reassociating", "approximate"

struct RuleRow {
  std::string_view name;    // unique: "contract_takes_scale"
  std::string_view family;  // one of RuleFamilies()
  RuleClass rule_class = RuleClass::kExact;
  std::string_view algebra;  // the row's equation, for people

  // At most one of these functions defines the row's action. A row with none is a switch, read
  // where its decision is made (families fuse and library).
  // `rewrites` returns the row's rules in an e-graph of this language; they borrow both arguments.
  // The first rule may leave its name empty and gets the row's; names of others start with the
  // row's name.
  using Rewrites = std::vector<egraph::RuleSpec> (*)(const TermLanguage&, const FactsAnalysis&);
  Rewrites rewrites = nullptr;
  const RecognitionRow* recognises = nullptr;
  const DecompositionRow* decomposes = nullptr;

  // Builds a small random graph on which the row fires. Required unless the row is a switch.
  void (*example)(ExampleBuilder& e) = nullptr;

  bool is_switch() const { return !rewrites && !recognises && !decomposes; }
};

// Returns all rows, in the order in which they are tried.
absl::Span<const RuleRow> RuleRows();
// Returns nullptr if there is none.
const RuleRow* FindRule(std::string_view name);
// Returns "algebra", "recognise", "decompose", "fuse", "layout", "library".
absl::Span<const std::string_view> RuleFamilies();

// The rows that may be used. Part of the key of all results found with them.
struct RuleChoice {
  std::set<std::string> disabled;  // names of rows or families
  bool approximate = false;        // also use rows of class kApproximate

  bool Allows(const RuleRow& row) const;
  // Returns the canonical text: "all", "-algebra -double_not +approximate".
  std::string ToText() const;
  bool operator==(const RuleChoice&) const = default;
};

// Returns INVALID_ARGUMENT naming an unknown row or family, and the families there are.
absl::Status CheckRuleChoice(const RuleChoice& choice);

// Rows by family; RuleRows() joins them.
std::vector<RuleRow> AlgebraRows();
std::vector<RuleRow> RecogniseRows();
std::vector<RuleRow> DecomposeRows();
std::vector<RuleRow> FuseRows();  // switches
std::vector<RuleRow> LayoutRows();
std::vector<RuleRow> LibraryRows();  // switches

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_RULE_ROW_H_
