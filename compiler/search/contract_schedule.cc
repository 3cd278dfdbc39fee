#include "compiler/search/contract_schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace athanor {

namespace {

struct Operands {
  ContractSpec spec;
  std::map<char, Expr> extents;

  const std::string& side(int i) const { return i == 0 ? spec.lhs : spec.rhs; }
  bool Has(int i, char c) const { return side(i).find(c) != std::string::npos; }
  // Letters of the result that only operand `i` has.
  std::string Free(int i) const {
    std::string free;
    for (char c : spec.result) {
      if (Has(i, c) && !Has(1 - i, c)) free += c;
    }
    return free;
  }
};

Operands OperandsOf(const Graph& graph, const Node& node) {
  Operands o{*ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec")), {}};
  for (int i = 0; i < 2; ++i) {
    const Shape& shape = graph.node(node.inputs[i]).type.shape;
    for (size_t a = 0; a < shape.size(); ++a) o.extents[o.side(i)[a]] = shape[a];
  }
  return o;
}

// How well operand `i` carries the lanes; 0 if it cannot.
int ColumnScore(const Operands& o, const Node& node, int i, const std::vector<bool>& is_weight) {
  const std::string free = o.Free(i);
  if (free.empty()) return 0;
  int score = 1;
  if (is_weight[node.inputs[i]]) score += 8;  // packed once, ahead
  if (!o.spec.result.empty() && o.spec.result.back() == free.back())
    score += 4;                                     // contiguous stores
  if (o.side(i).back() == free.back()) score += 2;  // contiguous reads
  return score;
}

Expr FlatSize(const Operands& o, const std::string& letters) {
  Expr size = 1;
  for (char c : letters) size *= o.extents.at(c);
  return size;
}

}  // namespace

std::optional<ContractSchedule> ScheduleContract(const Graph& graph, NodeId id,
                                                 const std::vector<bool>& is_weight,
                                                 const v1::Target& target) {
  const Node& node = graph.node(id);
  Operands o = OperandsOf(graph, node);
  int scores[2] = {ColumnScore(o, node, 0, is_weight), ColumnScore(o, node, 1, is_weight)};
  if (scores[0] == 0 && scores[1] == 0) return std::nullopt;
  ContractSchedule s;
  s.swap = scores[0] > scores[1];
  const bool many_registers = target.vector_registers() >= 32;
  s.mr = many_registers ? 12 : 6;
  s.nv = 2;
  const int bytes = DTypeBytes(AccumulatorOf(node.type.dtype));
  const int64_t lanes = target.vector_bytes() / bytes;
  std::optional<int64_t> columns = graph.DimBounds().Maximum(FlatSize(o, o.Free(s.swap ? 0 : 1)));
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
  Operands o = OperandsOf(*graph, node);
  const int side = schedule.swap ? 0 : 1;
  const NodeId operand = node.inputs[side];
  std::string batch, sums;
  for (char c : o.spec.result) {
    if (o.Has(0, c) && o.Has(1, c)) batch += c;
  }
  for (const std::string* letters : {&o.spec.lhs, &o.spec.rhs}) {
    for (char c : *letters) {
      bool summed = o.spec.result.find(c) == std::string::npos && sums.find(c) == std::string::npos;
      if (summed) sums += c;
    }
  }
  const std::string columns = o.Free(side);
  std::map<char, Expr> at;
  IndexMap map;
  for (char c : batch) {
    at[c] = Expr::Axis(static_cast<int>(map.shape.size()));
    map.shape.push_back(o.extents[c]);
  }
  const int rank = static_cast<int>(map.shape.size());
  const Expr k = Expr::Axis(rank + 1), n = Expr::Axis(rank) * width + Expr::Axis(rank + 2);
  map.shape.insert(map.shape.end(),
                   {CeilDiv(FlatSize(o, columns), width), FlatSize(o, sums), width});
  auto split = [&](const std::string& letters, const Expr& flat) {
    Expr stride = 1;
    for (size_t i = letters.size(); i-- > 0;) {
      Expr digit = FloorDiv(flat, stride);
      at[letters[i]] = i > 0 ? Mod(digit, o.extents[letters[i]]) : digit;
      stride *= o.extents[letters[i]];
    }
  };
  split(sums, k);
  split(columns, n);
  for (char c : o.side(side)) map.coordinates.push_back(at[c]);
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
