// OrderOf: orders a graph's nodes, operands first.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "compiler/frontend/names.h"
#include "compiler/frontend/onnx/model/model.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;

constexpr size_t kShownCycle = 16;

// Calls `take` with each name that a graph itself defines: inputs, initialisers, results.
template <typename Take>
void ForEachMade(const GraphProto& graph, const Take& take) {
  for (const auto& input : graph.input()) take(input.name());
  for (const auto& tensor : graph.initializer()) take(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) take(tensor.values().name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& name : node.output()) take(name);
  }
}

// The names that a node's sub-graphs take from outside. Recursive: the parser bounds the nesting of
// graphs.
class Captures {
 public:
  explicit Captures(const NodeProto& node) { Node(node, /*operands=*/false); }
  const std::vector<std::string_view>& names() const { return names_; }

 private:
  void Node(const NodeProto& node, bool operands) {
    if (operands) {
      for (const std::string& name : node.input()) Use(name);
    }
    for (const ::onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) Graph(attribute.g());
      for (const GraphProto& graph : attribute.graphs()) Graph(graph);
    }
  }
  void Graph(const GraphProto& graph) {
    ForEachMade(graph, [&](const std::string& name) { ++made_[name]; });
    for (const NodeProto& node : graph.node()) Node(node, /*operands=*/true);
    for (const auto& output : graph.output()) Use(output.name());
    ForEachMade(graph, [&](const std::string& name) { --made_[name]; });
  }
  void Use(const std::string& name) {
    if (name.empty()) return;
    if (const auto made = made_.find(name); made != made_.end() && made->second > 0) return;
    if (seen_.insert(name).second) names_.push_back(name);
  }

  // Number of enclosing graphs that define the name.
  absl::flat_hash_map<std::string_view, int> made_;
  absl::flat_hash_set<std::string_view> seen_;
  std::vector<std::string_view> names_;
};

class Sorter {
 public:
  Sorter(const GraphProto& graph, absl::FunctionRef<bool(std::string_view)> outer)
      : graph_(graph), outer_(outer) {}

  absl::StatusOr<std::vector<int>> Run() {
    absl::Status s = Inputs();
    if (s.ok()) s = Results();
    if (s.ok()) s = Operands();
    if (s.ok()) s = Outputs();
    if (!s.ok()) return s;
    return Sort();
  }

 private:
  // Makers of a name other than nodes.
  static constexpr int kInput = -1, kInitialiser = -2, kBoth = -3;

  std::string Text(int node) const {
    const NodeProto& n = graph_.node(node);
    return Cat("node ", Quoted(NodeName(n)), " (", n.op_type(), ")");
  }
  std::string MakerText(int maker) const {
    return maker >= 0 ? Text(maker) : maker == kInput ? "an input" : "an initialiser";
  }

  absl::Status NotOuter(const std::string& name, std::string_view what) const {
    if (!outer_(name)) return absl::OkStatus();
    return Invalid(what, " ", Quoted(name), " hides a value of an enclosing graph of that name");
  }

  absl::Status Inputs() {
    for (const auto& input : graph_.input()) {
      if (input.name().empty()) return Invalid("an input of the graph has no name");
      RETURN_IF_ERROR(NotOuter(input.name(), "input"));
      if (!maker_.emplace(input.name(), kInput).second) {
        return Invalid("input ", Quoted(input.name()), " is there twice");
      }
    }
    absl::Status s = absl::OkStatus();
    for (const auto& tensor : graph_.initializer()) {
      if (s.ok()) s = Initialiser(tensor.name());
    }
    for (const auto& tensor : graph_.sparse_initializer()) {
      if (s.ok()) s = Initialiser(tensor.values().name());
    }
    return s;
  }

  absl::Status Initialiser(const std::string& name) {
    if (name.empty()) return Invalid("an initialiser has no name");
    RETURN_IF_ERROR(NotOuter(name, "initialiser"));
    const auto [at, fresh] = maker_.emplace(name, kInitialiser);
    if (fresh) return absl::OkStatus();
    if (at->second != kInput) return Invalid("initialiser ", Quoted(name), " is there twice");
    at->second = kBoth;
    return absl::OkStatus();
  }

  absl::Status Results() {
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& name : graph_.node(i).output()) {
        if (name.empty()) continue;
        RETURN_IF_ERROR(NotOuter(name, Cat(Text(i), ": result")));
        const auto [at, fresh] = maker_.emplace(name, i);
        if (!fresh) {
          return Invalid(Text(i), ": result ", Quoted(name), " is made by ", MakerText(at->second),
                         " too");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Operands() {
    users_.resize(graph_.node_size());
    waits_.resize(graph_.node_size());
    for (int i = 0; i < graph_.node_size(); ++i) {
      absl::Status s = absl::OkStatus();
      for (const std::string& name : graph_.node(i).input()) {
        if (s.ok() && !name.empty()) s = Operand(i, name, "operand");
      }
      const Captures captures(graph_.node(i));
      for (const std::string_view name : captures.names()) {
        if (s.ok()) s = Operand(i, name, "its sub-graph's operand");
      }
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status Operand(int node, std::string_view name, std::string_view what) {
    const auto found = maker_.find(name);
    if (found == maker_.end()) {
      if (outer_(name)) return absl::OkStatus();
      return Invalid(Text(node), ": ", what, " ", Quoted(name),
                     " is neither an input nor an initialiser nor a node's result",
                     DidYouMean(name, Names()));
    }
    if (found->second >= 0) {
      users_[found->second].push_back(node);
      ++waits_[node];
    }
    return absl::OkStatus();
  }

  absl::Status Outputs() const {
    for (const auto& output : graph_.output()) {
      if (maker_.count(output.name()) > 0 || outer_(output.name())) continue;
      return Invalid("output ", Quoted(output.name()),
                     " is neither an input nor an initialiser nor a node's result",
                     DidYouMean(output.name(), Names()));
    }
    return absl::OkStatus();
  }

  std::vector<std::string_view> Names() const {
    std::vector<std::string_view> names;
    ForEachMade(graph_, [&](const std::string& name) { names.push_back(name); });
    return names;
  }

  // Always takes the first node whose operands are ready, so that a valid order is kept.
  absl::StatusOr<std::vector<int>> Sort() {
    std::priority_queue<int, std::vector<int>, std::greater<int>> ready;
    for (int i = 0; i < graph_.node_size(); ++i) {
      if (waits_[i] == 0) ready.push(i);
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      order.push_back(node);
      for (const int user : users_[node]) {
        if (--waits_[user] == 0) ready.push(user);
      }
    }
    if (static_cast<int>(order.size()) == graph_.node_size()) return order;
    return Cycle();
  }

  // Every waiting node has a waiting operand. Going back from one of them must therefore close a
  // cycle.
  absl::Status Cycle() const {
    std::vector<int> before(graph_.node_size(), -1);
    for (int i = 0; i < graph_.node_size(); ++i) {
      if (waits_[i] == 0) continue;
      for (const int user : users_[i]) {
        if (waits_[user] > 0 && before[user] < 0) before[user] = i;
      }
    }
    const auto waits = [](int n) { return n > 0; };
    int at = static_cast<int>(std::find_if(waits_.begin(), waits_.end(), waits) - waits_.begin());
    std::vector<int> path, visited(graph_.node_size(), -1);
    for (; visited[at] < 0; at = before[at]) {
      visited[at] = static_cast<int>(path.size());
      path.push_back(at);
    }
    std::vector<int> cycle(path.begin() + visited[at], path.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    std::string text;
    for (size_t i = 0; i < cycle.size() && i < kShownCycle; ++i) {
      text += Cat(Quoted(NodeName(graph_.node(cycle[i]))), " -> ");
    }
    if (cycle.size() > kShownCycle) text += Cat("... (", cycle.size(), " nodes) -> ");
    return Invalid("the graph has a cycle: ", text, Quoted(NodeName(graph_.node(cycle.front()))),
                   "; a graph must be acyclic");
  }

  const GraphProto& graph_;
  const absl::FunctionRef<bool(std::string_view)> outer_;
  absl::flat_hash_map<std::string_view, int> maker_;
  std::vector<std::vector<int>> users_;  // by node: the nodes that wait for it, once per operand
  std::vector<int> waits_;               // by node: the number of operands it waits for
};

}  // namespace

absl::StatusOr<std::vector<int>> OrderOf(const GraphProto& graph,
                                         absl::FunctionRef<bool(std::string_view)> outer) {
  return Sorter(graph, outer).Run();
}

}  // namespace athanor::onnx
