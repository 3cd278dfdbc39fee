// Extraction chooses one node for every needed class, so that together they form a term.
//
//   Extractor extractor(graph, [&](NodeId n) { return costs[graph.op(n).value]; });
//   absl::StatusOr<Choice> choice = extractor.Extract({root});
//   Term term = *ChoiceTerm(graph, *choice, root);
//
// A Choice is the genome of the region search. It may be made, mixed and changed freely, and is a
// program if CheckChoice says so. EnforceAcyclic turns any choice into a program.
#ifndef ATHANOR_COMPILER_EGRAPH_EXTRACT_EXTRACT_H_
#define ATHANOR_COMPILER_EGRAPH_EXTRACT_EXTRACT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/term.h"

namespace athanor::egraph {

// A node for each class, by canonical ClassId; invalid if there is none.
class Choice {
 public:
  Choice() = default;
  explicit Choice(const EGraph& graph) : nodes_(graph.class_bound()) {}

  NodeId Get(ClassId id) const { return id.value < nodes_.size() ? nodes_[id.value] : NodeId{}; }
  // REQUIRES: `id` is canonical in the e-graph for which this was made.
  void Set(ClassId id, NodeId n) { nodes_[id.value] = n; }
  // Makes room for classes that were added to the e-graph since.
  void Resize(const EGraph& graph) { nodes_.resize(graph.class_bound()); }
  bool operator==(const Choice&) const = default;

 private:
  std::vector<NodeId> nodes_;
};

// --- Meaning of a choice. All REQUIRE graph.clean(). ---

// Returns the classes needed for `roots`, children first. FAILED_PRECONDITION names a class without
// a node, a class whose node belongs to another class or was merged away, or the classes of a
// cycle.
absl::StatusOr<std::vector<ClassId>> ChosenOrder(const EGraph& graph, const Choice& choice,
                                                 absl::Span<const ClassId> roots);
// Returns OK if ChosenOrder does.
absl::Status CheckChoice(const EGraph& graph, const Choice& choice,
                         absl::Span<const ClassId> roots);
// Returns the term as a DAG; errors are those of ChosenOrder.
absl::StatusOr<Term> ChoiceTerm(const EGraph& graph, const Choice& choice, ClassId root);
// Returns the cost of all needed classes, each counted once. Errors are those of ChosenOrder.
using NodeCost = std::function<double(NodeId)>;
absl::StatusOr<double> ChoiceCost(const EGraph& graph, const Choice& choice,
                                  absl::Span<const ClassId> roots, const NodeCost& cost);

// --- Finding choices ---

// Greedy extraction. Finding the best choice by DAG cost is NP-hard and hard to approximate, so
// this is the start of a search, not its end.
class Extractor {
 public:
  // `cost` returns a node's own cost and is called once per node: not negative; infinite for a node
  // that must not be chosen. Borrows both. REQUIRES: graph.clean(), now and later.
  Extractor(const EGraph& graph, const NodeCost& cost);

  // The choice of least tree cost for every class that represents a term. Tree cost is the sum of
  // own costs over the whole tree, with shared parts counted each time. Uses Knuth's generalisation
  // of Dijkstra's algorithm (1977): a class is settled once, through a node whose children are
  // settled, so the choice is acyclic even with costs of zero. Ties go to the smaller node id.
  const Choice& tree() const { return tree_; }
  // Returns infinity if the class represents no term.
  double TreeCost(ClassId id) const { return tree_costs_[graph_.Find(id).value]; }
  // Position in the order in which tree() settled classes; children come before the nodes that
  // chose them. kNone if the class represents no term.
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t TreeRank(ClassId id) const { return ranks_[graph_.Find(id).value]; }

  double cost(NodeId n) const { return costs_[n.value]; }

  // Lowers the DAG cost of `roots`, which counts every class once. Goes from the roots down and
  // gives each class the node that makes the whole cheapest, until no class changes or after
  // `max_passes`. Classes that `choice` does not need follow tree(). The cost never rises, so
  // starting from the input program gives a result at least as good. Errors are those of
  // ChosenOrder.
  absl::Status Refine(absl::Span<const ClassId> roots, Choice* choice, int max_passes = 10) const;

  // Returns tree(), refined. NOT_FOUND names a root that represents no term.
  absl::StatusOr<Choice> Extract(absl::Span<const ClassId> roots) const;

  // Makes any choice a program: classes without a usable node get that of tree(), and so does one
  // class of every cycle. Returns the number of changed classes. NOT_FOUND names a needed class
  // that represents no term.
  absl::StatusOr<int> EnforceAcyclic(absl::Span<const ClassId> roots, Choice* choice) const;

 private:
  void Settle();

  const EGraph& graph_;
  std::vector<double> costs_;  // by NodeId
  Choice tree_;
  std::vector<double> tree_costs_;  // by ClassId
  std::vector<uint32_t> ranks_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_EXTRACT_EXTRACT_H_
