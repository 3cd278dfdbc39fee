#include "server/tuner/check/state_outputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/state.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

Graph WithStatesWritten(Graph graph) {
  for (NodeId update : graph.updates) {
    const auto is = [&](const Output& output) { return output.node == update; };
    if (std::any_of(graph.outputs.begin(), graph.outputs.end(), is)) continue;
    const std::string& state = graph.node(graph.node(update).inputs[0]).name;
    graph.outputs.push_back({absl::StrCat("state ", state), update});
  }
  return graph;
}

std::string StateOf(const Graph& graph, const Output& output) {
  const Node& node = graph.node(output.node);
  if (!IsState(node.op)) return "";
  return IsStateWrite(node.op) ? graph.node(node.inputs[0]).name : node.name;
}

int PlanOutputsOf(const Graph& graph) {
  return static_cast<int>(
      std::count_if(graph.outputs.begin(), graph.outputs.end(),
                    [&](const Output& o) { return StateOf(graph, o).empty(); }));
}

absl::Status FillStates(const Graph& graph, absl::Span<const absl::string_view> contents,
                        absl::Span<const int64_t> dims, ScratchStates* states) {
  const std::vector<NodeId> ids = graph.StateIds();
  for (const std::string& name : states->names()) {
    const auto id =
        std::find_if(ids.begin(), ids.end(), [&](NodeId n) { return graph.node(n).name == name; });
    if (id == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's state \"", name, "\" is none of the graph's"));
    }
    RETURN_IF_ERROR(states->Fill(name, dims, contents[id - ids.begin()]));
  }
  return absl::OkStatus();
}

absl::Status ReadStates(const Graph& graph, absl::Span<const int64_t> dims,
                        const ScratchStates& states, absl::Span<const absl::Span<char>> outputs) {
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const std::string name = StateOf(graph, graph.outputs[o]);
    if (!name.empty()) RETURN_IF_ERROR(states.Read(name, dims, outputs[o]));
  }
  return absl::OkStatus();
}

}  // namespace athanor
