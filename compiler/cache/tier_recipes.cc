// Recipes: choices for a region, which any machine may try.
#include <algorithm>
#include <tuple>
#include <utility>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_reader.h"
#include "compiler/cache/cache_writer.h"
#include "compiler/cache/rows.h"

namespace athanor {
namespace {

struct QueuedRecipe {
  RecipeKey key;
  v1::RegionRecipe recipe;
};

// Returns the distance of a recipe from the key and machine asked for; smaller is nearer.
auto Distance(const v1::RegionRecipe& recipe, const RecipeKey& key, const v1::Target& machine) {
  return std::tuple(recipe.dim_box() != key.dim_box || recipe.facts() != key.facts,
                    recipe.device() != machine.device(), recipe.cpu() != machine.cpu(),
                    recipe.threads() != machine.threads(), recipe.share_of_baseline(),
                    absl::string_view(recipe.genome()));
}

bool Equal(const v1::RegionRecipe& a, const v1::RegionRecipe& b) {
  return a.genome() == b.genome() && a.dim_box() == b.dim_box() && a.facts() == b.facts() &&
         a.device() == b.device() && a.cpu() == b.cpu() && a.threads() == b.threads();
}

}  // namespace

v1::RegionRecipe RecipeOf(const RowView& row) {
  v1::RegionRecipe recipe;
  recipe.set_region_hash(std::string(row.Text("region_hash")));
  recipe.set_dim_box(std::string(row.Text("dim_box")));
  recipe.set_facts(std::string(row.Text("facts")));
  recipe.set_format(static_cast<int32_t>(row.Int("recipe_format")));
  recipe.set_genome(std::string(row.Text("genome")));
  recipe.set_device(std::string(row.Text("device")));
  recipe.set_cpu(std::string(row.Text("cpu")));
  recipe.set_threads(static_cast<int32_t>(row.Int("threads")));
  recipe.set_rule_set(std::string(row.Text("rule_set")));
  recipe.set_share_of_baseline(row.Real("share_of_baseline"));
  return recipe;
}

std::vector<v1::RegionRecipe> Cache::FindRecipes(const RecipeKey& key, const v1::Target& machine,
                                                 size_t most) {
  std::vector<v1::RegionRecipe> recipes;
  const auto add = [&](v1::RegionRecipe recipe) {
    for (const v1::RegionRecipe& known : recipes) {
      if (Equal(known, recipe)) return;
    }
    recipes.push_back(std::move(recipe));
  };
  const auto add_queued = [&](bool imported) {
    for (const auto& row : writer_->Pending(Tier::kRecipes, key.region_hash)) {
      const auto& queued = std::any_cast<const QueuedRecipe&>(row->value);
      if (row->imported == imported && queued.key.semantics_version == key.semantics_version &&
          queued.key.recipe_format == key.recipe_format) {
        add(queued.recipe);
      }
    }
  };
  add_queued(/*imported=*/false);
  const CacheReader::Outcome outcome = reader_->Select(
      Tier::kRecipes,
      "region_hash = ?1 AND semantics_version = ?2 AND recipe_format = ?3"
      " ORDER BY dim_box = ?4 AND facts = ?5 DESC, device = ?6 DESC, cpu = ?7 DESC,"
      " threads = ?8 DESC, share_of_baseline LIMIT ?9",
      {key.region_hash, key.semantics_version, key.recipe_format, key.dim_box, key.facts,
       machine.device(), machine.cpu(), int64_t{machine.threads()}, static_cast<int64_t>(most)},
      [&](const RowView& row) {
        add(RecipeOf(row));
        return true;
      });
  add_queued(/*imported=*/true);
  if (recipes.empty()) {
    reader_->CountMiss(Tier::kRecipes, outcome.Reason(), nullptr);
  } else {
    reader_->CountHit(Tier::kRecipes);
  }
  std::sort(recipes.begin(), recipes.end(), [&](const auto& a, const auto& b) {
    return Distance(a, key, machine) < Distance(b, key, machine);
  });
  if (recipes.size() > most) recipes.resize(most);
  return recipes;
}

CacheRow RecipeRow(const RecipeKey& key, const v1::RegionRecipe& recipe, absl::string_view origin) {
  const KeyFields fields = key.Fields();
  // An imported recipe's share was measured on another machine: a row found here stays.
  CacheRow out{.tier = Tier::kRecipes, .key = key.region_hash, .imported = origin != "search"};
  out.values = ValuesOf(Tier::kRecipes, fields,
                        {{"key", Bytes{GateHash(fields)}},
                         {"device", recipe.device()},
                         {"cpu", recipe.cpu()},
                         {"threads", int64_t{recipe.threads()}},
                         {"rule_set", recipe.rule_set()},
                         {"genome", recipe.genome()},
                         {"share_of_baseline", recipe.share_of_baseline()},
                         {"origin", std::string(origin)}});
  v1::RegionRecipe named = recipe;
  named.set_region_hash(key.region_hash);
  named.set_dim_box(key.dim_box);
  named.set_facts(key.facts);
  named.set_format(static_cast<int32_t>(key.recipe_format));
  out.value = QueuedRecipe{key, std::move(named)};
  return out;
}

void Cache::PutRecipe(const RecipeKey& key, const v1::RegionRecipe& recipe,
                      absl::string_view origin) {
  writer_->Put(std::make_shared<const CacheRow>(RecipeRow(key, recipe, origin)));
}

}  // namespace athanor
