// Extraction: one node for every class that is needed, so that together they are a term.
//
//   Extractor extractor(graph, [&](NodeId n) { return costs[graph.op(n).value]; });
//   absl::StatusOr<Choice> choice = extractor.Extract({root});
//   Term term = *ChoiceTerm(graph, *choice, root);
//
// A Choice is the genome of the region search: it may be made, mixed and changed by anybody, and is
// a program if CheckChoice says so. EnforceAcyclic makes one of any.
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

// A node for each class, by canonical ClassId; invalid where there is none.
class Choice {
 public:
  Choice() = default;
  explicit Choice(const EGraph& graph) : nodes_(graph.class_bound()) {}

  NodeId Get(ClassId id) const { return id.value < nodes_.size() ? nodes_[id.value] : NodeId{}; }
  // REQUIRES: `id` is canonical in the e-graph this was made for.
  void Set(ClassId id, NodeId n) { nodes_[id.value] = n; }
  // Room for classes that the e-graph has got since.
  void Resize(const EGraph& graph) { nodes_.resize(graph.class_bound()); }
  bool operator==(const Choice&) const = default;

 private:
  std::vector<NodeId> nodes_;
};

// --- What a choice means. All REQUIRE graph.clean(). ---

// The classes needed for `roots`, children first. FAILED_PRECONDITION names the class without a
// node, or whose node is of another class or was merged away, or the classes of a cycle.
absl::StatusOr<std::vector<ClassId>> ChosenOrder(const EGraph& graph, const Choice& choice,
                                                 absl::Span<const ClassId> roots);
// OK where ChosenOrder is.
absl::Status CheckChoice(const EGraph& graph, const Choice& choice,
                         absl::Span<const ClassId> roots);
// As a DAG; errors are those of ChosenOrder.
absl::StatusOr<Term> ChoiceTerm(const EGraph& graph, const Choice& choice, ClassId root);
// Cost of all classes needed, each once. Errors are those of ChosenOrder.
using NodeCost = std::function<double(NodeId)>;
absl::StatusOr<double> ChoiceCost(const EGraph& graph, const Choice& choice,
                                  absl::Span<const ClassId> roots, const NodeCost& cost);

// --- Finding choices ---

// Greedy extraction. The best choice by DAG cost is NP-hard and hard to approximate, so this is the
// start of a search, not its end.
class Extractor {
 public:
  // Own costs of nodes, asked once each: not negative; infinite for what must not be chosen. Both
  // are borrowed. REQUIRES: graph.clean(), now and later.
  Extractor(const EGraph& graph, const NodeCost& cost);

  // Every class that is a term at all with the node of least tree cost: own costs summed over the
  // whole tree, what is shared counted each time. Knuth's generalisation of Dijkstra's algorithm
  // (1977): a class is settled once, through a node whose children are, so it is acyclic even
  // where costs are zero; ties go to the smaller node id.
  const Choice& tree() const { return tree_; }
  // Infinite where the class is no term.
  double TreeCost(ClassId id) const { return tree_costs_[graph_.Find(id).value]; }
  // The order in which tree() settled classes; children come before the nodes that chose them.
  // kNone for no term.
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t TreeRank(ClassId id) const { return ranks_[graph_.Find(id).value]; }

  double cost(NodeId n) const { return costs_[n.value]; }

  // Lowers the DAG cost of `roots`, every class once: from the roots down, each class in turn takes
  // the node that makes the whole cheapest, until no class wants to change or `max_passes` are
  // over. Classes that `choice` does not need follow tree(). Never gets dearer: started from the
  // input program, it is at least as good. Errors are those of ChosenOrder.
  absl::Status Refine(absl::Span<const ClassId> roots, Choice* choice, int max_passes = 10) const;

  // tree(), refined. NOT_FOUND names the root that is no term.
  absl::StatusOr<Choice> Extract(absl::Span<const ClassId> roots) const;

  // Makes any choice a program: classes without a usable node get that of tree(), and so does
  // one class of every cycle met. Returns how many were changed; NOT_FOUND
  // names a class that is needed and no term.
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
