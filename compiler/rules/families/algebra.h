// The parts of the family `algebra`, one list per file. AlgebraRows() joins them.
#ifndef ATHANOR_COMPILER_RULES_FAMILIES_ALGEBRA_H_
#define ATHANOR_COMPILER_RULES_FAMILIES_ALGEBRA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/rules/families/row_terms.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/terms/term_expansion.h"

namespace athanor {

std::vector<RuleRow> SelectionRows();    // algebra_select.cc: selects and casts
std::vector<RuleRow> ReductionRows();    // algebra_reduce.cc: sums and maxima
std::vector<RuleRow> ContractionRows();  // algebra_contract.cc: one contraction
std::vector<RuleRow> BoundedRows();      // algebra_bounded.cc: sums of products regrouped
std::vector<RuleRow> SharingRows();      // algebra_share.cc: contractions with a common operand

// Part of the family `layout`.
std::vector<RuleRow> ContractionLayoutRows();  // algebra_contract.cc: letters and views

// A tame number that may be moved out of a sum: an integer, which wraps, or a magnitude of at least
// 1, so that no partial sum overflows that did not before.
egraph::Condition LeavesSum(const RowTerms& terms, std::string variable);
// A tame number by which a weight may be multiplied: an integer, or a magnitude of at most 1, so
// that no element overflows.
egraph::Condition EntersWeight(const RowTerms& terms, std::string variable);

// For examples: returns n / d if the builder's dtype is a float, n if it is a signed integer, |n|
// if it is unsigned.
double Number(const ExampleBuilder& e, int64_t n, int64_t d);

// --- helpers of rows about contractions

NodeId Contraction(TermExpansion& e, NodeId x, NodeId w, const ContractSpec& spec);
// Reads a weight's view with axes `letters` over a tensor of shape `shape` with axes `wanted`
// instead; nullopt if the view uses an axis that is not among them.
std::optional<NodeId> ReadAlong(TermExpansion& e, NodeId weight, const IndexMap& map,
                                const std::string& letters, const std::string& wanted,
                                const Shape& shape);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_ALGEBRA_H_
