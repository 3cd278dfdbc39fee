// What the rules make of a graph, as forms that differ by one choice.
//
//   absl::StatusOr<std::unique_ptr<RegionForms>> forms =
//       RegionForms::Create(prepared, {.sizes = {{1, 128}}, .machine = machine});
//   Search search(*std::move(forms), target, machine, options);
//
// The graph is cut into regions (region.h); each distinct one is saturated once (region_terms.h),
// those that cost most first. A form has one choice for each distinct region, so equal layers
// change together. Two regions in a row are looked at as one where their e-graph knows a cheaper
// way than both together. Where a form stores values between regions otherwise than as they are,
// instances of a region may differ by the layouts of their ends (region_joins.h).
//
// Neighbours of a form are, best predicted first: for each region its greedy extraction and
// choices with another node in one class, all regions' best at once, and these joined over the
// layouts of the values between them. GraphCost decides the order; it is asked about graphs of
// regions, whose dims are those of the graph, a bounded number of times. Single-threaded, as the
// tuner that owns it is.
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
#include "absl/time/time.h"
#include "compiler/egraph/stopwatch.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/saturate.h"
#include "compiler/search/regions/forms.h"
#include "compiler/search/regions/region.h"
#include "compiler/search/regions/region_joins.h"
#include "compiler/search/regions/region_terms.h"

namespace athanor {

struct RegionFormsOptions {
  std::vector<SizePoint> sizes;  // of the search; not empty
  Machine machine;
  RuleChoice rules;
  CutOptions cut;
  // Of one region.
  egraph::Limits limits = {
      .iterations = 30, .nodes = 20'000, .bytes = size_t{200} << 20, .time = absl::Seconds(1)};
  // Of all regions together; one that finds nothing left keeps its form.
  absl::Duration time = absl::Seconds(10);
  // Of that, for what layouts of boundaries are found besides; they come last.
  absl::Duration join_time = absl::Seconds(2);
  size_t bytes = size_t{1} << 30;
  int max_joins = 4;  // pairs of regions that are tried as one
  // In one call of Neighbours: regions looked at, those that cost most; choices of each that
  // GraphCost is asked about; forms given.
  int max_regions = 24;
  int choices_per_region = 12;
  int max_neighbours = 16;
  size_t max_joined = 2;  // of those, the best joins over boundary layouts
  // In the life of the space: forms, and nodes of all of them, about half a kilobyte each.
  int max_forms = 512;
  size_t max_form_nodes = 500'000;
  JoinOptions join;
  std::vector<RegionRecipe> recipes = {};  // of one region in the order to be tried
};

class RegionForms : public FormSpace {
 public:
  // REQUIRES: Verify(graph).ok(). INTERNAL: a rule is wrong.
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

  // A form of random choices in every region, every other one with random boundary layouts, for
  // tests: as right as any other.
  absl::StatusOr<Graph> RandomForm(uint64_t seed) const;

  const Regions& regions() const { return regions_; }
  // Null where the rules do not allow it.
  const RegionJoins* joins() const { return joins_.get(); }

 private:
  // A way to compute a distinct region.
  struct Choice {
    egraph::Choice choice;
    Graph graph;
    bool searched = false;       // `near` is known
    std::vector<int> near = {};  // choices that differ from it in one class
  };
  struct Solved {
    std::shared_ptr<RegionTerms> terms;  // null: there was no room or time
    std::vector<Choice> choices;         // [0] as it was cut out
    std::map<std::string, int> by_hash;  // of the graph, canonical
    int cheapest = 0;
  };
  // Which way each part of the graph is computed.
  struct FormGenome {
    std::vector<int> choices;  // one for each distinct region
    std::vector<int> joined;   // by instance: a variant of joins_, or -1; empty: none has one
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
  absl::Status SolveRegions(Regions* regions);
  absl::Status JoinWherePays();
  std::vector<std::pair<int, int>> PairsInRow() const;
  absl::Status PrepareJoins();
  // Until `end` since the space was begun. nullopt: there is no time or no room left.
  std::optional<SaturationOptions> Left(absl::Duration end) const;
  absl::StatusOr<std::shared_ptr<RegionTerms>> TermsOf(const Region& region);
  double OriginalSeconds(const Region& region) const;

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
  // The form with this canonical graph; that to be made next if there is none.
  int FormOf(const Graph& graph) const;
  // Of each instance; borrowed.
  std::vector<const Graph*> GraphsOf(const FormGenome& genome) const;
  // `places` as StitchInstances gives them.
  absl::StatusOr<Graph> Build(const std::vector<const Graph*>& forms,
                              std::vector<std::vector<NodeId>>* places = nullptr) const;
  // By instance: the nodes of its graph in graph(form); empty where they are not known.
  std::vector<std::vector<NodeId>> PlacesOf(int form) const;
  // What has the recipe's form; nullopt where the region's e-graph has it not.
  std::optional<int> ChoiceOf(int region, const Recipe& recipe);

  const RegionFormsOptions options_;
  const NodeCosts costs_;
  Regions regions_;
  std::set<std::string> cut_;   // keys of regions as the graph was cut
  std::vector<Solved> solved_;  // by distinct region
  std::vector<int> dearest_;    // distinct regions that have an e-graph, by what they cost
  std::map<std::string, std::shared_ptr<RegionTerms>> known_;  // by the region's key
  egraph::Stopwatch watch_;                                    // since the space is made
  size_t bytes_ = 0;
  std::vector<Form> forms_;
  size_t form_nodes_ = 0;
  std::map<FormGenome, int> form_of_;
  std::unique_ptr<RegionJoins> joins_;
  GraphCost cost_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_REGION_FORMS_H_
