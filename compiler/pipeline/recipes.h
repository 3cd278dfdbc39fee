// Recipes (compiler/search/regions/recipe.h) as messages.
//
//   internal::SearchReply names = NameRegions(start).value();     // names.regions()
//   ... what is known of them goes into start.recipes() ...
//   std::vector<std::string> refused;
//   options.recipes = ReadRecipes(start, &refused);
//
// Pure functions, thread-safe.
#ifndef ATHANOR_COMPILER_PIPELINE_RECIPES_H_
#define ATHANOR_COMPILER_PIPELINE_RECIPES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/regions/recipe.h"
#include "proto/athanor/internal/tuner.pb.h"

namespace athanor {

// Returns the distinct regions that the search of `start` will cut its graph into, each name once.
// Errors are those of ReadSearchStart.
absl::StatusOr<internal::SearchReply> NameRegions(const internal::SearchStart& start);

// Returns the recipes of `start` that can be read; `refused` receives a line for each of the
// others.
std::vector<RegionRecipe> ReadRecipes(const internal::SearchStart& start,
                                      std::vector<std::string>* refused);

// Adds recipes to `reply`, without those that are too long for a cache.
void AddRecipes(const std::vector<RegionRecipe>& recipes, internal::SearchReply* reply);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_RECIPES_H_
