#include "compiler/search/kernels/task_index.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/digest.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/task.h"

namespace athanor {
namespace {

void Append(int32_t number, std::string* bytes) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  bytes->append(raw, sizeof(number));
}

int Number(absl::flat_hash_map<std::string, int>& numbers, std::string text) {
  return numbers.try_emplace(std::move(text), static_cast<int>(numbers.size())).first->second;
}

}  // namespace

int NodeNumbers::OfKind(const Node& node) {
  Graph alone;
  alone.nodes.push_back({.op = node.op, .attrs = node.attrs, .type = node.type});
  std::string text = ToText(alone);
  constexpr size_t kLong = 4096;  // only literals' texts are longer
  return Number(kinds_, text.size() > kLong ? Sha256Bytes(text) : std::move(text));
}

int NodeNumbers::OfValue(int kind, const std::string& name, const std::vector<int>& operands) {
  std::string bytes;
  Append(kind, &bytes);
  for (int operand : operands) Append(operand, &bytes);
  return Number(values_, absl::StrCat(bytes, name));
}

TaskIndex::TaskIndex(const Graph& graph, NodeNumbers* numbers)
    : graph_(graph),
      numbers_(*numbers),
      weights_(WeightsOf(graph)),
      leaves_{std::vector<int>(graph.nodes.size(), -1), std::vector<int>(graph.nodes.size(), -1)},
      seen_(graph.nodes.size()),
      at_(graph.nodes.size(), -1) {
  for (const Node& node : graph.nodes) {
    const int kind = kinds_.emplace_back(numbers_.OfKind(node));
    literal_.push_back(IsSmallLiteral(node));
    std::vector<int> operands;
    for (NodeId i : node.inputs) operands.push_back(values_[i]);
    const bool leaf = IsDeclared(node.op);
    values_.push_back(numbers_.OfValue(kind, leaf ? node.name : "", operands));
  }
}

int TaskIndex::KindOfLeaf(NodeId n, bool parameter) {
  int& leaf = leaves_[parameter][n];
  if (leaf < 0) {
    leaf = numbers_.OfKind(LeafOf(graph_, n, parameter));
  }
  return leaf;
}

TaskIndex::Found TaskIndex::Find(const std::vector<bool>& memory, const KernelChoice& choice) {
  Found found;
  ++turn_;
  std::vector<NodeId> open = {choice.root};
  at_[choice.root] = turn_;
  while (!open.empty()) {
    const NodeId n = open.back();
    open.pop_back();
    found.nodes.push_back(n);
    if (memory[n] && n != choice.root) continue;
    for (NodeId i : graph_.node(n).inputs) {
      if (at_[i] == turn_) continue;
      at_[i] = turn_;
      open.push_back(i);
    }
  }
  std::sort(found.nodes.begin(), found.nodes.end());
  for (size_t i = 0; i < found.nodes.size(); ++i) seen_[found.nodes[i]] = static_cast<int>(i);
  std::string& bytes = found.signature;
  // Operands are named by their place among the kernel's nodes, so equal layers have equal
  // signatures.
  for (NodeId n : found.nodes) {
    if (memory[n] && n != choice.root && !literal_[n]) {
      Append(KindOfLeaf(n, weights_[n] && !weights_[choice.root]), &bytes);
      continue;
    }
    Append(kinds_[n], &bytes);
    for (NodeId i : graph_.node(n).inputs) Append(-1 - seen_[i], &bytes);
  }
  Append(static_cast<int>(choice.kind), &bytes);
  return found;
}

}  // namespace athanor
