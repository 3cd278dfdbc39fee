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
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/hash_cons.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/list_pool.h"
#include "compiler/egraph/graph/union_find.h"

namespace athanor::egraph {

class Analysis;

// A change that the analysis refused. The e-graph stays as it was.
struct Refusal {
  enum class Kind {
    kNode,        // Add: the analysis has no value for the node
    kUnion,       // Union: the values of two classes do not merge
    kCongruence,  // Rebuild: two nodes became equal, but the values of their classes do not merge;
                  // both nodes stay. An earlier union was wrong.
    kValue,       // Rebuild: a node's new value does not merge into its class's value
  };
  Kind kind;
  Cause cause;  // origin of the change, or of the union that led to it
  ClassId a;
  ClassId b;  // for kUnion and kCongruence
  std::string message;
};

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

  uint32_t node_bound() const { return static_cast<uint32_t>(nodes_.size()); }
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
    return FindNode(Hash(op, payload, children), op, payload, children);
  }

  // Returns the classes in order of their ids.
  std::vector<ClassId> Classes() const;
  // Return the nodes of a class, and the nodes that have it as a child. After Rebuild they are
  // without repetition and sorted by (operator, id).
  absl::Span<const NodeId> nodes(ClassId id) const {
    return lists_.Get(classes_[Find(id).value].nodes);
  }
  absl::Span<const NodeId> parents(ClassId id) const {
    return lists_.Get(classes_[Find(id).value].parents);
  }
  // Return the nodes of one operator. REQUIRES: clean().
  absl::Span<const NodeId> NodesOf(ClassId id, OpId op) const { return WithOp(nodes(id), op); }
  absl::Span<const NodeId> ParentsOf(ClassId id, OpId op) const { return WithOp(parents(id), op); }

  // False once the node became equal to another one, which replaces it.
  bool alive(NodeId n) const { return nodes_[n.value].state != State::kDead; }
  OpId op(NodeId n) const { return nodes_[n.value].op; }
  PayloadId payload(NodeId n) const { return nodes_[n.value].payload; }
  ClassId class_of(NodeId n) const { return Find(nodes_[n.value].cls); }
  absl::Span<const ClassId> children(NodeId n) const {
    return {children_.data() + nodes_[n.value].first_child, nodes_[n.value].num_children};
  }
  // Returns who first added the node.
  Cause added_by(NodeId n) const { return nodes_[n.value].added_by; }
  // Returns text such as "(+ c3 c7)".
  std::string NodeText(NodeId n) const;

  // --- Time of changes, for incremental matching (semi-naive evaluation) ---

  // Returns the number of rebuilds. Changes since epoch e have later stamps than e.
  uint32_t epoch() const { return epoch_ - 1; }
  // Returns the epoch in which the node was added, or its class or a child was united into another.
  uint32_t stamp(NodeId n) const { return nodes_[n.value].stamp; }
  // Returns the epoch in which the value of its class or of a child last changed for another
  // reason.
  uint32_t value_stamp(NodeId n) const { return nodes_[n.value].value_stamp; }
  // Stamps of an operator's nodes, oldest first. An entry counts while its node is alive and still
  // has that stamp. The entries that count contain every node once (`changes`), or every node whose
  // value changed (`value_changes`).
  struct Change {
    NodeId node;
    uint32_t stamp;
  };
  absl::Span<const Change> changes(OpId op) const { return ops_[op.value].changes; }
  absl::Span<const Change> value_changes(OpId op) const { return ops_[op.value].value_changes; }
  size_t NumNodesOf(OpId op) const { return ops_[op.value].num_nodes; }

  // --- Refusals ---

  // Returns the first kMaxRefusals.
  static constexpr size_t kMaxRefusals = 64;
  const std::vector<Refusal>& refusals() const { return refusals_; }
  // Returns the number of all refusals with this cause.
  uint64_t num_refused(Cause cause) const;

  // Returns OK if every invariant holds, else INTERNAL with the first that does not. For tests:
  // takes time linear in the e-graph. REQUIRES: clean().
  absl::Status Verify() const;

 private:
  enum class State : uint32_t {
    kLive,    // stored in the hash-cons
    kShadow,  // equal to a live node of another class with which the analysis refused to unite it
    kDead,
  };
  struct Node {
    OpId op;
    PayloadId payload;
    ClassId cls;  // id of its class; canonical when clean
    uint32_t first_child;
    uint32_t num_children : 24;
    State state : 2;
    uint32_t repair_queued : 1;
    uint32_t update_queued : 1;
    uint32_t hash;  // hash under which it is in the hash-cons
    Cause added_by;
    uint32_t stamp;
    uint32_t value_stamp;
  };
  struct Class {
    ListPool<NodeId>::List nodes;
    ListPool<NodeId>::List parents;
    bool untidy = false;
    bool modify_queued = false;
  };
  struct OpIndex {
    std::vector<Change> changes;
    std::vector<Change> value_changes;
    size_t num_nodes = 0;
  };
  template <typename T>
  struct Work {
    T item;
    Cause cause;
  };

  // egraph.cc
  absl::Status CheckNode(OpId op, absl::Span<const ClassId> children) const;
  static uint32_t Hash(OpId op, PayloadId payload, absl::Span<const ClassId> children);
  NodeId FindNode(uint32_t hash, OpId op, PayloadId payload,
                  absl::Span<const ClassId> children) const;
  NodeId PushNode(OpId op, PayloadId payload, absl::Span<const ClassId> children, uint32_t hash,
                  Cause cause);
  void CommitNode(NodeId n, ClassId cls);
  absl::Status Refuse(Refusal::Kind kind, Cause cause, ClassId a, ClassId b,
                      const absl::Status& why);
  absl::StatusOr<bool> Unite(ClassId a, ClassId b, Cause cause, Refusal::Kind kind);
  void MoveClass(ClassId winner, ClassId loser, Cause cause);
  absl::Span<const NodeId> WithOp(absl::Span<const NodeId> sorted, OpId op) const;

  // rebuild.cc
  void QueueRepair(NodeId n, Cause cause);
  void QueueUpdate(NodeId n, Cause cause);
  void QueueModify(ClassId id);
  void ValueChanged(ClassId id, Cause cause);
  void Touch(NodeId n);
  void TouchValue(NodeId n);
  void MarkUntidy(ClassId id);
  void DrainQueues();
  void Repair(NodeId n, Cause cause);
  void Update(NodeId n, Cause cause);
  void Kill(NodeId n);
  void KillNeedlessShadows();
  void Tidy(ClassId id);
  void CompactChanges();

  // verify.cc
  absl::Status VerifyNode(NodeId n) const;
  absl::Status VerifyLists() const;
  absl::Status VerifyChanges() const;

  const Language* language_;
  Analysis* analysis_;

  std::vector<Node> nodes_;
  std::vector<ClassId> children_;  // children of all nodes, one after another
  UnionFind sets_;
  std::vector<Class> classes_;  // by ClassId; classes that were united into another are empty
  ListPool<NodeId> lists_;
  HashCons hash_cons_;
  std::vector<OpIndex> ops_;
  size_t num_nodes_ = 0;
  size_t num_classes_ = 0;
  uint32_t epoch_ = 1;  // stamp of current changes

  // Work queues of Rebuild, first in, first out.
  bool clean_ = true;
  std::vector<Work<NodeId>> repairs_;  // children changed: may be congruent to another node now
  std::vector<Work<NodeId>> updates_;  // values of children changed
  std::vector<ClassId> modifies_;
  std::vector<ClassId> untidy_;
  std::vector<NodeId> shadows_;

  std::vector<Refusal> refusals_;
  std::map<Cause, uint64_t> num_refused_;
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_EGRAPH_H_
