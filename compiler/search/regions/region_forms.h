// The forms that the rules make of a graph; neighbours differ by one choice.
//
//   absl::StatusOr<std::unique_ptr<RegionForms>> forms =
//       RegionForms::Create(prepared, {.sizes = {{1, 128}}, .machine = machine});
//   Search search(*std::move(forms), target, machine, options);
//
// The graph is cut into regions (region.h). Each distinct one is saturated once (region_terms.h),
// the most expensive first. A form has one choice for each distinct region, so equal layers change
// together. Two adjacent regions become one if their common e-graph knows a cheaper way than both
// together. Where a form stores values between regions in other layouts, instances of a region may
// differ by the layouts of their ends (region_joins.h).
//
// Neighbours of a form are, best predicted first: for each region its greedy extraction and choices
// with another node in one class; the best choices of all regions at once; and these joined over
// the layouts of the values between them. GraphCost decides the order. It is asked a bounded number
// of times, about graphs of regions, whose dims are those of the graph. Single-threaded, like the
// tuner that owns it.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_forms_options.h"
#include "compiler/search/regions/region_joins.h"
#include "compiler/search/regions/region_solver.h"
#include "compiler/search/regions/region_terms.h"

namespace athanor {

class RegionForms : public FormSpace {
 public:
  // Cuts the graph and saturates its regions. REQUIRES: Verify(graph).ok(). INTERNAL: a rule is
  // wrong.
  static absl::StatusOr<std::unique_ptr<RegionForms>> Create(const Graph& graph,
                                                             RegionFormsOptions options);

  const Graph& graph(int form) const override { return *forms_[form].graph; }
  std::string About(int form) const override;
  std::vector<int> Neighbours(int form) override;
  std::vector<RegionReport> Report() const override;
  absl::StatusOr<std::string> Dot(int region, size_t max_nodes) const override;
  std::vector<RecipeForm> FromRecipes() override;
  std::vector<RegionPart> Parts(int form) const override;
  void UseCost(GraphCost cost) override { cost_ = std::move(cost); }

  // Returns a form of random choices in every region, half of the time with random boundary
  // layouts, for tests: it is as right as any other.
  absl::StatusOr<Graph> RandomForm(uint64_t seed) const;

  const Regions& regions() const { return regions_; }
  // Null if the rules do not allow other layouts.
  const RegionJoins* joins() const { return joins_.get(); }

 private:
  // A way to compute a distinct region.
  struct Choice {
    egraph::Choice choice;
    Graph graph;
    bool searched = false;       // `near` is filled in
    std::vector<int> near = {};  // choices that differ from it in one class
  };
  struct Solved {
    std::shared_ptr<RegionTerms> terms;  // null: no memory or time was left for it
    std::vector<Choice> choices;         // [0] is the region as it was cut
    std::map<std::string, int> by_hash;  // index in `choices` by hash of the canonical graph
    int cheapest = 0;
  };
  // The choice for each part of the graph.
  struct FormGenome {
    std::vector<int> choices;  // by distinct region
    // by instance: index in joins_->variants(), or -1; empty: none has one
    std::vector<int> joined;
    auto operator<=>(const FormGenome&) const = default;
  };
  struct Form {
    FormGenome genome;
    std::unique_ptr<Graph> graph;
  };
  struct Candidate {
    double gain;
    FormGenome genome;
  };

  RegionForms(const Graph& graph, RegionFormsOptions options);
  absl::Status Solve();
  absl::Status PrepareJoins();

  int AddChoice(int region, const egraph::Choice& choice);
  const std::vector<int>& Near(int region, int choice);
  double CostOf(const Graph& graph) const;
  double CostOf(int region, int choice) const {
    return CostOf(solved_[region].choices[choice].graph);
  }
  std::vector<int> InstancesAsTheyAre(const FormGenome& genome) const;
  void AddJoined(const FormGenome& from, const FormGenome& best,
                 std::vector<Candidate>* candidates) const;
  int AddForm(FormGenome genome);
  // Returns the form with this canonical graph; if there is none, the number of the form to be made
  // next.
  int FormOf(const Graph& graph) const;
  // Returns the graph of each instance; borrowed.
  std::vector<const Graph*> GraphsOf(const FormGenome& genome) const;
  // Stitches `forms`; `places` as StitchInstances gives them.
  absl::StatusOr<Graph> Build(const std::vector<const Graph*>& forms,
                              std::vector<std::vector<NodeId>>* places = nullptr) const;
  // Returns by instance the nodes of its graph in graph(form); empty if they are not known.
  std::vector<std::vector<NodeId>> PlacesOf(int form) const;
  // Returns the choice that has the recipe's form; nullopt if the region's e-graph does not contain
  // it.
  std::optional<int> ChoiceOf(int region, const Recipe& recipe);

  const RegionFormsOptions options_;
  const NodeCosts costs_;
  Regions regions_;
  std::set<std::string> cut_;   // keys of the regions as the graph was first cut
  std::vector<Solved> solved_;  // by distinct region
  std::vector<int> dearest_;    // distinct regions that have an e-graph, most expensive first
  RegionSolver solver_;
  std::vector<Form> forms_;
  size_t form_nodes_ = 0;
  std::map<FormGenome, int> form_of_;
  std::unique_ptr<RegionJoins> joins_;
  GraphCost cost_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_H_
