#include "compiler/pipeline/recipes.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/pipeline/search_start.h"
#include "compiler/search/regions/region.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

void SetName(const RegionName& name, internal::RegionRecipes* out) {
  out->set_region_hash(name.hash);
  out->set_dim_box(name.dim_box);
  out->set_facts(name.facts);
}

}  // namespace

absl::StatusOr<internal::SearchReply> NameRegions(const internal::SearchStart& start) {
  ASSIGN_OR_RETURN(SearchSetup setup, ReadSearchStart(start));
  internal::SearchReply reply;
  std::set<RegionName> named;
  for (const Region& region : CutRegions(setup.prepared.graph).distinct) {
    const auto [name, fresh] = named.insert(NameOf(region.graph));
    if (fresh) SetName(*name, reply.add_regions());
  }
  return reply;
}

std::vector<RegionRecipe> ReadRecipes(const internal::SearchStart& start,
                                      std::vector<std::string>* refused) {
  std::vector<RegionRecipe> recipes;
  for (const internal::RegionRecipes& region : start.recipes()) {
    const RegionName name{region.region_hash(), region.dim_box(), region.facts()};
    for (const std::string& genome : region.genomes()) {
      absl::StatusOr<Recipe> recipe = ParseRecipe(genome);
      if (recipe.ok()) {
        recipes.push_back({name, *std::move(recipe)});
      } else {
        refused->push_back(absl::StrCat("of region ", name.hash, ": ", recipe.status().message()));
      }
    }
  }
  return recipes;
}

void AddRecipes(const std::vector<RegionRecipe>& recipes, internal::SearchReply* reply) {
  for (const RegionRecipe& recipe : recipes) {
    std::string genome = RecipeText(recipe.recipe);
    if (genome.size() > kMaxRecipeBytes) continue;
    internal::RegionRecipes* out = reply->add_recipes();
    SetName(recipe.region, out);
    out->add_genomes(std::move(genome));
  }
}

}  // namespace athanor
