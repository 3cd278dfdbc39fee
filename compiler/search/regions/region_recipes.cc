// Recipes in a space of forms: finds recipes' forms among the choices of the regions' e-graphs, and
// tells which graph a form computes each region as.
#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/rules/terms/views.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/regions/region_forms.h"

namespace athanor {

std::optional<int> RegionForms::ChoiceOf(int region, const Recipe& recipe) {
  const absl::StatusOr<Graph> form = FormFor(recipe, regions_.distinct[region].graph);
  if (!form.ok()) return std::nullopt;
  Solved& solved = solved_[region];
  if (CanonicalHash(*form) == CanonicalHash(solved.choices[0].graph)) return 0;
  const std::string hash = CanonicalHash(ComposeViews(*form));
  if (const auto known = solved.by_hash.find(hash); known != solved.by_hash.end()) {
    return known->second;
  }
  if (solved.terms == nullptr) return std::nullopt;
  const std::optional<egraph::Choice> choice = solved.terms->ChoiceOf(*form);
  if (!choice) return std::nullopt;
  const int made = AddChoice(region, *choice);
  // The choice must give the recipe's own form; AddChoice answers 0 if it cannot be extracted.
  if (CanonicalHash(solved.choices[made].graph) != hash) return std::nullopt;
  return made;
}

std::vector<std::vector<NodeId>> RegionForms::PlacesOf(int form) const {
  std::vector<std::vector<NodeId>> places;
  const absl::StatusOr<Graph> again = Build(GraphsOf(forms_[form].genome), &places);
  // Build did not make the first form.
  if (!again.ok() || ToText(*again) != ToText(*forms_[form].graph)) return {};
  return places;
}

std::vector<RecipeForm> RegionForms::FromRecipes() {
  std::vector<std::vector<size_t>> of(solved_.size());  // by distinct region
  size_t most = 0;
  for (size_t r = 0; r < of.size() && !options_.recipes.empty(); ++r) {
    const RegionName name = NameOf(regions_.distinct[r].graph);
    for (size_t i = 0; i < options_.recipes.size(); ++i) {
      if (options_.recipes[i].region == name) of[r].push_back(i);
    }
    most = std::max(most, of[r].size());
  }
  std::vector<RecipeForm> made;
  // Each form takes every region's recipe of this rank, or the region's last one.
  for (size_t rank = 0; rank < most; ++rank) {
    FormGenome genome = forms_[0].genome;
    std::vector<const Recipe*> used(solved_.size(), nullptr);
    std::vector<std::vector<int>> orders(solved_.size());
    RecipeForm form;
    for (size_t r = 0; r < of.size(); ++r) {
      if (of[r].empty()) continue;
      const size_t recipe = of[r][std::min(rank, of[r].size() - 1)];
      const auto choice = ChoiceOf(static_cast<int>(r), options_.recipes[recipe].recipe);
      if (!choice) continue;
      genome.choices[r] = *choice;
      used[r] = &options_.recipes[recipe].recipe;
      orders[r] = FormOrder(solved_[r].choices[*choice].graph);
      form.recipes.push_back(recipe);
    }
    form.form = form.recipes.empty() ? -1 : AddForm(std::move(genome));
    if (form.form < 0) continue;
    const std::vector<std::vector<NodeId>> places = PlacesOf(form.form);
    for (size_t i = 0; i < places.size(); ++i) {
      const int r = regions_.instances[i].region;
      for (size_t n = 0; used[r] != nullptr && n < places[i].size(); ++n) {
        if (orders[r][n] < 0 || places[i][n] < 0) continue;
        form.memory[places[i][n]] |= used[r]->memory.contains(orders[r][n]);
      }
    }
    made.push_back(std::move(form));
  }
  return made;
}

std::vector<RegionPart> RegionForms::Parts(int form) const {
  const FormGenome& genome = forms_[form].genome;
  const std::vector<std::vector<NodeId>> places = PlacesOf(form);
  std::vector<RegionPart> parts;
  for (size_t r = 0; r < solved_.size() && !places.empty(); ++r) {
    const Region& region = regions_.distinct[r];
    if (!cut_.contains(region.key)) continue;
    const Choice& choice = solved_[r].choices[genome.choices[r]];
    const std::vector<int> order = FormOrder(choice.graph);
    RegionPart part;
    for (size_t i = 0; i < places.size(); ++i) {
      if (regions_.instances[i].region != static_cast<int>(r)) continue;
      if (!genome.joined.empty() && genome.joined[i] >= 0) continue;
      std::vector<NodeId>& nodes = part.nodes.emplace_back();
      for (size_t n = 0; n < order.size(); ++n) {
        if (order[n] < 0) continue;
        nodes.resize(std::max<size_t>(nodes.size(), order[n] + 1), -1);
        nodes[order[n]] = places[i][n];
      }
    }
    if (part.nodes.empty()) continue;
    absl::StatusOr<Graph> extracted = choice.graph;
    if (genome.choices[r] > 0) extracted = solved_[r].terms->Extract(choice.choice);
    if (!extracted.ok()) continue;
    part.region = NameOf(region.graph);
    part.form = FormText(*extracted, region.graph);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace athanor
