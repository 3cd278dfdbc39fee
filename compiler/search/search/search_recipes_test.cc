// Tests of recipes: results of one search as candidates of another.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "compiler/search/regions/region_forms.h"
#include "compiler/search/search/search_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Layers over a dim of another name and range.
Graph OtherLayers(int count) {
  const std::string text = absl::StrReplaceAll(
      ToText(Layers(count)), {{"dim b in [1, 64]", "dim rows in [1, 48]"}, {"[b,", "[rows,"}});
  absl::StatusOr<Graph> g = ParseGraph(text);
  EXPECT_TRUE(g.ok()) << g.status() << text;
  return *std::move(g);
}

std::unique_ptr<FormSpace> Forms(const Graph& graph, const std::vector<RegionRecipe>& recipes,
                                 RuleChoice rules = {}) {
  auto forms = RegionForms::Create(graph, {.sizes = {{16}},
                                           .machine = Machine::Typical(Target()),
                                           .rules = std::move(rules),
                                           .recipes = recipes});
  EXPECT_TRUE(forms.ok()) << forms.status();
  return *std::move(forms);
}

struct Searched {
  std::vector<std::string> asked;
  SearchReport report;
  std::vector<RegionRecipe> recipes;  // of the plan that was taken
};

Searched RunSearch(const Graph& graph, const Cost& cost, SearchOptions options,
                   RuleChoice rules = {}) {
  options.sizes = {{16}};
  Searched made;
  Search search(Forms(graph, options.recipes, std::move(rules)), Target(),
                Machine::Typical(Target()), options);
  made.asked = Drive(search, cost);
  made.report = search.Report();
  made.recipes = search.Recipes();
  return made;
}

// Assigns the recipes to the regions of another graph, as a cache does.
std::vector<RegionRecipe> For(const Graph& graph, std::vector<RegionRecipe> recipes) {
  for (RegionRecipe& r : recipes) {
    for (const Region& region : CutRegions(graph).distinct) {
      const RegionName name = NameOf(region.graph);
      if (name.hash == r.region.hash) r.region = name;
    }
  }
  return recipes;
}

// Makes a contraction slower if something is fused with it.
Cost LikesItApart(int mr, int nv) {
  return [=](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    const bool fused = k.choice.kind == KernelKind::kContract && k.choice.anchor != k.choice.root;
    return (fused ? 3 : 1) * *PrefersTile(mr, nv)(s, k);
  };
}

std::set<std::string> Kernels(const Searched& searched) {
  std::set<std::string> kernels;
  for (const TaskReport& task : searched.report.tasks) kernels.insert(task.about);
  return kernels;
}

TEST(SearchRecipesTest, AnotherGraphStartsFromWhatWasFound) {
  const Searched first = RunSearch(Layers(3), PrefersTile(8, 3), {});
  ASSERT_FALSE(first.recipes.empty());
  EXPECT_EQ(first.report.recipes_tried, 0);
  const Graph graph = OtherLayers(5);
  const Searched without = RunSearch(graph, PrefersTile(8, 3), {.max_kernels = 6});
  const Searched with =
      RunSearch(graph, PrefersTile(8, 3), {.max_kernels = 6, .recipes = For(graph, first.recipes)});
  EXPECT_GT(with.report.recipes_tried, 0);
  ASSERT_FALSE(with.report.tasks.empty());
  EXPECT_EQ(with.report.tasks[0].schedule, first.report.tasks[0].schedule);
  EXPECT_LT(with.report.predicted, without.report.predicted);
  // The suggested schedule is asked for right after the baseline.
  ASSERT_GE(with.asked.size(), 2u);
  EXPECT_NE(with.asked[1].find(first.report.tasks[0].schedule), std::string::npos)
      << absl::StrJoin(with.asked, "\n");
  // The resulting plan is measured whole before the search looks for anything else.
  EXPECT_EQ(with.asked[2].substr(0, 5), "plan ") << absl::StrJoin(with.asked, "\n");
}

TEST(SearchRecipesTest, MemoryIsPartOfThem) {
  const Searched first = RunSearch(Layers(3), LikesItApart(8, 3), {});
  EXPECT_GE(first.report.genomes_taken, 1);
  // The number of layers is the same: a few small layers are one region together.
  const Graph graph = OtherLayers(3);
  const std::vector<RegionRecipe> recipes = For(graph, first.recipes);
  const Searched with = RunSearch(graph, LikesItApart(8, 3), {.recipes = recipes});
  EXPECT_EQ(Kernels(with), Kernels(first)) << absl::StrJoin(with.asked, "\n");
  // Up to the first plan, a search with the recipes but not their memory, and one without recipes,
  // are behind.
  const auto plan = std::find_if(with.asked.begin(), with.asked.end(),
                                 [](const std::string& a) { return a.substr(0, 5) == "plan "; });
  ASSERT_NE(plan, with.asked.end());
  SearchOptions options{.max_kernels = plan - with.asked.begin(), .recipes = recipes};
  const Searched short_of_it = RunSearch(graph, LikesItApart(8, 3), options);
  EXPECT_EQ(short_of_it.report.genomes_taken, 1) << absl::StrJoin(with.asked, "\n");
  EXPECT_EQ(Kernels(short_of_it), Kernels(first));
  for (RegionRecipe& r : options.recipes) r.recipe.memory.clear();
  const Searched stripped = RunSearch(graph, LikesItApart(8, 3), options);
  EXPECT_LT(short_of_it.report.predicted, stripped.report.predicted);
  options.recipes.clear();
  const Searched none = RunSearch(graph, LikesItApart(8, 3), options);
  EXPECT_LT(short_of_it.report.predicted, none.report.predicted);
}

TEST(SearchRecipesTest, WhatMayNotBeFusedIsNot) {
  // The recipe was found where an epilogue in the kernel pays; here it is not allowed.
  const Searched first = RunSearch(Layers(3), PrefersTile(8, 3), {});
  const Searched with =
      RunSearch(Layers(3), PrefersTile(8, 3),
                {.max_kernels = 20, .fusion = {.epilogues = false}, .recipes = first.recipes});
  for (const TaskReport& task : with.report.tasks) EXPECT_NE(task.about, "Tanh over Contract");
}

TEST(SearchRecipesTest, SchedulesOfAFamilyThatIsSwitchedOffAreLeftOut) {
  std::vector<RegionRecipe> recipes = RunSearch(Layers(3), PrefersTile(8, 3), {}).recipes;
  ASSERT_FALSE(recipes.empty());
  for (auto& [kernel, schedule] : recipes[0].recipe.schedules) {
    schedule = "contract openblas rows=16 panels=4";
  }
  const Searched with = RunSearch(Layers(3), PrefersTile(8, 3),
                                  {.max_kernels = 20, .library = false, .recipes = recipes});
  for (const std::string& asked : with.asked) {
    EXPECT_EQ(asked.find("openblas"), std::string::npos) << asked;
  }
}

TEST(SearchRecipesTest, ThoseThatAreSlowCostTheirCandidates) {
  std::vector<RegionRecipe> recipes = RunSearch(Layers(3), PrefersTile(1, 12), {}).recipes;
  const Searched with = RunSearch(Layers(3), PrefersTile(8, 3), {.recipes = recipes});
  EXPECT_GT(with.report.recipes_tried, 0);
  EXPECT_EQ(with.report.tasks[0].schedule.substr(0, 19), "contract mr=8 nv=3 ");
}

TEST(SearchRecipesTest, SeveralAreTriedInTheirOrder) {
  std::vector<RegionRecipe> recipes, all;
  for (const auto& [mr, nv] : {std::pair(4, 4), std::pair(8, 3)}) {
    recipes = RunSearch(Layers(3), PrefersTile(mr, nv), {}).recipes;
    all.insert(all.end(), recipes.begin(), recipes.end());
  }
  const Searched with =
      RunSearch(Layers(3), PrefersTile(8, 3), {.max_kernels = 8, .recipes = std::move(all)});
  ASSERT_GE(with.asked.size(), 3u);
  EXPECT_NE(with.asked[1].find("contract mr=4 nv=4 "), std::string::npos);
  EXPECT_NE(with.asked[2].find("contract mr=8 nv=3 "), std::string::npos);
  EXPECT_GE(with.report.recipes_tried, 2);
}

TEST(SearchRecipesTest, AFastSearchMeasuresThemWhole) {
  const Searched first = RunSearch(Layers(3), PrefersTile(8, 3), {});
  const Searched with = RunSearch(Layers(3), PrefersTile(8, 3),
                                  {.mode = SearchMode::kFast, .recipes = first.recipes});
  EXPECT_EQ(with.report.kernels_measured, 0);
  EXPECT_GT(with.report.recipes_tried, 0);
  const Searched without = RunSearch(Layers(3), PrefersTile(8, 3), {.mode = SearchMode::kFast});
  EXPECT_EQ(with.report.plans_proposed, without.report.plans_proposed + 1);
}

TEST(SearchRecipesTest, TheSameRecipesGiveTheSameQuestions) {
  const std::vector<RegionRecipe> recipes = RunSearch(Layers(3), LikesItApart(8, 3), {}).recipes;
  std::string asked[2];
  for (std::string& text : asked) {
    text = absl::StrJoin(
        RunSearch(Layers(3), LikesItApart(4, 4), {.max_kernels = 60, .recipes = recipes}).asked,
        "\n");
  }
  EXPECT_EQ(asked[0], asked[1]);
}

TEST(SearchRecipesTest, WithoutAPlanThereAreNone) {
  const Searched none =
      RunSearch(Layers(3),
                [](const Search&, const KernelCandidate&) -> absl::StatusOr<double> {
                  return absl::InternalError("no kernel lowers");
                },
                {});
  EXPECT_TRUE(none.recipes.empty());
}

}  // namespace
}  // namespace athanor
