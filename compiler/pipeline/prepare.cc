#include "compiler/pipeline/prepare.h"

#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose.h"
#include "compiler/rules/recognise.h"
#include "compiler/rules/views.h"
#include "compiler/search/region_cost.h"

namespace athanor {
namespace {

// Composites without kernels of their own as their decompositions.
absl::StatusOr<Graph> ToPrimitives(const Graph& graph) {
  return Decompose(graph, [&](const Node& node) {
    std::vector<const TensorType*> operands;
    for (NodeId i : node.inputs) operands.push_back(&graph.node(i).type);
    return !HasKernel(node.op, operands);
  });
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const Graph& graph) {
  Prepared p;
  absl::StatusOr<Graph> primitives = ToPrimitives(graph);
  if (!primitives.ok()) return primitives.status();
  std::vector<std::string> first;
  absl::StatusOr<Graph> recognised = Recognise(ComposeViews(Canonicalize(*primitives, &first)));
  if (!recognised.ok()) return recognised.status();
  absl::StatusOr<Graph> again = ToPrimitives(*recognised);
  if (again.ok()) again = WidenScatters(*again);
  if (!again.ok()) return again.status();
  // Canonical twice: the dims' names of the second form are d0, d1, ... of the first.
  std::vector<std::string> second;
  p.graph = Canonicalize(ComposeViews(*again), &second);
  for (const std::string& name : second) p.dim_names.push_back(first[std::stoul(name.substr(1))]);
  std::vector<NodeId> from = graph.InputIds(), to = p.graph.InputIds();
  for (size_t i = 0; i < to.size(); ++i) p.graph.nodes[to[i]].name = graph.node(from[i]).name;
  from = graph.ParameterIds();
  to = p.graph.ParameterIds();
  for (size_t i = 0; i < to.size(); ++i) p.graph.nodes[to[i]].name = graph.node(from[i]).name;
  for (size_t i = 0; i < p.graph.outputs.size(); ++i)
    p.graph.outputs[i].name = graph.outputs[i].name;
  return p;
}

}  // namespace athanor
