#include "compiler/search/contract_schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "compiler/search/contract_roles.h"

namespace athanor {

namespace {

// How well operand `i`, whose axes `free` are in the result alone, carries the lanes; 0 if it
// cannot.
int ColumnScore(const ContractRoles& roles, const Node& node, int i, const std::string& free,
                const std::vector<bool>& is_weight) {
  if (free.empty()) return 0;
  int score = 1;
  if (is_weight[node.inputs[i]]) score += 8;  // packed once, ahead
  if (!roles.result.empty() && roles.result.back() == free.back()) score += 4;  // contiguous stores
  if (roles.letters[i].back() == free.back()) score += 2;                       // contiguous reads
  return score;
}

}  // namespace

std::optional<ContractSchedule> ScheduleContract(const Graph& graph, NodeId id,
                                                 const std::vector<bool>& is_weight,
                                                 const v1::Target& target) {
  const Node& node = graph.node(id);
  const ContractRoles roles = FindContractRoles(graph, node, /*swap=*/false);
  const int scores[2] = {ColumnScore(roles, node, 0, roles.rows, is_weight),
                         ColumnScore(roles, node, 1, roles.columns, is_weight)};
  if (scores[0] == 0 && scores[1] == 0) return std::nullopt;
  ContractSchedule s;
  s.swap = scores[0] > scores[1];
  const bool many_registers = target.vector_registers() >= 32;
  s.mr = many_registers ? 12 : 6;
  s.nv = 2;
  const int bytes = DTypeBytes(AccumulatorOf(node.type.dtype));
  const int64_t lanes = target.vector_bytes() / bytes;
  std::optional<int64_t> columns =
      graph.DimBounds().Maximum(roles.SizeOf(s.swap ? roles.rows : roles.columns));
  if (columns && *columns <= lanes) s.nv = 1;
  // A panel of the column operand stays in half of the second-level cache.
  s.kc = std::max<int64_t>(256, target.l2_bytes() / 2 / (lanes * s.nv * bytes));
  s.pack_ahead = is_weight[node.inputs[s.swap ? 0 : 1]];
  // Packing inside a work item is paid once per block of rows, so blocks are taller there.
  s.rows_per_item = s.mr * (s.pack_ahead ? 8 : 40);
  return s;
}

int PanelWidth(const Graph& graph, NodeId node, const ContractSchedule& schedule,
               const v1::Target& target) {
  return target.vector_bytes() / DTypeBytes(AccumulatorOf(graph.node(node).type.dtype)) *
         schedule.nv;
}

NodeId AddPackedOperand(Graph* graph, NodeId id, const ContractSchedule& schedule, int width) {
  const Node& node = graph->node(id);
  const ContractRoles roles = FindContractRoles(*graph, node, schedule.swap);
  const NodeId operand = node.inputs[roles.column_operand];
  std::map<char, Expr> at;
  IndexMap map;
  for (char c : roles.batch) {
    at[c] = Expr::Axis(static_cast<int>(map.shape.size()));
    map.shape.push_back(roles.extents.at(c));
  }
  const int rank = static_cast<int>(map.shape.size());
  const Expr k = Expr::Axis(rank + 1), n = Expr::Axis(rank) * width + Expr::Axis(rank + 2);
  map.shape.insert(map.shape.end(),
                   {CeilDiv(roles.SizeOf(roles.columns), width), roles.SizeOf(roles.sums), width});
  auto split = [&](const std::string& letters, const Expr& flat) {
    Expr stride = 1;
    for (size_t i = letters.size(); i-- > 0;) {
      Expr digit = FloorDiv(flat, stride);
      at[letters[i]] = i > 0 ? Mod(digit, roles.extents.at(letters[i])) : digit;
      stride *= roles.extents.at(letters[i]);
    }
  };
  split(roles.sums, k);
  split(roles.columns, n);
  for (char c : roles.letters[roles.column_operand]) map.coordinates.push_back(at[c]);
  Node packed;
  packed.op = Op::kIndexMap;
  packed.inputs = {operand};
  packed.type = {graph->node(operand).type.dtype, map.shape};
  packed.attrs["map"] = std::move(map);
  packed.attrs["fill"] = Tensor::Zeros(packed.type.dtype, {});
  graph->nodes.push_back(std::move(packed));
  return static_cast<NodeId>(graph->nodes.size()) - 1;
}

}  // namespace athanor
