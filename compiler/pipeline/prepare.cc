#include "compiler/pipeline/prepare.h"

#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose.h"
#include "compiler/rules/recognise.h"
#include "compiler/rules/views.h"

namespace athanor {
namespace {

// Composites that have kernels of their own; the others are computed as their decompositions.
bool HasKernel(const Graph& graph, const Node& node) {
  if (node.op == Op::kContract || node.op == Op::kEmbeddingBag) return true;
  if (node.op != Op::kAttention) return false;
  return graph.node(node.inputs[0]).type.shape.back().constant().has_value() &&
         graph.node(node.inputs[2]).type.shape.back().constant().has_value();
}

absl::StatusOr<Graph> ToPrimitives(const Graph& graph) {
  return Decompose(graph, [&](const Node& node) {
    return OpInfo(node.op).composite() && !HasKernel(graph, node);
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
