#include "compiler/pipeline/prepare.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/scan.h"
#include "compiler/rules/decompose.h"
#include "compiler/rules/recognise.h"
#include "compiler/rules/views.h"
#include "compiler/search/region.h"
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

// The same of a graph inside `graph`, over the dims of that one.
absl::StatusOr<Graph> PrepareBody(const ScanView& scan, const Graph& graph) {
  absl::StatusOr<Prepared> prepared = Prepare(BodyOf(scan, graph.dims));
  if (!prepared.ok()) return prepared.status();
  std::map<std::string, Expr, std::less<>> names;
  for (size_t d = 0; d < prepared->dim_names.size(); ++d) {
    names[prepared->graph.dims[d].name] = Expr::Symbol(prepared->dim_names[d]);
  }
  SubstituteDims(names, &prepared->graph);
  prepared->graph.dims.clear();
  return std::move(prepared->graph);
}

absl::Status PrepareBodies(Graph* graph) {
  for (Node& node : graph->nodes) {
    if (node.op != Op::kScan) continue;
    absl::StatusOr<Graph> body = PrepareBody(ViewScan(node), *graph);
    if (!body.ok()) return body.status();
    node.attrs["body"] = SubGraph(*std::move(body));
  }
  return absl::OkStatus();
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
  if (absl::Status s = PrepareBodies(&p.graph); !s.ok()) return s;
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
