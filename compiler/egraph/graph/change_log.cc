#include "compiler/egraph/graph/change_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace athanor::egraph {

size_t ChangeLog::Bytes() const {
  size_t bytes = 0;
  for (const OpIndex& op : ops_) {
    bytes += (op.changes.capacity() + op.value_changes.capacity()) * sizeof(Change);
  }
  return bytes;
}

void ChangeLog::EndEpoch(const NodeTable& nodes) {
  constexpr size_t kSmall = 64;
  const auto compact = [&](std::vector<Change>* changes, size_t num_nodes, auto stamp) {
    if (changes->size() <= 2 * num_nodes + kSmall) return;
    std::erase_if(*changes, [&](const Change& c) {
      const ENode& node = nodes[c.node];
      return node.state == ENode::State::kDead || node.*stamp != c.stamp;
    });
  };
  for (OpIndex& op : ops_) {
    compact(&op.changes, op.num_nodes, &ENode::stamp);
    compact(&op.value_changes, op.num_nodes, &ENode::value_stamp);
  }
  ++epoch_;
}

absl::Status ChangeLog::Verify(const NodeTable& nodes, const Language& language) const {
  std::vector<size_t> live(ops_.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const ENode& node = nodes[NodeId{i}];
    live[node.op.value] += node.state != ENode::State::kDead;
  }
  const auto earlier = [](const Change& a, const Change& b) { return a.stamp < b.stamp; };
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    const OpIndex& index = ops_[i];
    size_t counting = 0;
    for (const Change& c : index.changes) {
      const ENode& node = nodes[c.node];
      counting += node.op == OpId{i} && node.state != ENode::State::kDead && node.stamp == c.stamp;
    }
    const bool sorted =
        std::is_sorted(index.changes.begin(), index.changes.end(), earlier) &&
        std::is_sorted(index.value_changes.begin(), index.value_changes.end(), earlier);
    if (!sorted || counting != live[i] || live[i] != index.num_nodes) {
      return absl::InternalError(absl::StrCat("operator ", language.name(OpId{i}), ": ", live[i],
                                              " nodes alive, counted ", index.num_nodes, ", ",
                                              counting, " in the changes",
                                              sorted ? "" : ", which are out of order"));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor::egraph
