// The recipes that a search was given: the schedules and the forms that they suggest, each tried
// once, before the search's own candidates.
//
//   RecipeTrials recipes(&options, &tasks);
//   recipes.AskForSuggested(task, &requests, &asked);
//   while (std::optional<RecipeForm> form = recipes.NextForm(forms)) recipes.MarkTried(*form);
//
// Recipes are hints: a schedule counts only if it is one of the task's own, a form only if the
// space of forms finds it. Used by one thread at a time.
#ifndef ATHANOR_COMPILER_SEARCH_SEARCH_RECIPE_TRIALS_H_
#define ATHANOR_COMPILER_SEARCH_SEARCH_RECIPE_TRIALS_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "compiler/search/regions/forms.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/search/genomes.h"
#include "compiler/search/search/kernel_requests.h"
#include "compiler/search/search/search_options.h"
#include "compiler/search/search/task_table.h"

namespace athanor {

class RecipeTrials {
 public:
  // Borrows the tasks.
  RecipeTrials(const SearchOptions& options, TaskTable* tasks);

  // Reports whether no recipe suggests anything.
  bool empty() const { return suggested_.empty(); }
  // Asks for the schedules that recipes suggest. Returns false if there are none.
  bool AskForSuggested(int task, KernelRequests* requests, std::vector<int>* asked);
  // Returns the first schedule suggested for a task; nullopt if there is none.
  std::optional<size_t> FirstSuggested(int task);

  // Returns the next form made from recipes; nullopt if none is left. The first call asks the
  // space for them; if it has none, the graph as it is stands for the recipes' schedules.
  std::optional<RecipeForm> NextForm(FormSpace& forms);
  // Reports whether NextForm was called.
  bool started() const { return forms_.has_value(); }

  void MarkTried(const RecipeForm& form) {
    tried_.insert(form.recipes.begin(), form.recipes.end());
  }
  int tried() const { return static_cast<int>(tried_.size()); }

 private:
  TaskTable& tasks_;
  const RecipeSchedules suggested_;
  std::optional<std::deque<RecipeForm>> forms_;  // left; nullopt: not asked for yet
  std::set<size_t> tried_;                       // by index in the options' recipes
};

// Returns recipes for the regions of a plan.
std::vector<RegionRecipe> RecipesOf(const PlanCandidate& plan, const FormSpace& forms,
                                    Genomes& genomes, TaskTable& tasks);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_SEARCH_SEARCH_RECIPE_TRIALS_H_
