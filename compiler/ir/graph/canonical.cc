#include "compiler/ir/graph/canonical.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Renames letters: "mk,kn->mn" becomes "ab,bc->ac".
std::string RenameLetters(const std::string& text) {
  absl::StatusOr<ContractSpec> spec = ContractSpec::Parse(text);
  if (!spec.ok()) return text;
  char names[256] = {};
  char next = 'a';
  for (std::string* part : {&spec->lhs, &spec->rhs, &spec->result}) {
    for (char& letter : *part) {
      char& name = names[static_cast<unsigned char>(letter)];
      if (name == 0) {
        name = next;
        next = next == 'z' ? 'A' : static_cast<char>(next + 1);
      }
      letter = name;
    }
  }
  return spec->ToString();
}

class Canonicalizer {
 public:
  explicit Canonicalizer(const Graph& graph) : graph_(graph), moved_(graph.nodes.size(), -1) {}

  Graph Run(std::vector<std::string>* dim_names, std::vector<NodeId>* moved) {
    result_.dims = graph_.dims;
    Arrange();
    std::vector<std::string> former = RenameDims(&result_);
    if (dim_names != nullptr) *dim_names = std::move(former);
    if (moved != nullptr) *moved = std::move(moved_);
    return std::move(result_);
  }

  // Canonicalizes a nested graph, whose dims are those of the outer one.
  Graph RunInside() {
    Arrange();
    return std::move(result_);
  }

 private:
  void Arrange() {
    Declare(graph_.InputIds(), "x");
    Declare(graph_.ParameterIds(), "p");
    Declare(graph_.StateIds(), "s");
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      Visit(graph_.outputs[i].node);
      result_.outputs.push_back({Cat("y", i), moved_[graph_.outputs[i].node]});
    }
    std::vector<NodeId> updates = graph_.updates;
    std::sort(updates.begin(), updates.end(), [&](NodeId a, NodeId b) {
      return graph_.nodes[a].inputs[0] < graph_.nodes[b].inputs[0];
    });
    for (NodeId update : updates) {
      Visit(update);
      result_.updates.push_back(moved_[update]);
    }
  }

  void Declare(const std::vector<NodeId>& ids, std::string_view prefix) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const Node& node = graph_.nodes[ids[i]];
      moved_[ids[i]] = static_cast<NodeId>(result_.nodes.size());
      result_.nodes.push_back(
          {node.op, {}, CanonicalAttrs(node.op, node.attrs), node.type, Cat(prefix, i)});
    }
  }

  // Depth first, operands in order. Uses its own stack, because graphs can be deep.
  void Visit(NodeId root) {
    std::vector<std::pair<NodeId, size_t>> stack = {{root, 0}};
    while (!stack.empty()) {
      const NodeId id = stack.back().first;
      const std::vector<NodeId>& inputs = graph_.nodes[id].inputs;
      if (moved_[id] >= 0) {
        stack.pop_back();
      } else if (stack.back().second < inputs.size()) {
        const NodeId operand = inputs[stack.back().second++];
        stack.emplace_back(operand, 0);
      } else {
        Move(id);
        stack.pop_back();
      }
    }
  }

  void Move(NodeId id) {
    const Node& node = graph_.nodes[id];
    Node moved{node.op, {}, CanonicalAttrs(node.op, node.attrs), node.type, ""};
    for (NodeId input : node.inputs) moved.inputs.push_back(moved_[input]);
    // Equal nodes become one.
    std::string key;
    EncodeNode(moved, &key);
    const auto [it, fresh] =
        seen_.emplace(std::move(key), static_cast<NodeId>(result_.nodes.size()));
    if (fresh) result_.nodes.push_back(std::move(moved));
    moved_[id] = it->second;
  }

  const Graph& graph_;
  Graph result_;
  std::vector<NodeId> moved_;  // by node: its id in the result
  absl::flat_hash_map<std::string, NodeId> seen_;
};

}  // namespace

Attrs CanonicalAttrs(Op op, const Attrs& given) {
  Attrs attrs = given;
  for (const AttrSpec& spec : OpInfo(op).attrs) {
    if (spec.otherwise) attrs.emplace(spec.name, *spec.otherwise);
  }
  for (auto& [name, value] : attrs) {
    if (auto* body = std::get_if<SubGraph>(&value); body != nullptr && *body) {
      *body = SubGraph(Canonicalizer(**body).RunInside());
    }
  }
  if (FormOf(op) == OpForm::kContract) {
    auto spec = attrs.find("spec");
    auto* text = spec == attrs.end() ? nullptr : std::get_if<std::string>(&spec->second);
    if (text != nullptr) *text = RenameLetters(*text);
  }
  return attrs;
}

Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names) {
  return Canonicalize(graph, dim_names, nullptr);
}

Graph Canonicalize(const Graph& graph, std::vector<std::string>* dim_names,
                   std::vector<NodeId>* moved) {
  return Canonicalizer(graph).Run(dim_names, moved);
}

}  // namespace athanor
