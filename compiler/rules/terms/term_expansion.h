// Builds the right-hand side of a rule whose attributes must be computed, with the shorthands of
// decomposition rows. Operands are classes of the match; nodes built on them are added to the
// e-graph.
//
//   .apply = [&](const egraph::Match& m, egraph::Rewriter* rewriter) {
//     TermExpansion t(language, facts, rewriter);
//     const NodeId x = t.Operand(m.Class("x"));
//     return t.Unite(t.x().Cast(x, DType::kF32), m.Class("root"));
//   }
//
// Lives within one call of an applier.
#ifndef ATHANOR_COMPILER_RULES_TERMS_TERM_EXPANSION_H_
#define ATHANOR_COMPILER_RULES_TERMS_TERM_EXPANSION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/egraph/match/rule.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/terms/facts.h"
#include "compiler/rules/terms/term_language.h"

namespace athanor {

class TermExpansion {
 public:
  // Borrows all three.
  TermExpansion(const TermLanguage& language, const FactsAnalysis& facts,
                egraph::Rewriter* rewriter);
  TermExpansion(const TermExpansion&) = delete;
  TermExpansion& operator=(const TermExpansion&) = delete;

  // Returns a node for a class, of the class' type, to build on.
  NodeId Operand(egraph::ClassId id);
  Expansion& x() { return x_; }
  const TensorType& Type(NodeId n) const { return graph_.nodes[n].type; }

  // Adds a node, with all nodes below it, to the e-graph and returns its class. Errors are those of
  // the expansion and of EGraph::Add.
  absl::StatusOr<egraph::ClassId> ClassOf(NodeId n);
  // Adds the node and unites its class with `id`.
  absl::Status Unite(NodeId n, egraph::ClassId id);

 private:
  const TermLanguage& language_;
  const FactsAnalysis& facts_;
  egraph::Rewriter& rewriter_;
  Graph graph_;
  Expansion x_;
  std::vector<egraph::ClassId> classes_;  // by node: the class, for operands and added nodes
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_EXPANSION_H_
