// Self-check of the e-graph: recomputes every invariant from the nodes alone. The tables that it is
// made of check themselves.
#include <string>

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
    in_table += nodes_[NodeId{i}].state == ENode::State::kLive;
    RETURN_IF_ERROR(VerifyNode(NodeId{i}));
  }
  if (live != num_nodes_ || in_table != nodes_.num_live()) {
    return Broken(absl::StrCat(live, " nodes alive, ", in_table, " of them hash-consed; counted ",
                               num_nodes_, " and ", nodes_.num_live()));
  }
  if (Classes().size() != num_classes_) {
    return Broken(absl::StrCat(Classes().size(), " classes, counted ", num_classes_));
  }
  RETURN_IF_ERROR(lists_.Verify(nodes_, sets_));
  return changes_.Verify(nodes_, *language_);
}

// Checks that a node is canonical, is found under its own content (so no other node of the
// hash-cons is equal), and that the value of its class includes its own.
absl::Status EGraph::VerifyNode(NodeId n) const {
  const ENode& node = nodes_[n];
  const std::string where = absl::StrCat("node ", n.value, " ", NodeText(n), ": ");
  if (Find(node.cls) != node.cls) return Broken(where + "its class is not canonical");
  for (const ClassId child : children(n)) {
    if (Find(child) != child) return Broken(where + "a child is not canonical");
  }
  const NodeContent content = nodes_.Content(n);
  if (content.hash != node.hash) return Broken(where + "its hash is not that of its content");
  const NodeId found = nodes_.Find(content);
  if (!found.valid()) return Broken(where + "it is not in the hash-cons");
  if (node.state == ENode::State::kLive && found != n) {
    return Broken(absl::StrCat(where, "congruent to node ", found.value, " in class ",
                               class_of(found).value));
  }
  if (node.state == ENode::State::kShadow && class_of(found) == node.cls) {
    return Broken(where + "shadow of a node of its own class");
  }
  if (!analysis_) return absl::OkStatus();
  const absl::Status fixpoint = analysis_->CheckFixpoint(*this, n, node.cls);
  // Values that do not merge are recorded as refusals; a value that would change is an error.
  if (fixpoint.code() == absl::StatusCode::kInternal ||
      (!fixpoint.ok() && refusals_.first().empty())) {
    return Broken(where + std::string(fixpoint.message()));
  }
  return absl::OkStatus();
}

}  // namespace athanor::egraph
