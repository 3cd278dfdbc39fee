// Equal graphs that a search may choose from: what the rules make of one graph.
//
//   Search search(SingleForm(graph), target, machine, options);        // nothing is rewritten
//   Search search(RegionForms::Create(graph, ...), target, machine, options);
//
// A form has a number for good: asked again, a space gives the same graph. All forms have the same
// dims, inputs, parameters and outputs, by name and order. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_FORMS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_FORMS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/egraph/report.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/regions/recipe.h"

namespace athanor {

// What a graph with the dims of form 0 costs by what is known so far: its kernels' measured times,
// else predicted ones, as a share of the baseline's time. Changes as the search learns.
using GraphCost = std::function<double(const Graph&)>;

// What saturation made of one distinct region.
struct RegionReport {
  int instances = 0;    // places of the graph that it stands for
  int graph_nodes = 0;  // of one instance
  size_t e_nodes = 0, e_classes = 0;
  int iterations = 0;
  double seconds = 0;
  size_t peak_bytes = 0;
  egraph::StopReason stop = egraph::StopReason::kSaturated;
  // Rows that found anything, all rules of a row as one, in the registry's order.
  std::vector<egraph::RuleReport> rules;
};

// A form that recipes come to, and the memory that they gave its values.
struct RecipeForm {
  int form = 0;
  std::map<NodeId, bool> memory;  // of graph(form)
  std::vector<size_t> recipes;    // whose forms it has, by place among those that were given
};

// What a distinct region is computed as in a form.
struct RegionPart {
  RegionName region;
  std::string form;  // FormText
  // By instance that is computed so, by place in FormOrder: the node of graph(form); -1: none.
  std::vector<std::vector<NodeId>> nodes;
};

class FormSpace {
 public:
  virtual ~FormSpace() = default;

  // Form 0 is what the baseline was made from. Valid as long as the space.
  virtual const Graph& graph(int form) const = 0;
  // The rows that lead to the form, "contract_takes_scale contracts_share_operand"; empty for 0.
  virtual std::string About(int form) const = 0;
  // Forms that differ from `form` by one choice, made the same way in all equal regions, or by the
  // layouts of what crosses between regions; best predicted first. Deterministic, given what the
  // cost says, and bounded.
  virtual std::vector<int> Neighbours(int form) = 0;
  virtual std::vector<RegionReport> Report() const = 0;
  // The e-graph of one of Report()'s regions as a picture in Graphviz' language. NOT_FOUND: there
  // is no such region. FAILED_PRECONDITION: it has no e-graph, or one of more than `max_nodes`
  // e-nodes.
  virtual absl::StatusOr<std::string> Dot(int region, size_t max_nodes) const;
  // Called once, by the search that owns the space, before Neighbours; `cost` outlives the space.
  virtual void UseCost(GraphCost cost) = 0;
  // The forms of the recipes that the space was given: of each region the first, then the second,
  // ..., as far as its e-graph has them.
  virtual std::vector<RecipeForm> FromRecipes() { return {}; }
  // Of the regions that have names: not of two in a row that became one, nor of an instance with
  // values in other layouts.
  virtual std::vector<RegionPart> Parts(int) const { return {}; }
  // Why there are no forms but the first, where that is an error.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// A space of one form.
std::unique_ptr<FormSpace> SingleForm(Graph graph);

// The space that `make` gives, made when neighbours are first asked for: a search measures its
// baseline before. `graph` is its form 0. Of one form if `make` fails.
using MakeForms = std::function<absl::StatusOr<std::unique_ptr<FormSpace>>()>;
std::unique_ptr<FormSpace> DeferredForms(Graph graph, MakeForms make);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_FORMS_H_
