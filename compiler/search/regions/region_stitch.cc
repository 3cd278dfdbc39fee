#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/attr_exprs.h"
#include "compiler/ir/graph/canonical.h"
#include "compiler/search/regions/region.h"

namespace athanor {
namespace {

// Returns OK if `got` and `want`, nodes of a form and of its region's graph, have the same types.
absl::Status CheckTypes(const char* what, const Graph& form, const std::vector<NodeId>& got,
                        const Graph& own, const std::vector<NodeId>& want) {
  if (got.size() != want.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", got.size(), " ", what, "s where its region has ", want.size()));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const TensorType &type = form.node(got[i]).type, &wanted = own.node(want[i]).type;
    if (type == wanted) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", i, " is ", TypeToString(type), " where its region's is ", TypeToString(wanted)));
  }
  return absl::OkStatus();
}

std::vector<NodeId> OutputNodes(const Graph& graph) {
  std::vector<NodeId> nodes;
  for (const Output& o : graph.outputs) nodes.push_back(o.node);
  return nodes;
}

// Returns by output the place of the state that it is a write of; -1 for other outputs.
std::vector<int> WrittenStates(const Graph& graph) {
  const std::vector<NodeId> states = graph.StateIds();
  std::vector<int> written;
  for (const Output& o : graph.outputs) {
    const Node& node = graph.node(o.node);
    written.push_back(-1);
    if (!IsStateWrite(node.op)) continue;
    const auto state = std::find(states.begin(), states.end(), node.inputs[0]);
    written.back() = static_cast<int>(state - states.begin());
  }
  return written;
}

absl::Status CheckForm(const Graph& form, const Graph& own) {
  absl::Status s = CheckTypes("input", form, form.InputIds(), own, own.InputIds());
  if (s.ok()) s = CheckTypes("parameter", form, form.ParameterIds(), own, own.ParameterIds());
  if (s.ok()) s = CheckTypes("state", form, form.StateIds(), own, own.StateIds());
  if (s.ok()) s = CheckTypes("output", form, OutputNodes(form), own, OutputNodes(own));
  if (s.ok()) s = CheckTypes("update", form, form.updates, own, own.updates);
  if (s.ok() && WrittenStates(form) != WrittenStates(own)) {
    s = absl::InvalidArgumentError(
        "writes other states than its region, or other outputs are writes");
  }
  return s;
}

// Builds the stitched graph, beginning with all leaves of the graph that was cut.
class Stitcher {
 public:
  explicit Stitcher(const Graph& graph) : graph_(graph), at_(graph.nodes.size(), -1) {
    made_.name = graph.name;
    made_.dims = graph.dims;
    for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
      const Op op = graph.node(n).op;
      if (IsDeclared(op)) Copy(n);
    }
  }

  // Appends an instance's form. Returns what its nodes became; the `moved` of Finish maps them on.
  std::vector<NodeId> Place(const RegionInstance& instance, const Graph& form) {
    std::vector<NodeId> at(form.nodes.size(), -1);
    size_t inputs = 0, parameters = 0, states = 0;
    for (size_t n = 0; n < form.nodes.size(); ++n) {
      const Op op = form.nodes[n].op;
      if (IsInput(op)) {
        at[n] = ValueOf(instance.inputs[inputs++]);
      } else if (IsParameter(op)) {
        at[n] = ValueOf(instance.parameters[parameters++]);
      } else if (IsStateRead(op)) {
        at[n] = ValueOf(instance.states[states++]);
      } else {
        Node node = form.nodes[n];
        for (NodeId& i : node.inputs) i = at[i];
        at[n] = Append(std::move(node));
      }
    }
    for (size_t i = 0; i < instance.results.size(); ++i) {
      at_[instance.results[i]] = at[form.outputs[i].node];
    }
    return at;
  }

  Graph Finish(std::vector<NodeId>* moved) {
    for (const Output& o : graph_.outputs) made_.outputs.push_back({o.name, ValueOf(o.node)});
    for (const NodeId update : graph_.updates) made_.updates.push_back(ValueOf(update));
    return CanonicalizeLike(made_, graph_, moved);
  }

 private:
  NodeId Append(Node node) {
    made_.nodes.push_back(std::move(node));
    return static_cast<NodeId>(made_.nodes.size()) - 1;
  }
  // Returns the value of `n`. A node that no region computes is a literal or a short chain of
  // views, and is copied.
  NodeId ValueOf(NodeId n) { return at_[n] >= 0 ? at_[n] : Copy(n); }
  NodeId Copy(NodeId n) {
    Node node = graph_.node(n);
    for (NodeId& i : node.inputs) i = ValueOf(i);
    return at_[n] = Append(std::move(node));
  }

  const Graph& graph_;
  Graph made_;
  std::vector<NodeId> at_;  // by node of the cut graph: its value in the new graph
};

// Gives the dims of a canonical graph their former names.
void RestoreDims(const std::vector<std::string>& former, const Graph& like, Graph* graph) {
  std::map<std::string, Expr, std::less<>> names;
  for (size_t i = 0; i < former.size(); ++i) {
    const std::string name = absl::StrCat("d", i);
    if (former[i] != name) names.emplace(name, Expr::Symbol(former[i]));
  }
  graph->dims = like.dims;
  if (!names.empty()) SubstituteDims(names, graph);
}

}  // namespace

void MovePlaces(const std::vector<NodeId>& moved, std::vector<std::vector<NodeId>>* places) {
  for (std::vector<NodeId>& instance : *places) {
    for (NodeId& n : instance) n = n < 0 ? -1 : moved[n];
  }
}

void SubstituteDims(const std::map<std::string, Expr, std::less<>>& values, Graph* graph) {
  const auto substitute = [&](Expr& e) {
    if (!e.constant()) e = e.Substitute(values);
  };
  for (Node& node : graph->nodes) {
    for (Expr& e : node.type.shape) substitute(e);
    EditExprs(&node.attrs, substitute);
  }
}

Graph CanonicalizeLike(const Graph& graph, const Graph& like, std::vector<NodeId>* moved) {
  std::vector<std::string> former;
  Graph made = Canonicalize(graph, &former, moved);
  RestoreDims(former, like, &made);
  made.name = like.name;
  const auto rename = [&](const std::vector<NodeId>& to, const std::vector<NodeId>& from) {
    for (size_t i = 0; i < to.size(); ++i) made.nodes[to[i]].name = like.node(from[i]).name;
  };
  rename(made.InputIds(), like.InputIds());
  rename(made.ParameterIds(), like.ParameterIds());
  rename(made.StateIds(), like.StateIds());
  for (size_t i = 0; i < made.outputs.size(); ++i) made.outputs[i].name = like.outputs[i].name;
  return made;
}

absl::StatusOr<Graph> Stitch(const Graph& graph, const Regions& regions,
                             absl::Span<const Graph* const> forms) {
  if (forms.size() != regions.distinct.size()) {
    return absl::InvalidArgumentError(absl::StrCat(forms.size(), " forms where the graph has ",
                                                   regions.distinct.size(), " regions"));
  }
  std::vector<const Graph*> each;
  for (const RegionInstance& instance : regions.instances) each.push_back(forms[instance.region]);
  return StitchInstances(graph, regions, each);
}

absl::StatusOr<Graph> StitchInstances(const Graph& graph, const Regions& regions,
                                      absl::Span<const Graph* const> forms,
                                      std::vector<std::vector<NodeId>>* places) {
  if (forms.size() != regions.instances.size()) {
    return absl::InvalidArgumentError(absl::StrCat(forms.size(), " forms where the graph has ",
                                                   regions.instances.size(), " instances"));
  }
  std::set<std::pair<int, const Graph*>> checked;
  Stitcher stitcher(graph);
  if (places != nullptr) places->clear();
  for (size_t i = 0; i < forms.size(); ++i) {
    const RegionInstance& instance = regions.instances[i];
    // Instances share forms, and each is checked once.
    if (checked.emplace(instance.region, forms[i]).second) {
      const absl::Status s = CheckForm(*forms[i], regions.distinct[instance.region].graph);
      if (!s.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the form of region ", instance.region, " ", s.message()));
      }
    }
    std::vector<NodeId> at = stitcher.Place(instance, *forms[i]);
    if (places != nullptr) places->push_back(std::move(at));
  }
  std::vector<NodeId> moved;
  Graph made = stitcher.Finish(&moved);
  if (places != nullptr) MovePlaces(moved, places);
  return made;
}

}  // namespace athanor
