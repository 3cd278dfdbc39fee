// Tries recipes through the cache and a real child process: the next search tries what one search
// left, and what comes from another server; a plan is never found without being measured.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/versions.h"
#include "compiler/pipeline/search_start.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/space.h"
#include "compiler/search/regions/recipe.h"
#include "compiler/search/regions/region.h"
#include "gtest/gtest.h"
#include "server/search/kernel_maker.h"
#include "server/search/machine_limits.h"
#include "server/search/tuner_plan_search.h"
#include "tests/tuner/tuner_test.h"

namespace athanor {
namespace {

constexpr char kModel[] = R"(graph "g" { dim b in [1, 256]
  %0 = Input "x" : f32[b, 512] %1 = Parameter "w0" : f32[512, 512]
  %2 = Contract(%0, %1) {spec="bk,kn->bn"} %3 = Tanh(%2)
  %4 = Parameter "w1" : f32[512, 512] %5 = Contract(%3, %4) {spec="bk,kn->bn"} %6 = Tanh(%5)
  output "y" = %6 })";

// Returns the same layers over another dim, with other names.
std::string OtherModel() {
  return absl::StrReplaceAll(kModel, {{"graph \"g\"", "graph \"h\""},
                                      {"dim b in [1, 256]", "dim rows in [1, 300]"},
                                      {"[b,", "[rows,"},
                                      {"\"x\"", "\"u\""},
                                      {"\"w0\"", "\"v0\""}});
}

class RecipesTest : public TunerTest {
 protected:
  struct Kept {
    RecipeKey key;
    v1::RegionRecipe recipe;
  };

  void SetUp() override {
    TunerTest::SetUp();
    if (HasFatalFailure()) return;
    cache_ = Open("cache.db");
  }

  std::unique_ptr<Cache> Open(const std::string& name) {
    return Cache::Open({.path = folder_ + "/" + name}, [](absl::string_view) {});
  }

  CompiledPlan Baseline(const Graph& graph) {
    CompiledPlan baseline;
    auto lowered = tuner_->Lower(graph, machine_.target());
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    baseline.plan = lowered->plan();
    for (const v1::Kernel& kernel : baseline.plan.kernels()) {
      auto object = KernelMaker(cache_.get(), tuner_.get(), machine_).Compile(kernel);
      EXPECT_TRUE(object.ok()) << object.status();
      baseline.objects.push_back(*std::move(object));
    }
    return baseline;
  }

  // Runs a search; checks that its plan was measured and is right as a whole.
  v1::SearchProgress Search(const std::string& text, bool recipes = true) {
    const Graph graph = *ParseGraph(text);
    const PlanSearchOptions options{.seed = 1,
                                    .max_candidates = 24,
                                    // The library's block sizes depend on the dims' bounds, so one
                                    // graph's do not fit the other.
                                    .disabled_rules = {"decompose", "openblas"},
                                    .recipes = recipes};
    TunerPlanSearch search(++searches_, graph, Baseline(graph),
                           KernelMaker(cache_.get(), tuner_.get(), machine_), tuner_.get(),
                           machine_, &unreachable_, options);
    const int64_t measured = cache_->work().candidates_measured;
    bool stopped = false;
    for (int steps = 0; steps < 200 && !stopped; ++steps) {
      auto step = search.Next();
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) break;
      stopped = step->stop.has_value();
      if (!step->found) continue;
      EXPECT_GT(cache_->work().candidates_measured, measured);
      internal::CheckRequest whole;
      *whole.mutable_plan() = step->found->plan;
      for (const KernelObject& object : step->found->objects) whole.add_objects(object.object);
      whole.set_graph_text(text);
      for (int64_t size : {1, 7}) whole.add_sizes()->add_values(size);
      EXPECT_TRUE(tuner_->Check(whole).ok()) << tuner_->Check(whole);
      search.Taken(absl::OkStatus());
    }
    EXPECT_TRUE(stopped);
    EXPECT_GE(search.progress().candidates(), 2);
    return search.progress();
  }

  // Returns one recipe per region, with a schedule that is not the rule of thumb's for each kernel.
  std::vector<Kept> RecipesFor(const std::string& text) {
    internal::SearchStart start;
    start.set_graph_text(text);
    *start.mutable_target() = machine_.target();
    const auto setup = ReadSearchStart(start);
    EXPECT_TRUE(setup.ok()) << setup.status();
    const Graph& graph = setup->prepared.graph;
    v1::Target target = machine_.target();
    target.clear_blas();
    const Genome genome = ChooseKernels(graph, target);
    const std::vector<bool> weights = WeightsOf(graph);
    Recipe recipe;
    for (const KernelChoice& kernel : genome.kernels) {
      if (weights[kernel.root]) continue;
      const KernelTask task = CutTask(graph, MemoryOf(graph, genome), weights, kernel);
      for (const KernelChoice& other : Schedules(task, target)) {
        if (ScheduleText(other) == ScheduleText(task.choice)) continue;
        recipe.schedules[KernelKeyOf(task)] = ScheduleText(other);
        break;
      }
    }
    EXPECT_FALSE(recipe.schedules.empty());
    std::vector<Kept> kept;
    for (const Region& region : CutRegions(graph).distinct) {
      recipe.form = FormText(region.graph, region.graph);
      const RegionName name = NameOf(region.graph);
      Kept& made = kept.emplace_back(Kept{{.region_hash = name.hash,
                                           .dim_box = name.dim_box,
                                           .facts = name.facts,
                                           .semantics_version = kSemanticsVersion,
                                           .recipe_format = kRecipeFormat},
                                          {}});
      made.recipe.set_genome(RecipeText(recipe));
      made.recipe.set_device("cpu");
      made.recipe.set_cpu("another");
      made.recipe.set_threads(64);
      made.recipe.set_share_of_baseline(0.5);
    }
    return kept;
  }

  int64_t Rows() {
    EXPECT_TRUE(cache_->Flush(std::chrono::seconds(10)).ok());
    const v1::CacheStat stat = cache_->Stat();
    for (const v1::CacheStat::TierStat& tier : stat.tiers()) {
      if (tier.tier() == "recipes") return tier.rows();
    }
    return -1;
  }

  int Quarantined() {
    EXPECT_TRUE(cache_->Flush(std::chrono::seconds(10)).ok());
    const auto verified = cache_->maintenance().Verify(/*quarantine=*/false);
    EXPECT_TRUE(verified.ok()) << verified.status();
    int recipes = 0;
    for (const auto& row : verified->quarantined()) recipes += row.tier() == "recipes";
    return recipes;
  }

  // Limits out of reach, so that the machine's load does not decide when the search ends.
  MachineLimits unreachable_{[] {
    internal::MachineReply limits;
    limits.set_read_bytes_per_second(1e18);
    limits.set_cache_bytes_per_second(1e18);
    limits.set_near_bytes_per_second(1e18);
    limits.set_f32_flops_per_second(1e18);
    return limits;
  }()};
  const std::string folder_ = FreshFolder();
  std::unique_ptr<Cache> cache_;
  uint64_t searches_ = 0;
};

TEST_F(RecipesTest, ASearchLeavesThoseOfThePlanItTook) {
  const v1::SearchProgress first = Search(kModel);
  EXPECT_EQ(first.recipes_tried(), 0);
  const int64_t rows = Rows();
  EXPECT_EQ(rows > 0, first.plans_taken() > 0) << first.ShortDebugString();
  // The plan key differs, the regions are the same.
  const v1::SearchProgress second = Search(OtherModel());
  EXPECT_EQ(second.recipes_tried() > 0, rows > 0) << second.ShortDebugString();
}

TEST_F(RecipesTest, ThoseOfAnotherModelAreTried) {
  const std::vector<Kept> kept = RecipesFor(OtherModel());
  ASSERT_FALSE(kept.empty());
  for (const Kept& k : kept) cache_->recipes().Put(k.key, k.recipe);
  EXPECT_NE(kept[0].key.dim_box, RecipesFor(kModel)[0].key.dim_box);
  EXPECT_EQ(Search(kModel).recipes_tried(), 1);  // the same schedule from every region
}

TEST_F(RecipesTest, ThoseOfABundleAreTriedAndMeasured) {
  const std::unique_ptr<Cache> elsewhere = Open("elsewhere.db");
  for (const Kept& k : RecipesFor(OtherModel())) elsewhere->recipes().Put(k.key, k.recipe);
  ExportCursor at{.semantics_version = kSemanticsVersion, .recipe_format = kRecipeFormat};
  const auto records = elsewhere->maintenance().Export(&at);
  ASSERT_TRUE(records.ok()) << records.status();
  const auto taken = cache_->maintenance().Import(*records, {.semantics_version = kSemanticsVersion,
                                                             .origin = "another server",
                                                             .digest = std::string(32, 'd')});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT(taken->recipes_added(), 0);
  EXPECT_GT(Search(kModel).recipes_tried(), 0);
}

TEST_F(RecipesTest, ADamagedOneIsAMissAndPutAside) {
  for (const Kept& k : RecipesFor(kModel)) cache_->recipes().Put(k.key, k.recipe);
  const int64_t rows = Rows();
  ASSERT_GT(rows, 0);
  ASSERT_TRUE(cache_->ExecuteForTest("UPDATE recipes SET genome = genome || ' '").ok());
  EXPECT_EQ(Search(kModel).recipes_tried(), 0);
  EXPECT_EQ(Quarantined(), rows);
}

TEST_F(RecipesTest, WhatCannotBeReadIsLeftOut) {
  for (Kept& k : RecipesFor(kModel)) {
    k.recipe.set_genome("tile 4");
    cache_->recipes().Put(k.key, k.recipe);
  }
  for (Kept& k : RecipesFor(kModel)) {
    k.key.recipe_format = kRecipeFormat + 1;
    cache_->recipes().Put(k.key, k.recipe);
  }
  EXPECT_EQ(Search(kModel).recipes_tried(), 0);
  EXPECT_EQ(Quarantined(), 0);  // rows are intact
}

TEST_F(RecipesTest, ASearchToCompareByReadsAndLeavesNone) {
  for (const Kept& k : RecipesFor(kModel)) cache_->recipes().Put(k.key, k.recipe);
  const int64_t rows = Rows();
  EXPECT_EQ(Search(kModel, /*recipes=*/false).recipes_tried(), 0);
  EXPECT_EQ(Rows(), rows);
}

}  // namespace
}  // namespace athanor
