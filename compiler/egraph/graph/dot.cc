#include "compiler/egraph/graph/dot.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/graph/analysis.h"

namespace athanor::egraph {
namespace {

// Returns the text escaped for double quotes, and cut to a readable length.
std::string Escaped(std::string text) {
  constexpr size_t kMaxLabel = 160;
  if (text.size() > kMaxLabel) {
    size_t end = kMaxLabel;
    while ((text[end] & 0xc0) == 0x80) --end;  // not within a character of UTF-8
    text = text.substr(0, end) + "...";
  }
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

std::string ClusterText(const EGraph& graph, ClassId id) {
  std::string label = absl::StrCat("c", id.value);
  if (graph.analysis()) {
    const std::string value = graph.analysis()->ValueText(graph, id);
    if (!value.empty()) absl::StrAppend(&label, ": ", value);
  }
  std::string text = absl::StrCat("  subgraph cluster_", id.value, " {\n    style=dotted label=\"",
                                  Escaped(label), "\"\n");
  for (const NodeId n : graph.nodes(id)) {
    absl::StrAppend(&text, "    n", n.value, " [label=\"",
                    Escaped(graph.language().NodeText(graph.op(n), graph.payload(n))), "\"]\n");
  }
  return text + "  }\n";
}

// Edges point to the first node of a class' cluster and are clipped at its border.
std::string EdgesText(const EGraph& graph, NodeId n) {
  std::string text;
  const auto children = graph.children(n);
  for (size_t i = 0; i < children.size(); ++i) {
    absl::StrAppend(&text, "  n", n.value, " -> n", graph.nodes(children[i])[0].value,
                    " [lhead=cluster_", children[i].value);
    if (children.size() > 1) absl::StrAppend(&text, " taillabel=\"", i, "\"");
    absl::StrAppend(&text, "]\n");
  }
  return text;
}

}  // namespace

std::string DotText(const EGraph& graph, size_t max_nodes) {
  std::string text = "digraph egraph {\n  compound=true\n  node [shape=box style=rounded]\n";
  std::vector<bool> shown(graph.class_bound());
  std::vector<NodeId> nodes;
  for (const ClassId id : graph.Classes()) {
    if (nodes.size() + graph.nodes(id).size() > max_nodes) continue;
    text += ClusterText(graph, id);
    shown[id.value] = true;
    nodes.insert(nodes.end(), graph.nodes(id).begin(), graph.nodes(id).end());
  }
  for (const NodeId n : nodes) {
    bool complete = true;
    for (const ClassId child : graph.children(n)) complete &= shown[child.value];
    if (complete) text += EdgesText(graph, n);
  }
  if (nodes.size() < graph.num_nodes()) {
    absl::StrAppend(&text, "  // ", graph.num_nodes() - nodes.size(),
                    " nodes left out, and edges of nodes that have a child among them\n");
  }
  return text + "}\n";
}

}  // namespace athanor::egraph
