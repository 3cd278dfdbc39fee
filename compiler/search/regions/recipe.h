// A recipe: what a search chose for one distinct region of a graph (region.h), as text that the
// search for another graph with an equal region, on any machine, tries as a candidate.
//
//   RegionName name = NameOf(region.graph);                 // what it is kept under
//   std::string text = RecipeText(recipe);                  // v1::RegionRecipe.genome
//   Recipe same = ParseRecipe(text).value();
//   Graph form = FormFor(same, region.graph).value();       // with the region's own dims
//
// It holds nothing of a model but the region's shape: dims are d0, d1, ... of the canonical region,
// what crosses into it "x0", ..., "p0", ..., and no weight has contents or a magnitude. Whoever
// reads one believes nothing of it: a form counts only where the region's own e-graph has it, a
// schedule where it is in its kernel's own space, and both have to win their measurement.
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_SEARCH_REGIONS_RECIPE_H_
#define ATHANOR_COMPILER_SEARCH_REGIONS_RECIPE_H_

#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/search/kernels/schedule.h"
#include "compiler/search/kernels/task.h"

namespace athanor {

// What a region is known by in other graphs; texts as in v1::RegionRecipe.
struct RegionName {
  std::string hash;     // of the canonical graph without magnitudes, 64 hex digits
  std::string dim_box;  // "d0=1..64": of the dims it uses
  std::string facts;    // what rules may rely on besides: "p0=20 p2=60", magnitudes of weights

  auto operator<=>(const RegionName&) const = default;
};
RegionName NameOf(const Graph& region);

struct Recipe {
  std::string form;      // IR text of what the region is computed as: FormText
  std::set<int> memory;  // values with memory: places in FormOrder of the form
  // By KernelKeyOf, as ScheduleText has them.
  std::map<std::string, std::string> schedules;

  bool operator==(const Recipe&) const = default;
};
// More than a cache takes of one.
inline constexpr size_t kMaxRecipeBytes = size_t{1} << 20;

std::string RecipeText(const Recipe& recipe);
// INVALID_ARGUMENT names the line and what is wrong with it. That the form is a graph is for
// FormFor to say.
absl::StatusOr<Recipe> ParseRecipe(absl::string_view text);

// Of a kernel's task, whatever the bounds and names of its dims: 64 hex digits.
std::string KernelKeyOf(const KernelTask& task);

// `form`, which has the dims, Inputs and Parameters of `region`, as a recipe has it.
std::string FormText(const Graph& form, const Graph& region);
// The recipe's form over `region`'s dims, with the magnitudes of its weights. INVALID_ARGUMENT: it
// is no graph, or has other dims, Inputs, Parameters or outputs than the region.
absl::StatusOr<Graph> FormFor(const Recipe& recipe, const Graph& region);
// By node of `form`: its place among those of the canonical form, views composed; -1 for leaves and
// what is not there.
std::vector<int> FormOrder(const Graph& form);

// A recipe with what it is for.
struct RegionRecipe {
  RegionName region;
  Recipe recipe;
};

// The schedules that recipes have for kernels; used by one thread at a time.
class RecipeSchedules {
 public:
  struct Suggested {
    size_t recipe;  // in what this was made of
    KernelChoice like;
  };
  explicit RecipeSchedules(const std::vector<RegionRecipe>& recipes);

  // In the order of the recipes, each schedule once.
  const std::vector<Suggested>& For(const KernelTask& task) const;
  bool empty() const { return by_kernel_.empty(); }

 private:
  std::map<std::string, std::vector<Suggested>> by_kernel_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_RECIPE_H_
