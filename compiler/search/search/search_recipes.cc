// Recipes in a search: tries those it was given and makes new ones of what it found.
#include <algorithm>
#include <map>
#include <utility>

#include "compiler/search/search/search.h"

namespace athanor {

bool Search::AskForSuggested(int task, Step* step) {
  Tuning& t = tasks_[task];
  bool any = false;
  for (const RecipeSchedules::Suggested& suggested : suggested_.For(t.task())) {
    const std::optional<size_t> schedule = t.Find(suggested.like);
    if (!schedule) continue;  // of another target, or a family that is switched off
    AskFor(task, *schedule, step);
    if (!t.asked(*schedule)) continue;
    recipes_tried_.insert(suggested.recipe);
    any = true;
  }
  return any;
}

size_t Search::LikedBest(int task, Schedules which) {
  Tuning& t = tasks_[task];
  if (which == Schedules::kSuggested) {
    for (const RecipeSchedules::Suggested& suggested : suggested_.For(t.task())) {
      const std::optional<size_t> schedule = t.Find(suggested.like);
      if (!schedule) continue;
      recipes_tried_.insert(suggested.recipe);
      return *schedule;
    }
  }
  return t.BestPredicted();
}

Fusion Search::FusionOf(const RecipeForm& form) {
  // Memory that one value gets or loses may open a choice for others.
  constexpr int kRounds = 3;
  const Graph& graph = forms_->graph(form.form);
  const TaskIndex& index = IndexOf(form.form);
  Fusion fusion{{}, options_.fusion};
  for (int round = 0; round < kRounds; ++round) {
    bool changed = false;
    for (const auto& [node, say] :
         FusionFlips(graph, GenomeOf(graph, index, fusion), options_.fusion)) {
      const auto known = form.memory.find(node);
      if (known == form.memory.end() || known->second != (say == Fuse::kMemory)) continue;
      changed |= fusion.nodes.insert({node, say}).second;
    }
    if (!changed) break;
  }
  return fusion;
}

std::optional<Search::State> Search::NextFromRecipes() {
  if (suggested_.empty()) return std::nullopt;
  if (!recipe_forms_) {
    std::vector<RecipeForm> forms = forms_->FromRecipes();
    if (forms.empty()) forms.push_back({});  // the graph as it is, with the recipes' schedules
    recipe_forms_.emplace(forms.begin(), forms.end());
  }
  while (!recipe_forms_->empty()) {
    const RecipeForm form = std::move(recipe_forms_->front());
    recipe_forms_->pop_front();
    State state = MakeState(form.form, FusionOf(form));
    const bool is_best = state.form == best_.form && state.calls == best_.calls;
    if (is_best && !fast()) continue;
    recipes_tried_.insert(form.recipes.begin(), form.recipes.end());
    ++genomes_tried_;
    if (state.form != best_.form) ++forms_tried_;
    return state;
  }
  return std::nullopt;
}

std::optional<Search::Step> Search::TryRecipes() {
  if (suggested_.empty() || !recipes_left_ || finishing_ || !MayAsk()) return std::nullopt;
  Step step;
  if (!recipe_forms_) {
    for (const auto& [task, calls] : best_.calls) AskForSuggested(task, &step);
  }
  while (step.kernels.empty()) {
    std::optional<State> state = NextFromRecipes();
    if (!state) break;
    AskForState(*state, &step);
    if (step.kernels.empty()) {
      Take(*std::move(state));  // all its kernels are known
    } else {
      trying_ = std::move(state);
      trying_steps_ = 0;
    }
  }
  if (!step.kernels.empty()) return step;
  recipes_left_ = false;
  return ProposeBest(2 * options_.least_gain);
}

std::vector<RegionRecipe> Search::Recipes() {
  std::vector<RegionRecipe> recipes;
  if (taken_ < 0) return recipes;
  const PlanCandidate& plan = plans_[taken_];
  const Graph& graph = forms_->graph(plan.form);
  TaskIndex& index = IndexOf(plan.form);
  const std::vector<bool> memory = MemoryOf(graph, plan.genome);
  std::map<NodeId, const KernelChoice*> roots;
  for (const KernelChoice& kernel : plan.genome.kernels) {
    if (!index.weights()[kernel.root]) roots[kernel.root] = &kernel;
  }
  std::map<int, std::string> keys;  // by task
  for (const RegionPart& part : forms_->Parts(plan.form)) {
    RegionRecipe made{part.region, {.form = part.form}};
    for (const std::vector<NodeId>& nodes : part.nodes) {
      const bool first = &nodes == &part.nodes.front();
      for (size_t place = 0; place < nodes.size(); ++place) {
        const auto root = roots.find(nodes[place]);
        if (root == roots.end()) continue;
        if (first) made.recipe.memory.insert(static_cast<int>(place));
        const int task = TaskOf(graph, index, memory, *root->second);
        const auto [key, fresh] = keys.try_emplace(task);
        if (fresh) key->second = KernelKeyOf(tasks_[task].task());
        made.recipe.schedules.try_emplace(key->second, ScheduleText(*root->second));
      }
    }
    if (!made.recipe.schedules.empty()) recipes.push_back(std::move(made));
  }
  return recipes;
}

}  // namespace athanor
