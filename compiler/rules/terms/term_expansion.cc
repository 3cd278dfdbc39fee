#include "compiler/rules/terms/term_expansion.h"

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

Graph WithDims(const std::vector<Dim>& dims) {
  Graph graph;
  graph.dims = dims;
  return graph;
}

}  // namespace

TermExpansion::TermExpansion(const TermLanguage& language, const FactsAnalysis& facts,
                             egraph::Rewriter* rewriter)
    : language_(language),
      facts_(facts),
      rewriter_(*rewriter),
      graph_(WithDims(facts.dims())),
      x_(&graph_) {}

NodeId TermExpansion::Operand(egraph::ClassId id) {
  for (size_t n = 0; n < classes_.size(); ++n) {
    if (classes_[n] == id && graph_.nodes[n].op == Op::kInput) return static_cast<NodeId>(n);
  }
  const NodeId n = static_cast<NodeId>(graph_.nodes.size());
  graph_.nodes.push_back({Op::kInput, {}, {}, facts_.Type(rewriter_.graph(), id), ""});
  classes_.resize(graph_.nodes.size());
  classes_[n] = id;
  return n;
}

absl::StatusOr<egraph::ClassId> TermExpansion::ClassOf(NodeId n) {
  if (!x_.status().ok()) return x_.status();
  classes_.resize(graph_.nodes.size());
  // Walks with a stack of its own. A node waits below its operands until they have their classes.
  std::vector<NodeId> wanted = {n};
  std::vector<egraph::ClassId> children;
  while (!wanted.empty()) {
    const NodeId id = wanted.back();
    const Node& node = graph_.nodes[id];
    const size_t before = wanted.size();
    children.clear();
    for (const NodeId i : node.inputs) {
      if (!classes_[i].valid()) wanted.push_back(i);
      children.push_back(classes_[i]);
    }
    if (wanted.size() > before) continue;
    wanted.pop_back();
    if (classes_[id].valid()) continue;
    ASSIGN_OR_RETURN(classes_[id],
                     rewriter_.Add(ToOpId(node.op), language_.Intern(node), children));
  }
  return classes_[n];
}

absl::Status TermExpansion::Unite(NodeId n, egraph::ClassId id) {
  ASSIGN_OR_RETURN(const egraph::ClassId added, ClassOf(n));
  return rewriter_.Union(added, id);
}

}  // namespace athanor
