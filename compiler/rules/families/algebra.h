// The parts of the family `algebra`, one list per file, which AlgebraRows() joins.
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
std::vector<RuleRow> SharingRows();      // algebra_share.cc: contractions with an operand in common

// Of the family `layout`.
std::vector<RuleRow> ContractionLayoutRows();  // algebra_contract.cc: letters and views

// A tame number that may be taken out of a sum: an integer, which wraps, or of a magnitude of at
// least 1, so that no partial sum overflows without it that did not with it.
egraph::Condition LeavesSum(const RowTerms& terms, std::string variable);
// A tame number that a weight may be multiplied by: an integer, or of a magnitude of at most 1, so
// that no element overflows.
egraph::Condition EntersWeight(const RowTerms& terms, std::string variable);

// For examples: n / d where the builder's dtype is a float, n where it is an integer, |n| where
// that has no sign.
double Number(const ExampleBuilder& e, int64_t n, int64_t d);

// What rows about contractions are written with.

NodeId Contraction(TermExpansion& e, NodeId x, NodeId w, const ContractSpec& spec);
// A view of a weight over axes `letters`, read instead over a tensor of shape `shape` with the axes
// `wanted`; nullopt if it uses an axis that is not there.
std::optional<NodeId> ReadAlong(TermExpansion& e, NodeId weight, const IndexMap& map,
                                const std::string& letters, const std::string& wanted,
                                const Shape& shape);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_FAMILIES_ALGEBRA_H_
