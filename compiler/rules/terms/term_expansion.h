// The right-hand side of a rule whose attributes must be computed, written as decomposition rows
// are: operands are classes of the match, what is built on them goes into the e-graph.
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

  // A class as a node to build on: its type is that of the class.
  NodeId Operand(egraph::ClassId id);
  Expansion& x() { return x_; }
  const TensorType& Type(NodeId n) const { return graph_.nodes[n].type; }

  // The class of a node, which is added to the e-graph with all below it. Errors are those of the
  // expansion, and of EGraph::Add.
  absl::StatusOr<egraph::ClassId> ClassOf(NodeId n);
  // Adds the node and makes its class one with `id`.
  absl::Status Unite(NodeId n, egraph::ClassId id);

 private:
  const TermLanguage& language_;
  const FactsAnalysis& facts_;
  egraph::Rewriter& rewriter_;
  Graph graph_;
  Expansion x_;
  std::vector<egraph::ClassId> classes_;  // of the nodes that are operands or were added
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_EXPANSION_H_
