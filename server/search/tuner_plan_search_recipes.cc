// A search's recipes: those that the cache has for regions of its graph, and what it leaves there.
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "compiler/ir/graph/versions.h"
#include "server/base/log.h"
#include "server/search/tuner_plan_search.h"

namespace athanor {
namespace {

constexpr size_t kMostRecipes = 3;                 // of one region
constexpr size_t kRecipeBytes = size_t{16} << 20;  // of all: a bundle's may be of any size

RecipeKey KeyOf(const internal::RegionRecipes& region) {
  return {.region_hash = region.region_hash(),
          .dim_box = region.dim_box(),
          .facts = region.facts(),
          .semantics_version = kSemanticsVersion,
          .recipe_format = kRecipeFormat};
}

}  // namespace

absl::Status TunerPlanSearch::LearnRecipes() {
  if (!recipes_ || std::exchange(recipes_learnt_, true)) return absl::OkStatus();
  internal::SearchRequest request;
  request.set_session(session_);
  *request.mutable_start() = start_;
  request.mutable_start()->set_name_regions(true);
  absl::StatusOr<internal::SearchReply> named = tuner_.Search(request);
  if (absl::IsCancelled(named.status()) || absl::IsAborted(named.status())) return named.status();
  if (!named.ok()) {
    // What is wrong with the graph, the search will say.
    LogWarn("search without recipes", {{"error", named.status().ToString()}});
    return absl::OkStatus();
  }
  size_t bytes = 0;
  for (internal::RegionRecipes& region : *named->mutable_regions()) {
    if (bytes > kRecipeBytes) break;
    for (v1::RegionRecipe& found :
         maker_.cache()->recipes().Find(KeyOf(region), machine_.target(), kMostRecipes)) {
      bytes += found.genome().size();
      if (bytes > kRecipeBytes) break;
      region.add_genomes(std::move(*found.mutable_genome()));
    }
    if (region.genomes_size() > 0) *start_.add_recipes() = std::move(region);
  }
  return absl::OkStatus();
}

void TunerPlanSearch::KeepRecipes() {
  for (const std::string& why : step_.refused_recipes()) {
    LogWarn("recipe left out", {{"error", why}});
  }
  if (!recipes_) return;
  const v1::Target& target = machine_.target();
  for (const internal::RegionRecipes& region : step_.recipes()) {
    for (const std::string& genome : region.genomes()) {
      v1::RegionRecipe recipe;
      recipe.set_genome(genome);
      recipe.set_device(target.device());
      recipe.set_cpu(target.cpu());
      recipe.set_threads(target.threads());
      recipe.set_rule_set(absl::BytesToHexString(machine_.rule_set()));
      recipe.set_share_of_baseline(progress_.best());
      maker_.cache()->recipes().Put(KeyOf(region), recipe);
    }
  }
}

}  // namespace athanor
