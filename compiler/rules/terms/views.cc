#include "compiler/rules/terms/views.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/scan.h"

namespace athanor {

namespace {

bool IsView(const Node& node) { return node.op == Op::kIndexMap && !node.attrs.contains("fill"); }

Bounds BoundsOfAxes(const Graph& graph, const Shape& shape) {
  Bounds bounds = graph.DimBounds();
  for (size_t i = 0; i < shape.size(); ++i) {
    bounds.SetExtent(Expr::Axis(static_cast<int>(i)).ToString(), shape[i]);
  }
  return bounds;
}

// Returns `inner` read at the coordinates of `outer`, simplified over the axes of the result.
IndexMap Composed(const IndexMap& outer, const IndexMap& inner, const Bounds& bounds) {
  std::map<std::string, Expr, std::less<>> at;
  for (size_t i = 0; i < outer.coordinates.size(); ++i) {
    at[Expr::Axis(static_cast<int>(i)).ToString()] = outer.coordinates[i];
  }
  IndexMap map{outer.shape, {}};
  for (const Expr& c : inner.coordinates)
    map.coordinates.push_back(bounds.Simplify(c.Substitute(at)));
  return map;
}

// Rewrites the coordinate of an axis of size 1 as 0, in whichever form it was written.
void ReadUnitAxesAtZero(const Shape& operand, IndexMap* map) {
  for (size_t i = 0; i < operand.size(); ++i) {
    if (operand[i].IsConstant(1)) map->coordinates[i] = 0;
  }
}

bool IsIdentity(const IndexMap& map, const Shape& operand) {
  if (map.shape != operand) return false;
  for (size_t i = 0; i < operand.size(); ++i) {
    const bool same =
        map.coordinates[i] == Expr::Axis(static_cast<int>(i)) || operand[i].IsConstant(1);
    if (!same) return false;
  }
  return true;
}

}  // namespace

Graph ComposeViews(const Graph& graph) {
  Graph result = graph;
  std::vector<NodeId> same(result.nodes.size());  // by node: the node it equals
  for (size_t n = 0; n < result.nodes.size(); ++n) {
    Node& node = result.nodes[n];
    same[n] = static_cast<NodeId>(n);
    for (NodeId& i : node.inputs) i = same[i];
    if (!IsView(node)) continue;
    IndexMap& map = std::get<IndexMap>(node.attrs.find("map")->second);
    const Node& source = result.nodes[node.inputs[0]];
    if (IsView(source)) {
      map = Composed(map, GetAttr<IndexMap>(source.attrs, "map"), BoundsOfAxes(graph, map.shape));
      node.inputs[0] = source.inputs[0];
    }
    const Shape& operand = result.nodes[node.inputs[0]].type.shape;
    ReadUnitAxesAtZero(operand, &map);
    if (IsIdentity(map, operand)) same[n] = node.inputs[0];
  }
  for (Output& o : result.outputs) o.node = same[o.node];
  return result;
}

void GuardViews(Graph* graph) {
  const Bounds bounds = graph->DimBounds();
  for (Node& node : graph->nodes) {
    if (node.op == Op::kScan) {
      Graph body = BodyOf(ViewScan(node), graph->dims);
      GuardViews(&body);
      body.dims.clear();
      node.attrs["body"] = SubGraph(std::move(body));
    }
    if (!IsView(node)) continue;
    const TensorType& operand = graph->nodes[node.inputs[0]].type;
    if (OpInfo(Op::kIndexMap).infer({&operand, 1}, node.attrs, bounds).ok()) continue;
    node.attrs["fill"] = Tensor::Zeros(operand.dtype, {});
  }
}

}  // namespace athanor
