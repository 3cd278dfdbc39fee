#include "compiler/search/kernels/task.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/value/digest.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/paged_schedule.h"

namespace athanor {
namespace {

// Returns the nodes that the kernel of `root` computes or reads, ascending. Looks at no others: a
// graph has many kernels of few nodes.
std::set<NodeId> NodesOf(const Graph& graph, const std::vector<bool>& memory, NodeId root) {
  std::set<NodeId> nodes = {root};
  std::vector<NodeId> computed = {root};
  while (!computed.empty()) {
    const NodeId n = computed.back();
    computed.pop_back();
    for (NodeId i : graph.node(n).inputs) {
      if (nodes.insert(i).second && !memory[i]) computed.push_back(i);
    }
  }
  return nodes;
}

// A larger literal would travel with each kernel that reads it.
constexpr size_t kMaxLiteralBytes = 64 << 10;

Expr ContractFlops(const Graph& graph, const Node& node) {
  const ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  Expr work = 2 * Product(node.type.shape);
  std::set<char> counted(spec.result.begin(), spec.result.end());
  for (int side = 0; side < 2; ++side) {
    const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
    for (size_t i = 0; i < letters.size(); ++i) {
      if (counted.insert(letters[i]).second) work *= graph.node(node.inputs[side]).type.shape[i];
    }
  }
  return work;
}

Expr AttentionFlops(const Graph& graph, const Node& node) {
  const Shape& q = graph.node(node.inputs[0]).type.shape;
  const Shape& k = graph.node(node.inputs[1]).type.shape;
  const Expr rows = Product(Shape(q.begin(), q.end() - 1));
  return 2 * rows * k[k.size() - 2] * (q.back() + node.type.shape.back());
}

// Counts all keys that the table has place for: how many a row sees is data.
Expr PagedFlops(const Graph& graph, const Node& node) {
  const Shape& q = graph.node(node.inputs[0]).type.shape;
  return 2 * q[0] * q[1] * PagedKeys(graph, node) * (q[2] + node.type.shape[2]);
}

Expr NodeFlops(const Graph& graph, const Node& node);

// Counts what a step computes, times the number of steps.
Expr ScanFlops(const Node& node) {
  const ScanView scan = ViewScan(node);
  Expr step = 0;
  for (const Node& inside : scan.body.nodes) step += NodeFlops(scan.body, inside);
  return step * scan.length;
}

Expr NodeFlops(const Graph& graph, const Node& node) {
  if (IsLoop(node.op)) return ScanFlops(node);
  if (FormOf(node.op) == OpForm::kContract) return ContractFlops(graph, node);
  if (IsPagedAttention(node.op)) return PagedFlops(graph, node);
  if (FormOf(node.op) == OpForm::kAttention) return AttentionFlops(graph, node);
  if (IsElementwise(node.op)) return Product(node.type.shape);
  if (OpInfo(node.op).op_class == OpClass::kReduction) {
    return Product(graph.node(node.inputs[0]).type.shape);
  }
  // Comparisons: one per element, and those that sort the selected ones.
  if (FormOf(node.op) == OpForm::kOrder) {
    constexpr int64_t kLevels = 16;
    return Product(graph.node(node.inputs[0]).type.shape) + kLevels * Product(node.type.shape);
  }
  return 0;
}

}  // namespace

bool IsSmallLiteral(const Node& node) {
  return IsConstant(node.op) &&
         GetAttr<Tensor>(node.attrs, "value").bytes.size() <= kMaxLiteralBytes;
}

Node LeafOf(const Graph& graph, NodeId n, bool parameter) {
  const Node& node = graph.node(n);
  if (!IsState(node.op)) return {.op = DeclaredOp(parameter), .type = node.type};
  const Node& state = IsStateWrite(node.op) ? graph.node(node.inputs[0]) : node;
  return {.op = state.op, .attrs = state.attrs, .type = node.type};
}

KernelTask CutTask(const Graph& graph, const std::vector<bool>& memory,
                   const std::vector<bool>& weights, const KernelChoice& choice) {
  KernelTask task;
  task.graph.name = "task";
  task.graph.dims = graph.dims;
  std::map<NodeId, NodeId> at;
  int operands = 0, states = 0;
  for (NodeId n : NodesOf(graph, memory, choice.root)) {
    Node node = graph.node(n);
    node.name.clear();
    if (memory[n] && n != choice.root && !IsSmallLiteral(node)) {
      // A task that is computed from weights alone has no `prepare` of its own to pack them in, so
      // they are inputs.
      const bool parameter = weights[n] && !weights[choice.root];
      node = LeafOf(graph, n, parameter);
      node.name = IsState(node.op) ? absl::StrCat("s", states++) : absl::StrCat("x", operands++);
    }
    for (NodeId& i : node.inputs) i = at.at(i);
    at[n] = static_cast<NodeId>(task.graph.nodes.size());
    task.nodes.push_back(n);
    task.graph.nodes.push_back(std::move(node));
  }
  task.graph.outputs.push_back({"y", at.at(choice.root)});
  if (IsStateWrite(graph.node(choice.root).op)) task.graph.updates.push_back(at.at(choice.root));
  task.choice = choice;
  task.choice.root = at.at(choice.root);
  if (choice.anchor >= 0) task.choice.anchor = at.at(choice.anchor);
  task.choice.packed = -1;
  task.key = Sha256Hex(ToText(task.graph));
  return task;
}

ScheduledGraph WithSchedule(const KernelTask& task, const KernelChoice& choice,
                            const v1::Target& target) {
  ScheduledGraph with{task.graph, {{choice}}};
  PackWeights(&with.graph, &with.genome, target);
  return with;
}

Expr Flops(const Graph& graph, const std::vector<bool>& memory, NodeId root) {
  Expr flops = 0;
  for (NodeId n : NodesOf(graph, memory, root)) {
    if (n == root || !memory[n]) flops += NodeFlops(graph, graph.node(n));
  }
  return flops;
}

std::map<NodeId, Expr> MovedElements(const Graph& graph, const std::vector<bool>& memory,
                                     NodeId root) {
  std::map<NodeId, Expr> moved;  // at first summed over the users
  for (NodeId n : NodesOf(graph, memory, root)) moved.emplace(n, 0);
  for (auto at = moved.rbegin(); at != moved.rend(); ++at) {
    auto& [n, own] = *at;
    const Node& node = graph.node(n);
    const bool writes = IsStateWrite(node.op) && n == root;
    const Expr size = Product(writes ? graph.node(node.inputs[2]).type.shape : node.type.shape);
    const Expr elements = n == root ? size : own.IsConstant(0) ? Expr(0) : MinOf(size, own);
    own = memory[n] || n == root ? elements : Expr(0);
    if (memory[n] && n != root) continue;
    const bool picks = IsIndexMap(node.op) || FormOf(node.op) == OpForm::kGather;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool by_element = picks && i == 0;
      if (writes && i == 0) continue;
      Shape read = graph.node(node.inputs[i]).type.shape;
      // Reads as much of a pool as the table has place for.
      if (IsPagedAttention(node.op) && (i == 1 || i == 2)) {
        read[0] = graph.node(node.inputs[3]).type.shape[0] * PagedKeys(graph, node);
      }
      moved.at(node.inputs[i]) += by_element ? elements : Product(read);
    }
  }
  return moved;
}

Expr MovedBytes(const Graph& graph, const std::vector<bool>& memory, NodeId root) {
  const std::map<NodeId, Expr> moved = MovedElements(graph, memory, root);
  Expr bytes = 0;
  for (auto at = moved.rbegin(); at != moved.rend(); ++at) {
    bytes += at->second * DTypeBytes(graph.node(at->first).type.dtype);
  }
  return bytes;
}

}  // namespace athanor
