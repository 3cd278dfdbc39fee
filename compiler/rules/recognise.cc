#include "compiler/rules/recognise.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace athanor {

namespace {

constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz";

// An operand repeated along axes of a joint space: which joint axis each of its own axes is.
struct Repeated {
  NodeId node;
  std::vector<int> axes;
};

// `n` as a node read at distinct axes of its user's space; `n` itself where it is no such map.
std::optional<Repeated> RepeatedOperand(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  Repeated r{n, {}};
  if (node.op != Op::kIndexMap || node.attrs.contains("fill")) {
    for (size_t i = 0; i < node.type.shape.size(); ++i) r.axes.push_back(static_cast<int>(i));
    return r;
  }
  const IndexMap& map = GetAttr<IndexMap>(node.attrs, "map");
  const Shape& operand = graph.node(node.inputs[0]).type.shape;
  r.node = node.inputs[0];
  for (size_t i = 0; i < map.coordinates.size(); ++i) {
    std::optional<std::string> symbol = map.coordinates[i].symbol();
    if (!symbol || (*symbol)[0] != '$') return std::nullopt;
    int axis = std::stoi(symbol->substr(1));
    bool whole = map.shape[axis] == operand[i];
    if (!whole || std::find(r.axes.begin(), r.axes.end(), axis) != r.axes.end()) return std::nullopt;
    r.axes.push_back(axis);
  }
  return r;
}

// The contraction that a SumReduce of a Mul is, if it is one worth naming: both operands are repeated
// along some axis that the other has.
std::optional<Node> AsContract(const Graph& graph, const Node& sum) {
  if (sum.op != Op::kSumReduce) return std::nullopt;
  const Node& mul = graph.node(sum.inputs[0]);
  // Low precision rounds each product before the sum; a contraction does not.
  if (mul.op != Op::kMul || AccumulatorOf(mul.type.dtype) != mul.type.dtype) return std::nullopt;
  const size_t rank = mul.type.shape.size();
  if (rank > 26) return std::nullopt;
  std::optional<Repeated> operands[2] = {RepeatedOperand(graph, mul.inputs[0]),
                                         RepeatedOperand(graph, mul.inputs[1])};
  if (!operands[0] || !operands[1]) return std::nullopt;
  std::vector<bool> covered(rank);
  std::string letters[2];
  for (int side = 0; side < 2; ++side) {
    if (operands[side]->axes.size() == rank) return std::nullopt;
    for (int axis : operands[side]->axes) {
      covered[axis] = true;
      letters[side] += kLetters[axis];
    }
  }
  if (std::find(covered.begin(), covered.end(), false) != covered.end()) return std::nullopt;
  std::string result;
  const auto& axes = GetAttr<std::vector<int64_t>>(sum.attrs, "axes");
  for (size_t i = 0; i < rank; ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) result += kLetters[i];
  }
  Node contract;
  contract.op = Op::kContract;
  contract.inputs = {operands[0]->node, operands[1]->node};
  contract.attrs["spec"] = letters[0] + "," + letters[1] + "->" + result;
  contract.type = sum.type;
  return contract;
}

}  // namespace

absl::StatusOr<Graph> Recognise(const Graph& graph) {
  Graph result = graph;
  for (Node& node : result.nodes) {
    if (std::optional<Node> contract = AsContract(graph, node)) node = *std::move(contract);
  }
  return result;
}

}  // namespace athanor
