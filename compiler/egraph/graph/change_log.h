// Time of changes, for incremental matching (semi-naive evaluation): each node is stamped with the
// epoch of its last change, and each operator lists its stamps, oldest first.
//
//   log.Touch(n, &nodes[n]);
//   log.EndEpoch(nodes);
//   for (const ChangeLog::Change& c : log.changes(op)) ...   // some may no longer count
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_CHANGE_LOG_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_CHANGE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/node_table.h"

namespace athanor::egraph {

class ChangeLog {
 public:
  // An entry counts while its node is alive and still has that stamp.
  struct Change {
    NodeId node;
    uint32_t stamp;
  };

  explicit ChangeLog(size_t num_ops) : ops_(num_ops) {}

  // Returns the number of epochs that ended. Changes since epoch e have later stamps than e.
  uint32_t epoch() const { return epoch_ - 1; }
  // Return entries; those that count contain every node of the operator once, or every node whose
  // value changed.
  absl::Span<const Change> changes(OpId op) const { return ops_[op.value].changes; }
  absl::Span<const Change> value_changes(OpId op) const { return ops_[op.value].value_changes; }
  // Returns the number of nodes that are alive.
  size_t num_nodes(OpId op) const { return ops_[op.value].num_nodes; }
  size_t Bytes() const;

  // Count a node as alive or dead.
  void Add(OpId op) { ++ops_[op.value].num_nodes; }
  void Remove(OpId op) { --ops_[op.value].num_nodes; }
  // Stamp a node with the current epoch.
  void Touch(NodeId n, ENode* node) {
    if (node->stamp == epoch_) return;
    node->stamp = epoch_;
    ops_[node->op.value].changes.push_back({n, epoch_});
  }
  void TouchValue(NodeId n, ENode* node) {
    if (node->value_stamp == epoch_) return;
    node->value_stamp = epoch_;
    ops_[node->op.value].value_changes.push_back({n, epoch_});
  }
  // Ends the epoch. Drops entries that no longer count, once they are the majority.
  void EndEpoch(const NodeTable& nodes);

  // Checks that every live node counts exactly once in the changes of its operator, and that these
  // are in order.
  absl::Status Verify(const NodeTable& nodes, const Language& language) const;

 private:
  struct OpIndex {
    std::vector<Change> changes;
    std::vector<Change> value_changes;
    size_t num_nodes = 0;
  };

  std::vector<OpIndex> ops_;
  uint32_t epoch_ = 1;  // stamp of current changes
};

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_CHANGE_LOG_H_
