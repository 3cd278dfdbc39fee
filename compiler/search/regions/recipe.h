// A recipe: what a search chose for one distinct region of a graph (region.h), as text. A search
// for another graph with an equal region, on any machine, tries it as a candidate.
//
//   RegionName name = NameOf(region.graph);                 // what it is kept under
//   std::string text = RecipeText(recipe);                  // v1::RegionRecipe.genome
//   Recipe same = ParseRecipe(text).value();
//   Graph form = FormFor(same, region.graph).value();       // with the region's own dims
//
// A recipe holds nothing of a model but the region's shape: dims are d0, d1, ... of the canonical
// region, leaves are "x0", ..., "p0", ..., and no weight has contents or a magnitude. Its readers
// do not trust it: a form counts only if the region's own e-graph contains it, a schedule only if
// the kernel's own space contains it, and both have to win their measurement.
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

// Name of a region in other graphs; texts as in v1::RegionRecipe.
struct RegionName {
  std::string hash;     // of the canonical graph without magnitudes, 64 hex digits
  std::string dim_box;  // of the dims it uses: "d0=1..64"
  std::string facts;    // other facts for rules, magnitudes of weights: "p0=20 p2=60"

  auto operator<=>(const RegionName&) const = default;
};
RegionName NameOf(const Graph& region);

struct Recipe {
  std::string form;      // IR text of the graph that computes the region: FormText
  std::set<int> memory;  // values with memory, by place in FormOrder of the form
  // ScheduleText by KernelKeyOf.
  std::map<std::string, std::string> schedules;

  bool operator==(const Recipe&) const = default;
};
// Bytes of the longest recipe that a cache takes.
inline constexpr size_t kMaxRecipeBytes = size_t{1} << 20;

std::string RecipeText(const Recipe& recipe);
// INVALID_ARGUMENT names the line and what is wrong with it. FormFor checks that the form is a
// graph.
absl::StatusOr<Recipe> ParseRecipe(absl::string_view text);

// Returns the key of a kernel's task, the same for any bounds and names of its dims: 64 hex digits.
std::string KernelKeyOf(const KernelTask& task);

// Returns `form` as a recipe holds it. `form` has the dims, Inputs and Parameters of `region`.
std::string FormText(const Graph& form, const Graph& region);
// Returns the recipe's form over `region`'s dims, with the magnitudes of its weights.
// INVALID_ARGUMENT: it is no graph, or has other dims, Inputs, Parameters or outputs than the
// region.
absl::StatusOr<Graph> FormFor(const Recipe& recipe, const Graph& region);
// Returns by node of `form` its place in the canonical form, views composed; -1 for leaves and for
// nodes that are not in it.
std::vector<int> FormOrder(const Graph& form);

// A recipe and the region it is for.
struct RegionRecipe {
  RegionName region;
  Recipe recipe;
};

// Schedules that recipes suggest for kernels. Used by one thread at a time.
class RecipeSchedules {
 public:
  struct Suggested {
    size_t recipe;  // index in the recipes this was made from
    KernelChoice like;
  };
  explicit RecipeSchedules(const std::vector<RegionRecipe>& recipes);

  // Returns the suggestions for a task in the order of the recipes, each schedule once.
  const std::vector<Suggested>& For(const KernelTask& task) const;
  bool empty() const { return by_kernel_.empty(); }

 private:
  std::map<std::string, std::vector<Suggested>> by_kernel_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_REGIONS_RECIPE_H_
