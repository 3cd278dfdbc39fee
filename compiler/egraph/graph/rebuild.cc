// Rebuild: restores congruence, the analysis' fixpoint and sorted lists, from queues of changes.
#include <algorithm>

#include "compiler/egraph/graph/analysis.h"
#include "compiler/egraph/graph/egraph.h"

namespace athanor::egraph {

void EGraph::Rebuild() {
  if (clean_) return;
  DrainQueues();
  for (const ClassId id : untidy_) Tidy(id);
  untidy_.clear();
  CompactChanges();
  ++epoch_;
  clean_ = true;
}

// Restores congruence before values, because a value is computed from canonical children. Modify
// comes last, when everything it may read is final; its additions go through the same queues.
void EGraph::DrainQueues() {
  size_t repaired = 0, updated = 0, modified = 0;
  for (;;) {
    if (repaired < repairs_.size()) {
      const Work<NodeId> work = repairs_[repaired++];
      Repair(work.item, work.cause);
    } else if (updated < updates_.size()) {
      const Work<NodeId> work = updates_[updated++];
      Update(work.item, work.cause);
    } else if (modified < modifies_.size()) {
      const ClassId id = modifies_[modified++];
      classes_[id.value].modify_queued = false;
      if (analysis_ && Find(id) == id) analysis_->Modify(this, id);
    } else {
      break;
    }
  }
  repairs_.clear();
  updates_.clear();
  modifies_.clear();
  KillNeedlessShadows();
}

// Re-inserts a node with changed children under its new hash. If an equal node is there already,
// the two are congruent: unites their classes and removes this node.
void EGraph::Repair(NodeId n, Cause cause) {
  Node& node = nodes_[n.value];
  node.repair_queued = 0;
  if (node.state == State::kDead) return;
  if (node.state == State::kLive) hash_cons_.Erase(node.hash, n);
  for (uint32_t i = 0; i < node.num_children; ++i) {
    ClassId& child = children_[node.first_child + i];
    child = sets_.FindAndCompress(child);
  }
  node.hash = Hash(node.op, node.payload, children(n));
  const NodeId twin = FindNode(node.hash, node.op, node.payload, children(n));
  if (!twin.valid()) {
    hash_cons_.Insert(node.hash, n);
    node.state = State::kLive;
    Touch(n);
  } else if (Unite(node.cls, nodes_[twin.value].cls, cause, Refusal::Kind::kCongruence).ok()) {
    Kill(n);
  } else {
    if (node.state != State::kShadow) shadows_.push_back(n);
    node.state = State::kShadow;
    Touch(n);
  }
}

void EGraph::Update(NodeId n, Cause cause) {
  nodes_[n.value].update_queued = 0;
  if (!analysis_ || !alive(n)) return;
  const ClassId id = class_of(n);
  const absl::StatusOr<bool> changed = analysis_->Update(*this, n, id);
  if (!changed.ok()) {
    Refuse(Refusal::Kind::kValue, cause, id, {}, changed.status()).IgnoreError();
  } else if (*changed) {
    ValueChanged(id, cause);
  }
}

void EGraph::ValueChanged(ClassId id, Cause cause) {
  for (const NodeId n : nodes(id)) TouchValue(n);
  for (const NodeId p : parents(id)) {
    TouchValue(p);
    QueueUpdate(p, cause);
  }
  QueueModify(id);
}

void EGraph::Kill(NodeId n) {
  Node& node = nodes_[n.value];
  node.state = State::kDead;
  --num_nodes_;
  --ops_[node.op.value].num_nodes;
  MarkUntidy(class_of(n));
  for (const ClassId child : children(n)) MarkUntidy(Find(child));
}

// A shadow whose class was united with its twin's after all is an ordinary duplicate. A shadow
// always has a twin in the hash-cons: their children are the same, so they are repaired together.
void EGraph::KillNeedlessShadows() {
  std::erase_if(shadows_, [this](NodeId n) {
    const Node& node = nodes_[n.value];
    if (node.state != State::kShadow) return true;
    const NodeId twin = FindNode(node.hash, node.op, node.payload, children(n));
    if (class_of(twin) != class_of(n)) return false;
    Kill(n);
    return true;
  });
}

void EGraph::QueueRepair(NodeId n, Cause cause) {
  if (nodes_[n.value].repair_queued) return;
  nodes_[n.value].repair_queued = 1;
  repairs_.push_back({n, cause});
}

void EGraph::QueueUpdate(NodeId n, Cause cause) {
  if (nodes_[n.value].update_queued) return;
  nodes_[n.value].update_queued = 1;
  updates_.push_back({n, cause});
}

void EGraph::QueueModify(ClassId id) {
  if (!analysis_ || classes_[id.value].modify_queued) return;
  classes_[id.value].modify_queued = true;
  modifies_.push_back(id);
}

void EGraph::Touch(NodeId n) {
  Node& node = nodes_[n.value];
  if (node.stamp == epoch_) return;
  node.stamp = epoch_;
  ops_[node.op.value].changes.push_back({n, epoch_});
}

void EGraph::TouchValue(NodeId n) {
  Node& node = nodes_[n.value];
  if (node.value_stamp == epoch_) return;
  node.value_stamp = epoch_;
  ops_[node.op.value].value_changes.push_back({n, epoch_});
}

void EGraph::MarkUntidy(ClassId id) {
  if (classes_[id.value].untidy) return;
  classes_[id.value].untidy = true;
  untidy_.push_back(id);
}

void EGraph::Tidy(ClassId id) {
  Class& cls = classes_[id.value];
  cls.untidy = false;
  if (Find(id) != id) return;
  const auto by_op = [this](NodeId a, NodeId b) {
    return std::pair(op(a), a) < std::pair(op(b), b);
  };
  for (ListPool<NodeId>::List* list : {&cls.nodes, &cls.parents}) {
    const absl::Span<NodeId> items = lists_.GetMutable(*list);
    const auto live_end =
        std::remove_if(items.begin(), items.end(), [this](NodeId n) { return !alive(n); });
    if (!std::is_sorted(items.begin(), live_end, by_op)) std::sort(items.begin(), live_end, by_op);
    const auto end = std::unique(items.begin(), live_end);
    lists_.Truncate(list, end - items.begin());
  }
}

// Drops entries that no longer count, once they are the majority.
void EGraph::CompactChanges() {
  constexpr size_t kSmall = 64;
  for (OpIndex& op : ops_) {
    if (op.changes.size() > 2 * op.num_nodes + kSmall) {
      std::erase_if(op.changes,
                    [this](const Change& c) { return !alive(c.node) || stamp(c.node) != c.stamp; });
    }
    if (op.value_changes.size() > 2 * op.num_nodes + kSmall) {
      std::erase_if(op.value_changes, [this](const Change& c) {
        return !alive(c.node) || value_stamp(c.node) != c.stamp;
      });
    }
  }
}

}  // namespace athanor::egraph
