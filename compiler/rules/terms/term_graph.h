// A graph inside an e-graph: its values are classes that rules may find other ways to compute.
//
//   std::unique_ptr<TermGraph> terms = *TermGraph::Create(graph);
//   absl::StatusOr<egraph::Report> report = Saturate(terms.get(), {}, {});      // saturate.h
//   egraph::Extractor extractor(terms->terms(), cost);
//   absl::StatusOr<egraph::Choice> choice = extractor.Extract(terms->Roots());
//   absl::StatusOr<Graph> better = terms->Extract(*choice);
//
// The same graph gives the same ids everywhere. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_RULES_TERMS_TERM_GRAPH_H_
#define ATHANOR_COMPILER_RULES_TERMS_TERM_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/extract/extract.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/rules/terms/facts.h"
#include "compiler/rules/terms/term_language.h"

namespace athanor {

class TermGraph {
 public:
  // Equal nodes become one, nodes that no output needs stay out, names of nodes other than Inputs
  // and Parameters are dropped. REQUIRES: Verify(graph).ok(). An error names the node.
  static absl::StatusOr<std::unique_ptr<TermGraph>> Create(const Graph& graph);
  TermGraph(const TermGraph&) = delete;
  TermGraph& operator=(const TermGraph&) = delete;

  // As it was given.
  const Graph& graph() const { return graph_; }
  const TermLanguage& language() const { return language_; }
  const FactsAnalysis& facts() const { return facts_; }
  // To match, extract and rewrite; the e-graph is clean between calls of this class.
  egraph::EGraph& terms() { return terms_; }
  const egraph::EGraph& terms() const { return terms_; }

  // The class of a node of graph(); an invalid id for a node that no output needs.
  egraph::ClassId ClassOf(NodeId n) const;
  // The classes of the outputs, in their order; the same class more than once if outputs are equal.
  std::vector<egraph::ClassId> Roots() const;
  // The choice that is graph() itself; of its values that became one, the first stands for all.
  egraph::Choice Original() const;

  // A chosen program with the name, dims, Inputs, Parameters and outputs of graph(), by name and in
  // its order, whatever of them is used. Nodes stand in the order of Canonicalize, each class once;
  // Verify accepts the result.
  struct Extracted {
    Graph graph;
    std::vector<egraph::ClassId> classes;  // of the nodes; invalid for unused Inputs and Parameters
  };
  // FAILED_PRECONDITION where the choice is no program (CheckChoice).
  absl::StatusOr<Extracted> ExtractWithClasses(const egraph::Choice& choice) const;
  absl::StatusOr<Graph> Extract(const egraph::Choice& choice) const;

  // Adds the nodes of a graph with the same dims, and Inputs and Parameters among those of graph();
  // the class of nodes that neither an output nor `equal` needs is invalid. `equal` says what is
  // known: a node of `other` and the class it belongs to. Rebuilds.
  // INVALID_ARGUMENT names an Input, Parameter or dim that there is not.
  struct Imported {
    std::vector<egraph::ClassId> classes;  // of the nodes of `other`
    uint64_t nodes = 0;                    // that are new
    uint64_t unions = 0;                   // that changed something
    uint64_t refused = 0;                  // unions that the facts did not let through
  };
  using Equality = std::pair<NodeId, egraph::ClassId>;
  absl::StatusOr<Imported> Import(const Graph& other, absl::Span<const Equality> equal,
                                  egraph::Cause cause = egraph::Cause::kUser);

 private:
  explicit TermGraph(const Graph& graph);

  // The classes of the nodes that are `needed`. The error names the node of `other`.
  absl::StatusOr<std::vector<egraph::ClassId>> AddNodes(const Graph& other,
                                                        const std::vector<bool>& needed,
                                                        egraph::Cause cause);
  absl::Status CheckImport(const Graph& other) const;

  const Graph graph_;
  TermLanguage language_;
  FactsAnalysis facts_;
  egraph::EGraph terms_;
  std::vector<egraph::ClassId> classes_;  // of graph_'s nodes
};

// Classes with their types and facts, nodes with their attributes, in Graphviz' language. Beyond
// `max_nodes` e-nodes a comment says how many are left out.
std::string ToDot(const TermGraph& terms, size_t max_nodes = 500);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_GRAPH_H_
