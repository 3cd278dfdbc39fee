// A graph inside an e-graph: its values are classes, for which rules may find other computations.
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
  // Merges equal nodes, leaves out nodes that no output needs, and drops the names of nodes other
  // than Inputs and Parameters. An error names the node. REQUIRES: Verify(graph).ok().
  static absl::StatusOr<std::unique_ptr<TermGraph>> Create(const Graph& graph);
  TermGraph(const TermGraph&) = delete;
  TermGraph& operator=(const TermGraph&) = delete;

  // Returns the graph given to Create.
  const Graph& graph() const { return graph_; }
  const TermLanguage& language() const { return language_; }
  const FactsAnalysis& facts() const { return facts_; }
  // For matching, extraction and rewriting. The e-graph is clean between calls of this class.
  egraph::EGraph& terms() { return terms_; }
  const egraph::EGraph& terms() const { return terms_; }

  // Returns the class of a node of graph(); an invalid id for a node that no output needs.
  egraph::ClassId ClassOf(NodeId n) const;
  // Returns the classes of the outputs, in their order; equal outputs repeat the class.
  std::vector<egraph::ClassId> Roots() const;
  // Returns the choice that is graph() itself; for merged values, the first one.
  egraph::Choice Original() const;

  // A chosen program. It has the name, dims, Inputs, Parameters and outputs of graph(), by name and
  // in its order, also those that are not used. Nodes are in the order of Canonicalize, one per
  // class. Verify accepts the graph.
  struct Extracted {
    Graph graph;
    std::vector<egraph::ClassId> classes;  // by node; invalid for unused Inputs and Parameters
  };
  // Returns FAILED_PRECONDITION if the choice is no program (CheckChoice).
  absl::StatusOr<Extracted> ExtractWithClasses(const egraph::Choice& choice) const;
  absl::StatusOr<Graph> Extract(const egraph::Choice& choice) const;

  // Adds the nodes of a graph with the same dims, whose Inputs and Parameters are among those of
  // graph(). `equal` lists known equalities: a node of `other` and the class it belongs to. Nodes
  // that neither an output nor `equal` needs get an invalid class. Rebuilds the e-graph.
  // INVALID_ARGUMENT names an unknown Input, Parameter or dim.
  struct Imported {
    std::vector<egraph::ClassId> classes;  // by node of `other`
    uint64_t nodes = 0;                    // number of new nodes
    uint64_t unions = 0;                   // number of unions that changed something
    uint64_t refused = 0;                  // number of unions that the facts refused
  };
  using Equality = std::pair<NodeId, egraph::ClassId>;
  absl::StatusOr<Imported> Import(const Graph& other, absl::Span<const Equality> equal,
                                  egraph::Cause cause = egraph::Cause::kUser);

 private:
  explicit TermGraph(const Graph& graph);

  // Returns the classes of the `needed` nodes. An error names the node of `other`.
  absl::StatusOr<std::vector<egraph::ClassId>> AddNodes(const Graph& other,
                                                        const std::vector<bool>& needed,
                                                        egraph::Cause cause);
  absl::Status CheckImport(const Graph& other) const;

  const Graph graph_;
  TermLanguage language_;
  FactsAnalysis facts_;
  egraph::EGraph terms_;
  std::vector<egraph::ClassId> classes_;  // by node of graph_
};

// Returns classes with their types and facts, and nodes with their attributes, in Graphviz'
// language. Beyond `max_nodes` e-nodes, a comment says how many are left out.
std::string ToDot(const TermGraph& terms, size_t max_nodes = 500);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_RULES_TERMS_TERM_GRAPH_H_
