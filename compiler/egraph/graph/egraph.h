// An e-graph: a compact set of terms and equalities between them, closed under congruence.
//
//   EGraph graph(&language);
//   ClassId x = *graph.Add(kSym, x_payload, {});
//   ClassId two = *graph.Add(kNum, two_payload, {});
//   ClassId sum = *graph.Add(kAdd, {}, {x, x});
//   ClassId product = *graph.Add(kMul, {}, {x, two});
//   graph.Union(sum, product);   // in constant time but for the smaller class
//   graph.Rebuild();             // parents of the two that are now equal become one
//   graph.Find(sum) == graph.Find(product);
//
// An e-node is an operator, a payload and child classes; an e-class is a set of equal nodes. Nodes
// are hash-consed, classes are united in a union-find, and Rebuild restores congruence in batches,
// as in egg (Willsey et al., POPL 2021). Before Rebuild, Add and Union work as always, but lists
// are unsorted, `children` may use old ids of united classes, and matching must wait.
//
// Deterministic: the same calls give the same ids and lists on any machine. Not thread-safe. Not
// copyable. References and spans are valid until the next non-const call.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_EGRAPH_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_EGRAPH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/change_log.h"
#include "compiler/egraph/graph/class_lists.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/node_table.h"
#include "compiler/egraph/graph/refusal.h"
#include "compiler/egraph/graph/union_find.h"

namespace athanor::egraph {

class Analysis;

class EGraph {
 public:
  // Borrows both, which must outlive the e-graph. The analysis serves only this e-graph.
  explicit EGraph(const Language* language, Analysis* analysis = nullptr);
  EGraph(const EGraph&) = delete;
  EGraph& operator=(const EGraph&) = delete;

  const Language& language() const { return *language_; }
  Analysis* analysis() const { return analysis_; }

  // --- Building ---

  // Returns the class of the node, which is added if it is new. INVALID_ARGUMENT: the language has
  // no such node, or a child is no class. RESOURCE_EXHAUSTED: no ids are left. Other errors come
  // from Analysis::Make and are also kept as a refusal.
  absl::StatusOr<ClassId> Add(OpId op, PayloadId payload, absl::Span<const ClassId> children,
                              Cause cause = Cause::kUser);
  // Unites two classes; false if they are one already. INVALID_ARGUMENT: one is no class.
  // FAILED_PRECONDITION: the analysis refused, and nothing changed.
  absl::StatusOr<bool> Union(ClassId a, ClassId b, Cause cause = Cause::kUser);
  // Restores congruence and the analysis' fixpoint, sorts the lists and ends the epoch.
  void Rebuild();
  // Reports whether nothing has changed since Rebuild.
  bool clean() const { return clean_; }

  // --- Reading. Node ids and class ids are below these bounds. ---

  uint32_t node_bound() const { return nodes_.size(); }
  uint32_t class_bound() const { return static_cast<uint32_t>(sets_.size()); }
  size_t num_nodes() const { return num_nodes_; }
  size_t num_classes() const { return num_classes_; }
  // Returns the bytes of nodes, classes, lists, indexes and the analysis.
  size_t Bytes() const;

  // Returns the canonical id of a class; an id that names no class is returned unchanged.
  ClassId Find(ClassId id) const { return sets_.Find(id); }
  bool IsClass(ClassId id) const { return id.value < sets_.size(); }
  // Returns the class of this node; an invalid id if it is not in the e-graph. Accepts any ids of
  // the children. Between Union and Rebuild it may miss nodes.
  ClassId Lookup(OpId op, PayloadId payload, absl::Span<const ClassId> children) const;
  // Returns the node itself. REQUIRES: the children are canonical.
  NodeId LookupNode(OpId op, PayloadId payload, absl::Span<const ClassId> children) const {
    return nodes_.Find({op, payload, children});
  }

  // Returns the classes in order of their ids.
  std::vector<ClassId> Classes() const;
  // Return the nodes of a class, and the nodes that have it as a child. After Rebuild they are
  // without repetition and sorted by (operator, id).
  absl::Span<const NodeId> nodes(ClassId id) const { return lists_.nodes(Find(id)); }
  absl::Span<const NodeId> parents(ClassId id) const { return lists_.parents(Find(id)); }
  // Return the nodes of one operator. REQUIRES: clean().
  absl::Span<const NodeId> NodesOf(ClassId id, OpId op) const {
    return ClassLists::WithOp(nodes(id), op, nodes_);
  }
  absl::Span<const NodeId> ParentsOf(ClassId id, OpId op) const {
    return ClassLists::WithOp(parents(id), op, nodes_);
  }

  // False once the node became equal to another one, which replaces it.
  bool alive(NodeId n) const { return nodes_[n].state != ENode::State::kDead; }
  OpId op(NodeId n) const { return nodes_[n].op; }
  PayloadId payload(NodeId n) const { return nodes_[n].payload; }
  ClassId class_of(NodeId n) const { return Find(nodes_[n].cls); }
  absl::Span<const ClassId> children(NodeId n) const { return nodes_.children(n); }
  // Returns who first added the node.
  Cause added_by(NodeId n) const { return nodes_[n].added_by; }
  // Returns text such as "(+ c3 c7)".
  std::string NodeText(NodeId n) const;

  // --- Time of changes, for incremental matching (semi-naive evaluation): see ChangeLog. ---

  using Change = ChangeLog::Change;
  // Returns the number of rebuilds. Changes since epoch e have later stamps than e.
  uint32_t epoch() const { return changes_.epoch(); }
  // Returns the epoch in which the node was added, or its class or a child was united into another.
  uint32_t stamp(NodeId n) const { return nodes_[n].stamp; }
  // Returns the epoch in which the value of its class or of a child last changed for another
  // reason.
  uint32_t value_stamp(NodeId n) const { return nodes_[n].value_stamp; }
  absl::Span<const Change> changes(OpId op) const { return changes_.changes(op); }
  absl::Span<const Change> value_changes(OpId op) const { return changes_.value_changes(op); }
  size_t NumNodesOf(OpId op) const { return changes_.num_nodes(op); }

  // --- Refusals ---

  // Returns the first Refusals::kMost.
  const std::vector<Refusal>& refusals() const { return refusals_.first(); }
  // Returns the number of all refusals with this cause.
  uint64_t num_refused(Cause cause) const { return refusals_.Count(cause); }

  // Returns OK if every invariant holds, else INTERNAL with the first that does not. For tests:
  // takes time linear in the e-graph. REQUIRES: clean().
  absl::Status Verify() const;

 private:
  struct Work {
    NodeId node;
    Cause cause;
  };

  // egraph.cc
  absl::Status CheckNode(OpId op, absl::Span<const ClassId> children) const;
  void CommitNode(NodeId n, ClassId cls);
  absl::StatusOr<bool> Unite(ClassId a, ClassId b, Cause cause, Refusal::Kind kind);
  void MoveClass(ClassId winner, ClassId loser, Cause cause);

  // rebuild.cc
  void QueueRepair(NodeId n, Cause cause);
  void QueueUpdate(NodeId n, Cause cause);
  void QueueModify(ClassId id);
  void ValueChanged(ClassId id, Cause cause);
  void DrainQueues();
  void Repair(NodeId n, Cause cause);
  void Update(NodeId n, Cause cause);
  void Kill(NodeId n);
  void KillNeedlessShadows();

  // verify.cc
  absl::Status VerifyNode(NodeId n) const;

  const Language* language_;
  Analysis* analysis_;

  NodeTable nodes_;
  UnionFind sets_;
  ClassLists lists_;
  ChangeLog changes_;
  Refusals refusals_;
  size_t num_nodes_ = 0;
  size_t num_classes_ = 0;

  // Work queues of Rebuild, first in, first out.
  bool clean_ = true;
  std::vector<Work> repairs_;  // children changed: may be congruent to another node now
  std::vector<Work> updates_;  // values of children changed
  std::vector<ClassId> modifies_;
  std::vector<bool> modify_queued_;  // by ClassId
  std::vector<NodeId> shadows_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_EGRAPH_H_
