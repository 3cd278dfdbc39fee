// An e-graph: terms and equalities between them, closed under congruence, in little memory.
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
// are hash-consed, classes united in a union-find, and congruence is restored in batches by
// Rebuild, as in egg (Willsey et al., POPL 2021). In between, Add and Union work as always, but
// lists are unsorted, `children` may name united classes by old ids, and matching must wait.
//
// Deterministic: the same calls give the same ids and lists, on any machine. Not thread-safe. Not
// copyable. References and spans are valid until the next call that is not const.
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

// A change that the analysis did not let through. The e-graph stays as it was without it.
struct Refusal {
  enum class Kind {
    kNode,        // Add: the analysis has no value for the node
    kUnion,       // Union: the values of two classes do not merge
    kCongruence,  // Rebuild: two nodes became the same, the values of their classes do not merge;
                  // both nodes stay. An earlier union was wrong.
    kValue,       // Rebuild: a node's new value does not merge into that of its class
  };
  Kind kind;
  Cause cause;  // who asked, or asked for the union that led to this
  ClassId a;
  ClassId b;  // of kUnion and kCongruence
  std::string message;
};

class EGraph {
 public:
  // Neither is owned; both outlive the e-graph. The analysis is this e-graph's alone.
  explicit EGraph(const Language* language, Analysis* analysis = nullptr);
  EGraph(const EGraph&) = delete;
  EGraph& operator=(const EGraph&) = delete;

  const Language& language() const { return *language_; }
  Analysis* analysis() const { return analysis_; }

  // --- Building ---

  // The class of the node, which is made where there is none. INVALID_ARGUMENT: the language has no
  // such node, or a child is no class; RESOURCE_EXHAUSTED: ids are used up; any error of
  // Analysis::Make, which is also kept as a refusal.
  absl::StatusOr<ClassId> Add(OpId op, PayloadId payload, absl::Span<const ClassId> children,
                              Cause cause = Cause::kUser);
  // Makes two classes one; false if they were. INVALID_ARGUMENT: one is no class;
  // FAILED_PRECONDITION: the analysis refused, and nothing changed.
  absl::StatusOr<bool> Union(ClassId a, ClassId b, Cause cause = Cause::kUser);
  // Restores congruence and the analysis' fixpoint, sorts the lists, ends the epoch.
  void Rebuild();
  // Nothing changed since Rebuild.
  bool clean() const { return clean_; }

  // --- Reading. Node ids and class ids are below these bounds. ---

  uint32_t node_bound() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t class_bound() const { return static_cast<uint32_t>(sets_.size()); }
  size_t num_nodes() const { return num_nodes_; }
  size_t num_classes() const { return num_classes_; }
  // Of nodes, classes, lists, indexes and the analysis.
  size_t Bytes() const;

  // The id that all ids of a class agree on; ids that name no class are returned as they are.
  ClassId Find(ClassId id) const { return sets_.Find(id); }
  bool IsClass(ClassId id) const { return id.value < sets_.size(); }
  // The class of this node; an invalid id if it is not in the e-graph. Sees through united
  // children. Between Union and Rebuild it may miss nodes.
  ClassId Lookup(OpId op, PayloadId payload, absl::Span<const ClassId> children) const;
  // The node itself. REQUIRES: the children are canonical.
  NodeId LookupNode(OpId op, PayloadId payload, absl::Span<const ClassId> children) const {
    return FindNode(Hash(op, payload, children), op, payload, children);
  }

  // The classes by their ids, in order.
  std::vector<ClassId> Classes() const;
  // Nodes of a class, and nodes with it among their children; without repetition and sorted by
  // (operator, id) after Rebuild.
  absl::Span<const NodeId> nodes(ClassId id) const {
    return lists_.Get(classes_[Find(id).value].nodes);
  }
  absl::Span<const NodeId> parents(ClassId id) const {
    return lists_.Get(classes_[Find(id).value].parents);
  }
  // Those of one operator. REQUIRES: clean().
  absl::Span<const NodeId> NodesOf(ClassId id, OpId op) const { return WithOp(nodes(id), op); }
  absl::Span<const NodeId> ParentsOf(ClassId id, OpId op) const { return WithOp(parents(id), op); }

  // False once a node became the same as another one, which stays in its place.
  bool alive(NodeId n) const { return nodes_[n.value].state != State::kDead; }
  OpId op(NodeId n) const { return nodes_[n.value].op; }
  PayloadId payload(NodeId n) const { return nodes_[n.value].payload; }
  ClassId class_of(NodeId n) const { return Find(nodes_[n.value].cls); }
  absl::Span<const ClassId> children(NodeId n) const {
    return {children_.data() + nodes_[n.value].first_child, nodes_[n.value].num_children};
  }
  // Who added the node first.
  Cause added_by(NodeId n) const { return nodes_[n.value].added_by; }
  // "(+ c3 c7)"
  std::string NodeText(NodeId n) const;

  // --- What changed when, for incremental matching (semi-naive evaluation). ---

  // Rebuilds so far. Changes since epoch e are those stamped later than e.
  uint32_t epoch() const { return epoch_ - 1; }
  // When the node came, or its class or a child became another one.
  uint32_t stamp(NodeId n) const { return nodes_[n.value].stamp; }
  // When the value of its class or of a child last changed otherwise.
  uint32_t value_stamp(NodeId n) const { return nodes_[n.value].value_stamp; }
  // Stamps of an operator's nodes, oldest first. An entry counts while its node is alive and still
  // has its stamp; the entries that count hold every node once (`changes`) or those whose value
  // changed (`value_changes`).
  struct Change {
    NodeId node;
    uint32_t stamp;
  };
  absl::Span<const Change> changes(OpId op) const { return ops_[op.value].changes; }
  absl::Span<const Change> value_changes(OpId op) const { return ops_[op.value].value_changes; }
  size_t NumNodesOf(OpId op) const { return ops_[op.value].num_nodes; }

  // --- Refusals ---

  // The first kMaxRefusals.
  static constexpr size_t kMaxRefusals = 64;
  const std::vector<Refusal>& refusals() const { return refusals_; }
  // All of them, by cause.
  uint64_t num_refused(Cause cause) const;

  // OK if every invariant holds, else INTERNAL with the first that does not. For tests: takes time
  // linear in the e-graph. REQUIRES: clean().
  absl::Status Verify() const;

 private:
  enum class State : uint32_t {
    kLive,    // in the hash-cons
    kShadow,  // the same as a live node of another class, and the analysis refused to unite them
    kDead,
  };
  struct Node {
    OpId op;
    PayloadId payload;
    ClassId cls;  // canonical when clean
    uint32_t first_child;
    uint32_t num_children : 24;
    State state : 2;
    uint32_t repair_queued : 1;
    uint32_t update_queued : 1;
    uint32_t hash;  // that it is in the hash-cons under
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
  std::vector<ClassId> children_;  // of all nodes
  UnionFind sets_;
  std::vector<Class> classes_;  // by ClassId; those that lost a union are empty
  ListPool<NodeId> lists_;
  HashCons hash_cons_;
  std::vector<OpIndex> ops_;
  size_t num_nodes_ = 0;
  size_t num_classes_ = 0;
  uint32_t epoch_ = 1;  // that changes are stamped with

  // Work for Rebuild, done first in first out.
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
