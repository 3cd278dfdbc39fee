#include "compiler/search/search/recipe_trials.h"

#include <map>
#include <string>
#include <utility>

namespace athanor {

RecipeTrials::RecipeTrials(const SearchOptions& options, TaskTable* tasks)
    : tasks_(*tasks), suggested_(options.recipes) {}

bool RecipeTrials::AskForSuggested(int task, KernelRequests* requests, std::vector<int>* asked) {
  Tuning& t = tasks_.at(task);
  bool any = false;
  for (const RecipeSchedules::Suggested& suggested : suggested_.For(t.task())) {
    const std::optional<size_t> schedule = t.Find(suggested.like);
    if (!schedule) continue;  // of another target, or a family that is switched off
    requests->Ask(task, *schedule, asked);
    if (!t.asked(*schedule)) continue;
    tried_.insert(suggested.recipe);
    any = true;
  }
  return any;
}

std::optional<size_t> RecipeTrials::FirstSuggested(int task) {
  Tuning& t = tasks_.at(task);
  for (const RecipeSchedules::Suggested& suggested : suggested_.For(t.task())) {
    const std::optional<size_t> schedule = t.Find(suggested.like);
    if (!schedule) continue;
    tried_.insert(suggested.recipe);
    return schedule;
  }
  return std::nullopt;
}

std::optional<RecipeForm> RecipeTrials::NextForm(FormSpace& forms) {
  if (!forms_) {
    std::vector<RecipeForm> made = forms.FromRecipes();
    if (made.empty()) made.push_back({});
    forms_.emplace(made.begin(), made.end());
  }
  if (forms_->empty()) return std::nullopt;
  RecipeForm form = std::move(forms_->front());
  forms_->pop_front();
  return form;
}

std::vector<RegionRecipe> RecipesOf(const PlanCandidate& plan, const FormSpace& forms,
                                    Genomes& genomes, TaskTable& tasks) {
  std::vector<RegionRecipe> recipes;
  const Graph& graph = forms.graph(plan.form);
  TaskIndex& index = genomes.IndexOf(plan.form);
  const std::vector<bool> memory = MemoryOf(graph, plan.genome);
  std::map<NodeId, const KernelChoice*> roots;
  for (const KernelChoice& kernel : plan.genome.kernels) {
    if (!index.weights()[kernel.root]) roots[kernel.root] = &kernel;
  }
  std::map<int, std::string> keys;  // by task
  for (const RegionPart& part : forms.Parts(plan.form)) {
    RegionRecipe made{part.region, {.form = part.form}};
    for (const std::vector<NodeId>& nodes : part.nodes) {
      const bool first = &nodes == &part.nodes.front();
      for (size_t place = 0; place < nodes.size(); ++place) {
        const auto root = roots.find(nodes[place]);
        if (root == roots.end()) continue;
        if (first) made.recipe.memory.insert(static_cast<int>(place));
        const int task = tasks.Find(graph, index, memory, *root->second);
        const auto [key, fresh] = keys.try_emplace(task);
        if (fresh) key->second = KernelKeyOf(tasks.at(task).task());
        made.recipe.schedules.try_emplace(key->second, ScheduleText(*root->second));
      }
    }
    if (!made.recipe.schedules.empty()) recipes.push_back(std::move(made));
  }
  return recipes;
}

}  // namespace athanor
