// Rebuild: restores congruence, the analysis' fixpoint and sorted lists, from queues of changes.
#include <vector>

#include "compiler/egraph/graph/analysis.h"
#include "compiler/egraph/graph/egraph.h"

namespace athanor::egraph {

void EGraph::Rebuild() {
  if (clean_) return;
  DrainQueues();
  lists_.Tidy(nodes_, sets_);
  changes_.EndEpoch(nodes_);
  clean_ = true;
}

// Restores congruence before values, because a value is computed from canonical children. Modify
// comes last, when everything it may read is final; its additions go through the same queues.
void EGraph::DrainQueues() {
  size_t repaired = 0, updated = 0, modified = 0;
  for (;;) {
    if (repaired < repairs_.size()) {
      const Work work = repairs_[repaired++];
      Repair(work.node, work.cause);
    } else if (updated < updates_.size()) {
      const Work work = updates_[updated++];
      Update(work.node, work.cause);
    } else if (modified < modifies_.size()) {
      const ClassId id = modifies_[modified++];
      modify_queued_[id.value] = false;
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
  ENode& node = nodes_[n];
  node.repair_queued = 0;
  if (node.state == ENode::State::kDead) return;
  const NodeId twin = nodes_.Find(nodes_.Canonicalize(n, &sets_));
  if (!twin.valid()) {
    nodes_.Enter(n);
    changes_.Touch(n, &node);
  } else if (Unite(node.cls, nodes_[twin].cls, cause, Refusal::Kind::kCongruence).ok()) {
    Kill(n);
  } else {
    if (node.state != ENode::State::kShadow) shadows_.push_back(n);
    node.state = ENode::State::kShadow;
    changes_.Touch(n, &node);
  }
}

void EGraph::Update(NodeId n, Cause cause) {
  nodes_[n].update_queued = 0;
  if (!analysis_ || !alive(n)) return;
  const ClassId id = class_of(n);
  const absl::StatusOr<bool> changed = analysis_->Update(*this, n, id);
  if (!changed.ok()) {
    refusals_.Add(Refusal::Kind::kValue, cause, id, {}, changed.status()).IgnoreError();
  } else if (*changed) {
    ValueChanged(id, cause);
  }
}

void EGraph::ValueChanged(ClassId id, Cause cause) {
  for (const NodeId n : nodes(id)) changes_.TouchValue(n, &nodes_[n]);
  for (const NodeId p : parents(id)) {
    changes_.TouchValue(p, &nodes_[p]);
    QueueUpdate(p, cause);
  }
  QueueModify(id);
}

void EGraph::Kill(NodeId n) {
  nodes_[n].state = ENode::State::kDead;
  --num_nodes_;
  changes_.Remove(op(n));
  lists_.MarkUntidy(class_of(n));
  for (const ClassId child : children(n)) lists_.MarkUntidy(Find(child));
}

// A shadow whose class was united with its twin's after all is an ordinary duplicate. A shadow
// always has a twin in the hash-cons: their children are the same, so they are repaired together.
void EGraph::KillNeedlessShadows() {
  std::erase_if(shadows_, [this](NodeId n) {
    if (nodes_[n].state != ENode::State::kShadow) return true;
    const NodeId twin = nodes_.Find(nodes_.Content(n));
    if (class_of(twin) != class_of(n)) return false;
    Kill(n);
    return true;
  });
}

void EGraph::QueueRepair(NodeId n, Cause cause) {
  if (nodes_[n].repair_queued) return;
  nodes_[n].repair_queued = 1;
  repairs_.push_back({n, cause});
}

void EGraph::QueueUpdate(NodeId n, Cause cause) {
  if (nodes_[n].update_queued) return;
  nodes_[n].update_queued = 1;
  updates_.push_back({n, cause});
}

void EGraph::QueueModify(ClassId id) {
  if (!analysis_ || modify_queued_[id.value]) return;
  modify_queued_[id.value] = true;
  modifies_.push_back(id);
}

}  // namespace athanor::egraph
