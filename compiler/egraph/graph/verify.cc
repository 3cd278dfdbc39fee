// Self-check of the e-graph: recomputes every invariant from the nodes alone.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/analysis.h"
#include "compiler/egraph/graph/egraph.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

absl::Status Broken(const std::string& what) { return absl::InternalError(what); }

}  // namespace

absl::Status EGraph::Verify() const {
  if (!clean_) return absl::FailedPreconditionError("Verify: the e-graph needs Rebuild first");
  size_t live = 0, in_table = 0;
  for (uint32_t i = 0; i < node_bound(); ++i) {
    if (!alive(NodeId{i})) continue;
    ++live;
    in_table += nodes_[i].state == State::kLive;
    RETURN_IF_ERROR(VerifyNode(NodeId{i}));
  }
  if (live != num_nodes_ || in_table != hash_cons_.size()) {
    return Broken(absl::StrCat(live, " nodes alive, ", in_table, " of them hash-consed; counted ",
                               num_nodes_, " and ", hash_cons_.size()));
  }
  if (Classes().size() != num_classes_) {
    return Broken(absl::StrCat(Classes().size(), " classes, counted ", num_classes_));
  }
  RETURN_IF_ERROR(VerifyLists());
  return VerifyChanges();
}

// Checks that a node is canonical, is found under its own content (so no other node of the
// hash-cons is equal), and that the value of its class includes its own.
absl::Status EGraph::VerifyNode(NodeId n) const {
  const Node& node = nodes_[n.value];
  const std::string where = absl::StrCat("node ", n.value, " ", NodeText(n), ": ");
  if (Find(node.cls) != node.cls) return Broken(where + "its class is not canonical");
  for (const ClassId child : children(n)) {
    if (Find(child) != child) return Broken(where + "a child is not canonical");
  }
  const uint32_t hash = Hash(node.op, node.payload, children(n));
  if (hash != node.hash) return Broken(where + "its hash is not that of its content");
  const NodeId found = FindNode(hash, node.op, node.payload, children(n));
  if (!found.valid()) return Broken(where + "it is not in the hash-cons");
  if (node.state == State::kLive && found != n) {
    return Broken(absl::StrCat(where, "congruent to node ", found.value, " in class ",
                               class_of(found).value));
  }
  if (node.state == State::kShadow && class_of(found) == node.cls) {
    return Broken(where + "shadow of a node of its own class");
  }
  if (!analysis_) return absl::OkStatus();
  const absl::Status fixpoint = analysis_->CheckFixpoint(*this, n, node.cls);
  // Values that do not merge are recorded as refusals; a value that would change is an error.
  if (fixpoint.code() == absl::StatusCode::kInternal || (!fixpoint.ok() && refusals_.empty())) {
    return Broken(where + std::string(fixpoint.message()));
  }
  return absl::OkStatus();
}

// Compares the lists of every class with newly computed lists.
absl::Status EGraph::VerifyLists() const {
  std::vector<std::vector<NodeId>> nodes(class_bound()), parents(class_bound());
  for (uint32_t i = 0; i < node_bound(); ++i) {
    const NodeId n{i};
    if (!alive(n)) continue;
    nodes[class_of(n).value].push_back(n);
    for (const ClassId child : children(n)) parents[child.value].push_back(n);
  }
  const auto by_op = [this](NodeId a, NodeId b) {
    return std::pair(op(a), a) < std::pair(op(b), b);
  };
  for (uint32_t i = 0; i < class_bound(); ++i) {
    for (auto* list : {&nodes[i], &parents[i]}) {
      std::sort(list->begin(), list->end(), by_op);
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    if (lists_.Get(classes_[i].nodes) != absl::MakeConstSpan(nodes[i])) {
      return Broken(absl::StrCat("class ", i, ": its list of nodes is wrong"));
    }
    if (lists_.Get(classes_[i].parents) != absl::MakeConstSpan(parents[i])) {
      return Broken(absl::StrCat("class ", i, ": its list of parents is wrong"));
    }
    if ((Find(ClassId{i}) == ClassId{i}) == nodes[i].empty()) {
      return Broken(
          absl::StrCat("class ", i, ": a class has nodes, an id that was united has none"));
    }
  }
  return absl::OkStatus();
}

// Checks that every live node counts exactly once in the changes of its operator, and that these
// are in order.
absl::Status EGraph::VerifyChanges() const {
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    const OpIndex& index = ops_[i];
    size_t counting = 0;
    for (const Change& c : index.changes) {
      counting += op(c.node) == OpId{i} && alive(c.node) && stamp(c.node) == c.stamp;
    }
    const auto earlier = [](const Change& a, const Change& b) { return a.stamp < b.stamp; };
    const bool sorted =
        std::is_sorted(index.changes.begin(), index.changes.end(), earlier) &&
        std::is_sorted(index.value_changes.begin(), index.value_changes.end(), earlier);
    size_t live = 0;
    for (const Node& node : nodes_) live += node.state != State::kDead && node.op == OpId{i};
    if (!sorted || counting != live || live != index.num_nodes) {
      return Broken(absl::StrCat("operator ", language_->name(OpId{i}), ": ", live,
                                 " nodes alive, counted ", index.num_nodes, ", ", counting,
                                 " in the changes", sorted ? "" : ", which are out of order"));
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor::egraph
