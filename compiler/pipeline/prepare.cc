#include "compiler/pipeline/prepare.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/scan.h"
#include "compiler/ir/value/message.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/decompose/recognise.h"
#include "compiler/rules/terms/views.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_cost.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Replaces composites without kernels of their own by their decompositions.
absl::StatusOr<Graph> ToPrimitives(const Graph& graph, bool plain, bool paged) {
  return Decompose(graph, [&](const Node& node) {
    if (plain && FormOf(node.op) == OpForm::kAttention) return true;
    if (IsPagedAttention(node.op) && !(paged && FitsPagedKernel(graph, node))) return true;
    std::vector<const TensorType*> operands;
    for (NodeId i : node.inputs) operands.push_back(&graph.node(i).type);
    return !HasKernel(node.op, operands);
  });
}

// Prepares a graph inside `graph`, over the dims of the latter.
absl::StatusOr<Graph> PrepareBody(const ScanView& scan, const Graph& graph, bool plain,
                                  bool paged) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(BodyOf(scan, graph.dims), plain, paged));
  std::map<std::string, Expr, std::less<>> names;
  for (size_t d = 0; d < prepared.dim_names.size(); ++d) {
    names[prepared.graph.dims[d].name] = Expr::Symbol(prepared.dim_names[d]);
  }
  SubstituteDims(names, &prepared.graph);
  prepared.graph.dims.clear();
  return std::move(prepared.graph);
}

absl::Status PrepareBodies(Graph* graph, bool plain, bool paged) {
  for (Node& node : graph->nodes) {
    if (!IsLoop(node.op)) continue;
    ASSIGN_OR_RETURN(Graph body, PrepareBody(ViewScan(node), *graph, plain, paged));
    node.attrs["body"] = SubGraph(std::move(body));
  }
  return absl::OkStatus();
}

// A loop takes a slice of what it is given by its place in memory, which for a state depends on the
// layout.
absl::Status CheckStates(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (!IsLoop(node.op)) continue;
    for (NodeId operand : node.inputs) {
      if (!IsState(graph.node(operand).op)) continue;
      return Unimplemented(graph.Describe(static_cast<NodeId>(&node - graph.nodes.data())),
                           ": reads the state of ", graph.Describe(operand),
                           "; a loop must be given values computed from it, such as a Gather");
    }
  }
  return absl::OkStatus();
}

// Runs the stages between the two canonical forms.
absl::StatusOr<Graph> Rewrite(const Graph& canonical, bool plain, bool paged) {
  if (plain) return WidenScatters(canonical);
  absl::StatusOr<Graph> graph = Recognise(ComposeViews(canonical));
  if (graph.ok()) graph = ToPrimitives(*graph, plain, paged);
  if (graph.ok()) graph = WidenScatters(*graph);
  if (!graph.ok()) return graph;
  return ComposeViews(*graph);
}

}  // namespace

std::optional<PagedSizes> PagedSizesOf(const Graph& graph, const Prepared& prepared) {
  Graph renamed = graph;
  std::map<std::string, Expr, std::less<>> names;
  for (size_t d = 0; d < prepared.dim_names.size(); ++d) {
    names[prepared.dim_names[d]] = Expr::Symbol(prepared.graph.dims[d].name);
  }
  SubstituteDims(names, &renamed);
  renamed.dims = prepared.graph.dims;
  return PagedSizes::Of(renamed);
}

absl::StatusOr<Prepared> Prepare(const Graph& graph, bool plain, bool paged) {
  Prepared p;
  ASSIGN_OR_RETURN(Graph primitives, ToPrimitives(graph, plain, paged));
  std::vector<std::string> first;
  ASSIGN_OR_RETURN(Graph rewritten, Rewrite(Canonicalize(primitives, &first), plain, paged));
  // The graph is canonicalized twice: the dims' names of the second form are those of the first,
  // d0, d1, ...
  std::vector<std::string> second;
  p.graph = Canonicalize(rewritten, &second);
  for (const std::string& name : second) p.dim_names.push_back(first[std::stoul(name.substr(1))]);
  RETURN_IF_ERROR(PrepareBodies(&p.graph, plain, paged));
  GuardViews(&p.graph);  // after their dims have these names
  const std::vector<NodeId> from = graph.ArgumentIds(), to = p.graph.ArgumentIds();
  for (size_t i = 0; i < to.size(); ++i) p.graph.nodes[to[i]].name = graph.node(from[i]).name;
  for (size_t i = 0; i < p.graph.outputs.size(); ++i)
    p.graph.outputs[i].name = graph.outputs[i].name;
  RETURN_IF_ERROR(CheckStates(p.graph));
  return p;
}

}  // namespace athanor
