#include "compiler/rules/terms/term_graph.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/egraph/graph/dot.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Marks all nodes that the marked nodes depend on.
void MarkOperands(const Graph& graph, std::vector<bool>* needed) {
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    if (!(*needed)[n]) continue;
    for (const NodeId i : graph.nodes[n].inputs) (*needed)[i] = true;
  }
}

std::vector<bool> NeededByOutputs(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  for (const Output& o : graph.outputs) needed[o.node] = true;
  for (NodeId update : graph.updates) needed[update] = true;
  MarkOperands(graph, &needed);
  return needed;
}

}  // namespace

TermGraph::TermGraph(const Graph& graph)
    : graph_(graph), facts_(&language_, graph.dims), terms_(&language_.operators(), &facts_) {}

absl::StatusOr<std::unique_ptr<TermGraph>> TermGraph::Create(const Graph& graph) {
  std::unique_ptr<TermGraph> result(new TermGraph(graph));
  ASSIGN_OR_RETURN(result->classes_,
                   result->AddNodes(graph, NeededByOutputs(graph), egraph::Cause::kUser));
  result->terms_.Rebuild();
  return result;
}

absl::StatusOr<std::vector<egraph::ClassId>> TermGraph::AddNodes(const Graph& other,
                                                                 const std::vector<bool>& needed,
                                                                 egraph::Cause cause) {
  std::vector<egraph::ClassId> classes(other.nodes.size()), children;
  for (size_t n = 0; n < other.nodes.size(); ++n) {
    if (!needed[n]) continue;
    const Node& node = other.nodes[n];
    children.clear();
    for (const NodeId i : node.inputs) children.push_back(classes[i]);
    const absl::StatusOr<egraph::ClassId> id =
        terms_.Add(ToOpId(node.op), language_.Intern(node), children, cause);
    if (!id.ok()) {
      return Prefixed(Cat(other.Describe(static_cast<NodeId>(n)), ": "), id.status());
    }
    classes[n] = *id;
  }
  return classes;
}

egraph::ClassId TermGraph::ClassOf(NodeId n) const {
  return classes_[n].valid() ? terms_.Find(classes_[n]) : egraph::ClassId{};
}

std::vector<egraph::ClassId> TermGraph::Roots() const {
  std::vector<egraph::ClassId> roots;
  for (const Output& o : graph_.outputs) roots.push_back(ClassOf(o.node));
  for (NodeId update : graph_.updates) roots.push_back(ClassOf(update));
  return roots;
}

egraph::Choice TermGraph::Original() const {
  egraph::Choice choice(terms_);
  std::vector<egraph::ClassId> children;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const egraph::ClassId id = ClassOf(static_cast<NodeId>(n));
    // For the first node of a class, the operands' nodes come before it, so there is no cycle.
    if (!id.valid() || choice.Get(id).valid()) continue;
    const Node& node = graph_.nodes[n];
    children.clear();
    for (const NodeId i : node.inputs) children.push_back(ClassOf(i));
    const egraph::PayloadId payload = language_.Intern(node);
    for (const egraph::NodeId e : terms_.NodesOf(id, ToOpId(node.op))) {
      if (terms_.payload(e) == payload && terms_.children(e) == absl::MakeConstSpan(children)) {
        choice.Set(id, e);
        break;
      }
    }
  }
  return choice;
}

absl::StatusOr<TermGraph::Extracted> TermGraph::ExtractWithClasses(
    const egraph::Choice& choice) const {
  const std::vector<egraph::ClassId> roots = Roots();
  ASSIGN_OR_RETURN(const std::vector<egraph::ClassId> order,
                   egraph::ChosenOrder(terms_, choice, roots));
  Extracted result;
  Graph& graph = result.graph;
  graph.name = graph_.name;
  graph.dims = graph_.dims;
  std::vector<NodeId> at(terms_.class_bound(), -1);
  // Arguments come first and are all kept, used or not: they are the graph's interface.
  const std::vector<NodeId> declared = graph_.ArgumentIds();
  for (const NodeId n : declared) {
    result.classes.push_back(ClassOf(n));
    graph.nodes.push_back(graph_.nodes[n]);
  }
  absl::flat_hash_map<std::string, NodeId> by_name;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    by_name[graph.nodes[n].name] = static_cast<NodeId>(n);
  }
  for (const egraph::ClassId id : order) {
    const egraph::NodeId chosen = choice.Get(id);
    const Op op = ToOp(terms_.op(chosen));
    if (IsDeclared(op)) {
      at[id.value] = by_name.at(language_.declaration(terms_.payload(chosen)).name);
      continue;
    }
    Node node{op, {}, language_.attrs(terms_.payload(chosen)), facts_.Type(terms_, id), ""};
    for (const egraph::ClassId child : terms_.children(chosen)) {
      node.inputs.push_back(at[terms_.Find(child).value]);
    }
    at[id.value] = static_cast<NodeId>(graph.nodes.size());
    graph.nodes.push_back(std::move(node));
    result.classes.push_back(id);
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    const NodeId root = at[roots[i].value];
    if (i < graph_.outputs.size()) {
      graph.outputs.push_back({graph_.outputs[i].name, root});
    } else {
      graph.updates.push_back(root);
    }
  }
  return result;
}

absl::StatusOr<Graph> TermGraph::Extract(const egraph::Choice& choice) const {
  ASSIGN_OR_RETURN(Extracted result, ExtractWithClasses(choice));
  return std::move(result.graph);
}

absl::Status TermGraph::CheckImport(const Graph& other) const {
  if (other.dims != graph_.dims) {
    return Invalid("graph ", Quoted(other.name), " has other dims than ", Quoted(graph_.name));
  }
  absl::flat_hash_map<std::string, const Node*> declared;
  for (const Node& node : graph_.nodes) {
    if (IsDeclared(node.op)) declared[node.name] = &node;
  }
  for (size_t n = 0; n < other.nodes.size(); ++n) {
    const Node& node = other.nodes[n];
    if (!IsDeclared(node.op)) continue;
    const auto it = declared.find(node.name);
    if (it == declared.end() || it->second->op != node.op || !(it->second->type == node.type)) {
      return Invalid(other.Describe(static_cast<NodeId>(n)), " : ", TypeToString(node.type),
                     " is not an input or parameter of graph ", Quoted(graph_.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TermGraph::Imported> TermGraph::Import(const Graph& other,
                                                      absl::Span<const Equality> equal,
                                                      egraph::Cause cause) {
  RETURN_IF_ERROR(CheckImport(other));
  std::vector<bool> needed(other.nodes.size());
  for (const Output& o : other.outputs) needed[o.node] = true;
  for (const auto& [n, id] : equal) needed[n] = true;
  MarkOperands(other, &needed);
  const uint32_t before = terms_.node_bound();
  absl::StatusOr<std::vector<egraph::ClassId>> classes = AddNodes(other, needed, cause);
  Imported result;
  if (classes.ok()) result.classes = *std::move(classes);
  result.nodes = terms_.node_bound() - before;
  for (const auto& [n, id] : equal) {
    if (!classes.ok()) break;
    const absl::StatusOr<bool> united = terms_.Union(result.classes[n], id, cause);
    result.unions += united.value_or(false);
    result.refused += !united.ok();
  }
  terms_.Rebuild();
  if (!classes.ok()) return classes.status();
  return result;
}

std::string ToDot(const TermGraph& terms, size_t max_nodes) {
  return egraph::DotText(terms.terms(), max_nodes);
}

}  // namespace athanor
