// A space of equal graphs, called forms, that a search chooses from: what the rules make of one
// graph.
//
//   Search search(SingleForm(graph), target, machine, options);        // nothing is rewritten
//   Search search(RegionForms::Create(graph, ...), target, machine, options);
//
// A form keeps its number: asked again, a space returns the same graph. All forms have the same
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

// Returns the cost of a graph with the dims of form 0, as a share of the baseline's time: its
// kernels' measured times, or predicted ones where none is known. Changes as the search learns.
using GraphCost = std::function<double(const Graph&)>;

// Result of saturating one distinct region.
struct RegionReport {
  int instances = 0;    // in the graph
  int graph_nodes = 0;  // of one instance
  size_t e_nodes = 0, e_classes = 0;
  int iterations = 0;
  double seconds = 0;
  size_t peak_bytes = 0;
  egraph::StopReason stop = egraph::StopReason::kSaturated;
  // Rule rows that found anything, in the registry's order; the rules of a row are summed.
  std::vector<egraph::RuleReport> rules;
};

// A form made from recipes, with the memory that they give its values.
struct RecipeForm {
  int form = 0;
  std::map<NodeId, bool> memory;  // by node of graph(form)
  std::vector<size_t> recipes;    // indices of the given recipes whose forms it contains
};

// A distinct region in a form: the graph it is computed as, and its nodes.
struct RegionPart {
  RegionName region;
  std::string form;  // FormText
  // For each instance computed so, by place in FormOrder: the node of graph(form); -1: none.
  std::vector<std::vector<NodeId>> nodes;
};

class FormSpace {
 public:
  virtual ~FormSpace() = default;

  // Returns a form's graph, valid as long as the space. The baseline was made from form 0.
  virtual const Graph& graph(int form) const = 0;
  // Returns the rule rows that lead to the form, "contract_takes_scale contracts_share_operand";
  // empty for 0.
  virtual std::string About(int form) const = 0;
  // Returns forms that differ from `form` by one choice, made alike in all equal regions, or by the
  // layouts of values between regions; best predicted first. Bounded, and deterministic for a given
  // cost.
  virtual std::vector<int> Neighbours(int form) = 0;
  virtual std::vector<RegionReport> Report() const = 0;
  // Returns the e-graph of one of Report()'s regions as Graphviz text. NOT_FOUND: there is no such
  // region. FAILED_PRECONDITION: it has no e-graph, or one of more than `max_nodes` e-nodes.
  virtual absl::StatusOr<std::string> Dot(int region, size_t max_nodes) const;
  // Sets the cost. Called once, by the search that owns the space, before Neighbours. What `cost`
  // refers to must outlive the space.
  virtual void UseCost(GraphCost cost) = 0;
  // Returns the forms of the recipes that the space was given: the first recipe of each region,
  // then the second, and so on, as far as the regions' e-graphs contain them.
  virtual std::vector<RecipeForm> FromRecipes() { return {}; }
  // Returns the parts of a form whose regions have names. Leaves out regions that were joined from
  // two, and instances with values in other layouts.
  virtual std::vector<RegionPart> Parts(int) const { return {}; }
  // Returns the error that left the space with form 0 only; else OK.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// Returns a space of one form.
std::unique_ptr<FormSpace> SingleForm(Graph graph);

// Returns a space that calls `make` when neighbours or recipes are first asked for, so that a
// search measures its baseline before. `graph` is its form 0, and its only one if `make` fails.
using MakeForms = std::function<absl::StatusOr<std::unique_ptr<FormSpace>>()>;
std::unique_ptr<FormSpace> DeferredForms(Graph graph, MakeForms make);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_FORMS_H_
