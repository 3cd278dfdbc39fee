// Tests of export and import: a bundle is imported as a whole or not at all, and existing rows
// stay.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/bundle.h"
#include "compiler/cache/cache_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Records = std::vector<v1::CacheBundleRecord>;

const BundleOrigin kFrom{
    .semantics_version = 1, .origin = "elsewhere", .digest = std::string(32, 'b')};

// Returns all pages; `pages`, if given, receives their number.
Records ExportAll(Cache& cache, bool kernels, int* pages = nullptr) {
  ExportCursor at{.semantics_version = 1, .recipe_format = 1, .binaries = kernels};
  Records all;
  for (;;) {
    absl::StatusOr<Records> page = cache.Export(&at);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok() || page->empty()) return all;
    if (pages != nullptr) ++*pages;
    all.insert(all.end(), page->begin(), page->end());
  }
}

v1::CacheBundleRecord RecipeRecord(int region, const std::string& genome, double share) {
  v1::CacheBundleRecord record;
  v1::RegionRecipe& recipe = *record.mutable_recipe();
  recipe = TestRecipe(genome, share);
  const RecipeKey key = TestRecipeKey(region);
  recipe.set_region_hash(key.region_hash);
  recipe.set_dim_box(key.dim_box);
  recipe.set_format(static_cast<int32_t>(key.recipe_format));
  return record;
}

// Exports some plans only.
Records ExportOf(Cache& cache, std::vector<PlanKey> keys) {
  ExportCursor at{
      .semantics_version = 1, .recipe_format = 1, .binaries = true, .of = std::move(keys)};
  Records all;
  for (;;) {
    absl::StatusOr<Records> page = cache.Export(&at);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok() || page->empty()) return all;
    all.insert(all.end(), page->begin(), page->end());
  }
}

// Returns the exported records in order: "plan p-1", "search", "kernel 2".
std::vector<std::string> Names(const Records& records) {
  std::vector<std::string> names;
  for (const v1::CacheBundleRecord& record : records) {
    if (record.has_recipe()) names.push_back("recipe " + record.recipe().genome());
    if (record.has_plan()) names.push_back("plan " + record.plan().plan().plan_id());
    if (record.has_search()) names.push_back("search");
    if (record.has_kernel()) names.push_back("kernel " + record.kernel().object());
  }
  return names;
}

// Returns a plan with the kernels `kernels` (TestKernelKey).
PlanRow PlanOf(const std::string& id, std::vector<int> kernels, double share, bool incumbent) {
  PlanRow row;
  v1::Plan& plan = *row.stored.mutable_plan();
  plan.set_plan_id(id);
  plan.set_kind(share == 1 ? "baseline" : "search");
  for (int kernel : kernels) {
    plan.add_kernels()->set_source(absl::StrCat("kernel ", kernel));
    row.stored.add_kernel_keys(TestKernelKey(kernel).Hash());
  }
  if (share != 1) row.stored.mutable_how()->set_budget("30s");
  row.stored.add_costs()->set_size("n=1");
  row.incumbent = incumbent;
  row.share_of_baseline = row.low = row.high = share;
  row.compared_with = "whole plan";
  return row;
}

class TransferTest : public CacheTest {
 protected:
  std::unique_ptr<Cache> OpenOther() {
    return Cache::Open({.path = folder_ + "/other.db"}, [](absl::string_view) {});
  }
};

TEST_F(TransferTest, AnEmptyCacheExportsNothing) {
  auto cache = Open();
  EXPECT_THAT(ExportAll(*cache, true), IsEmpty());
}

TEST_F(TransferTest, WhatOneCacheExportsAnotherFinds) {
  auto here = Open();
  here->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4"));
  here->PutRecipe(TestRecipeKey(2), TestRecipe("tile 8"));
  RecipeKey foreign = TestRecipeKey(3);
  foreign.semantics_version = 2;
  here->PutRecipe(foreign, TestRecipe("means something else"));
  for (int i = 0; i < 3; ++i) here->PutKernel(TestKernelKey(i), TestObject(i));
  KernelKey old = TestKernelKey(3);
  old.codegen_version = kCodegenVersion + 1;
  here->PutKernel(old, "calls otherwise");
  EXPECT_EQ(ExportAll(*here, false).size(), 2u);  // queued rows are exported too
  const Records records = ExportAll(*here, true);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[1].recipe().genome(), "tile 8");

  auto there = OpenOther();
  absl::StatusOr<v1::ImportCacheReply> kept = there->Import(records, kFrom);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->recipes_added(), 2);
  EXPECT_EQ(kept->kernels_added(), 3);
  EXPECT_EQ(kept->recipes_known() + kept->kernels_known(), 0);
  EXPECT_EQ(kept->origin(), "elsewhere");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(there->FindKernel(TestKernelKey(i)), TestObject(i));
  const auto found = there->FindRecipes(TestRecipeKey(2), TestTarget(), 4);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].genome(), "tile 8");
  EXPECT_THAT(there->Verify(false)->bad(), IsEmpty());
  // The other cache exports the same records.
  const Records again = ExportAll(*there, true);
  ASSERT_EQ(again.size(), records.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].SerializeAsString(), records[i].SerializeAsString()) << i;
  }
  kept = there->Import(records, kFrom);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->recipes_known(), 2);
  EXPECT_EQ(kept->kernels_known(), 3);
  EXPECT_EQ(kept->recipes_added() + kept->kernels_added(), 0);
}

TEST_F(TransferTest, APlanTravelsWithItsKernelsAndItsSearch) {
  auto here = Open();
  const PlanKey mine = TestPlanKey(1), other = TestPlanKey(2);
  for (int i = 0; i < 5; ++i) here->PutKernel(TestKernelKey(i), TestObject(i));
  here->PutPlan(mine, PlanOf("p-base", {0, 1}, 1, false));
  here->PutPlan(mine, PlanOf("p-best", {1, 2}, 0.5, true));
  here->PutPlan(mine, PlanOf("p-before", {3}, 0.8, false));
  here->PutPlan(other, PlanOf("p-other", {4}, 1, true));
  v1::SearchOptions options;
  options.set_budget("30s");
  here->PutSearch(mine, options, {v1::CompileJob::STOP_STAGNATION, 12.5, 40});
  here->PutSearch(other, options, {v1::CompileJob::STOP_BUDGET, 30, 99});
  here->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4"));
  const Records records = ExportOf(*here, {mine, mine});
  EXPECT_THAT(Names(records), UnorderedElementsAre(
                                  "plan p-base", "plan p-best", "search", "kernel " + TestObject(0),
                                  "kernel " + TestObject(1), "kernel " + TestObject(2)));

  auto there = OpenOther();
  absl::StatusOr<v1::ImportCacheReply> kept = there->Import(records, kFrom);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->plans_added(), 2);
  EXPECT_EQ(kept->kernels_added(), 3);
  const auto same = [&](const PlanRow& a, const PlanRow& b) {
    EXPECT_EQ(a.stored.SerializeAsString(), b.stored.SerializeAsString());
    EXPECT_EQ(a.incumbent, b.incumbent);
    EXPECT_EQ(a.conditions_equal, b.conditions_equal);
    EXPECT_EQ(a.share_of_baseline, b.share_of_baseline);
    EXPECT_EQ(a.compared_with, b.compared_with);
  };
  same(there->FindPlan(mine).value(), here->FindPlan(mine).value());
  same(there->FindPlanById(mine, "p-base").value(), here->FindPlanById(mine, "p-base").value());
  EXPECT_FALSE(there->FindPlan(other).has_value());
  const auto search = there->FindSearch(mine, options);
  ASSERT_TRUE(search.has_value());
  EXPECT_EQ(search->stop, v1::CompileJob::STOP_STAGNATION);
  EXPECT_EQ(search->seconds, 12.5);
  EXPECT_EQ(search->candidates, 40);
  EXPECT_THAT(there->Verify(false)->bad(), IsEmpty());
  kept = there->Import(records, kFrom);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->plans_added(), 0);
  EXPECT_EQ(kept->plans_known(), 2);
  // Under other conditions the plan is served, and searched for again.
  PlanKey more_threads = mine;
  more_threads.made_under.target.set_threads(64);
  EXPECT_FALSE(there->FindPlan(more_threads)->conditions_equal);
  EXPECT_FALSE(there->FindSearch(more_threads, options).has_value());
}

TEST_F(TransferTest, PlansOfAllTravelWithBinaries) {
  auto here = Open();
  here->PutKernel(TestKernelKey(0), TestObject(0));
  here->PutPlan(TestPlanKey(1), PlanOf("p-1", {0}, 1, true));
  here->PutPlan(TestPlanKey(2), PlanOf("p-2", {0}, 1, true));
  EXPECT_THAT(ExportAll(*here, false), IsEmpty());
  EXPECT_THAT(Names(ExportAll(*here, true)),
              ElementsAre("plan p-1", "plan p-2", "kernel " + TestObject(0)));
}

TEST_F(TransferTest, AnImportedPlanServesOnlyWhereItIsFaster) {
  const PlanKey key = TestPlanKey(1);
  const auto imported = [&](double ours, double theirs) {
    auto here = Cache::Open({.path = folder_ + "/here.db"}, [](absl::string_view) {});
    here->PutPlan(key, PlanOf("p-ours", {}, ours, true));
    auto from = OpenOther();
    from->PutPlan(key, PlanOf("p-theirs", {}, theirs, true));
    EXPECT_TRUE(here->Import(ExportOf(*from, {key}), kFrom).ok());
    const std::string found = here->FindPlan(key)->stored.plan().plan_id();
    EXPECT_EQ(here->Plans(key).size(), 2u);
    EXPECT_EQ(here->Plans(key)[0].incumbent + here->Plans(key)[1].incumbent, 1);
    here.reset();
    from.reset();
    for (const char* name : {"/here.db", "/other.db"}) std::filesystem::remove(folder_ + name);
    return found;
  };
  EXPECT_EQ(imported(/*ours=*/1, /*theirs=*/0.5), "p-theirs");
  EXPECT_EQ(imported(0.5, 0.8), "p-ours");
  EXPECT_EQ(imported(0.5, 0.5), "p-ours");
}

TEST_F(TransferTest, APlansKeyHasAFieldForEachColumn) {
  const auto* message = v1::CachedPlanKey::descriptor();
  const KeyFields fields = PlanKey().Fields();
  for (const KeyField& field : fields) {
    EXPECT_NE(message->FindFieldByName(std::string(field.column)), nullptr) << field.column;
  }
  EXPECT_EQ(message->field_count(), static_cast<int>(fields.size()));
}

TEST_F(TransferTest, PagesEndAndMissNothing) {
  auto cache = Open();
  const std::string big(3 << 20, 'k');
  for (int i = 0; i < 5; ++i) cache->PutKernel(TestKernelKey(i), absl::StrCat(big, i));
  int pages = 0;
  EXPECT_EQ(ExportAll(*cache, true, &pages).size(), 5u);
  EXPECT_EQ(pages, 3);
}

TEST_F(TransferTest, WhatWasFoundHereStays) {
  auto cache = Open();
  cache->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4", 0.5));
  absl::StatusOr<v1::ImportCacheReply> kept =
      cache->Import({RecipeRecord(1, "tile 4", 0.9), RecipeRecord(1, "tile 5", 0.7)}, kFrom);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->recipes_known(), 1);
  EXPECT_EQ(kept->recipes_added(), 1);
  const auto found = cache->FindRecipes(TestRecipeKey(1), TestTarget(), 4);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].share_of_baseline(), 0.5);
  EXPECT_EQ(found[1].share_of_baseline(), 0.7);
}

TEST_F(TransferTest, AnOriginIsNeverASearchOfThisServers) {
  auto cache = Open();
  cache->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4", 0.5));
  BundleOrigin from = kFrom;
  from.origin = "search";
  ASSERT_TRUE(cache->Import({RecipeRecord(1, "tile 4", 0.9)}, from).ok());
  EXPECT_EQ(Number("SELECT COUNT(*) FROM recipes WHERE share_of_baseline = 0.5"), 1);
  EXPECT_EQ(Number("SELECT rows FROM bundles WHERE origin = 'search'"), 1);
}

TEST_F(TransferTest, AllOrNothing) {
  auto cache = Open();
  // The file refuses the third row.
  Execute(
      "CREATE TRIGGER no BEFORE INSERT ON recipes WHEN NEW.genome = 'bad'"
      " BEGIN SELECT RAISE(ABORT, 'no'); END");
  const auto kept = cache->Import(
      {RecipeRecord(1, "a", 0.5), RecipeRecord(2, "b", 0.5), RecipeRecord(3, "bad", 0.5)}, kFrom);
  EXPECT_FALSE(kept.ok());
  EXPECT_EQ(Number("SELECT COUNT(*) FROM recipes"), 0);
  EXPECT_EQ(Number("SELECT COUNT(*) FROM bundles"), 0);
}

TEST_F(TransferTest, ADamagedRowDoesNotTravel) {
  auto cache = Open();
  cache->PutKernel(TestKernelKey(0), TestObject(0));
  cache->PutKernel(TestKernelKey(1), TestObject(1));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("UPDATE kernels SET object = x'00' WHERE rowid = 1");
  const Records records = ExportAll(*cache, true);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kernel().object(), TestObject(1));
}

TEST_F(TransferTest, WhatIsImportedKeepsToTheLimit) {
  auto cache = Open(/*limit_bytes=*/256 << 10);
  Records records;
  for (int i = 0; i < 30; ++i) {
    v1::CacheBundleRecord& record = records.emplace_back();
    v1::KernelBinary& kernel = *record.mutable_kernel();
    const KernelKey key = TestKernelKey(i);
    kernel.set_source_hash(key.source_hash);
    kernel.set_flags(key.flags);
    kernel.set_triple(key.triple);
    kernel.set_cpu(key.cpu);
    kernel.set_features(key.features);
    kernel.set_compiler_version(key.compiler_version);
    kernel.set_codegen_version(key.codegen_version);
    kernel.set_object(std::string(20000, 'o'));
  }
  ASSERT_TRUE(cache->Import(records, kFrom).ok());
  EXPECT_LE(Number("SELECT SUM(bytes) FROM kernels"), 256 << 10);
  EXPECT_GT(Number("SELECT COUNT(*) FROM kernels"), 0);
}

TEST_F(TransferTest, WithoutAFileNothingTravels) {
  auto cache = Cache::Open({}, [](absl::string_view) {});
  ExportCursor at{.semantics_version = 1, .recipe_format = 1};
  EXPECT_EQ(cache->Export(&at).status().code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status refused = cache->Import({}, kFrom).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no cache path was given"));
}

TEST_F(TransferTest, ABundleCarriesAllOfIt) {
  auto here = Open();
  here->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4"));
  v1::CacheBundleHeader header;
  header.set_semantics_version(1);
  header.set_origin("here");
  absl::StatusOr<BundleWriter> writer = BundleWriter::Create(header, std::nullopt);
  ASSERT_TRUE(writer.ok()) << writer.status();
  BundleReader reader({.semantics_version = 1, .recipe_format = 1});
  ASSERT_TRUE(reader.Take(writer->Header()).ok());
  for (v1::CacheBundleRecord& record : ExportAll(*here, false)) {
    const absl::Status taken = reader.Take(writer->Record(record.recipe()));
    ASSERT_TRUE(taken.ok()) << taken;
  }
  ASSERT_TRUE(reader.Take(*writer->Trailer()).ok());
  auto there = OpenOther();
  const auto kept = there->Import(reader.records(), {1, reader.header().origin(), reader.digest()});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(there->FindRecipes(TestRecipeKey(1), TestTarget(), 4).size(), 1u);
}

}  // namespace
}  // namespace athanor
