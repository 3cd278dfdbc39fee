#include "server/plans/plan_table.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::shared_ptr<const ServedPlan> Plan(const std::string& id, const std::string& kind = "") {
  auto compiled = std::make_shared<CompiledPlan>();
  compiled->plan.set_plan_id(id);
  compiled->plan.set_kind(kind);
  auto plan = std::make_shared<ServedPlan>();
  plan->compiled = std::move(compiled);
  return plan;
}

std::string IdOf(const std::shared_ptr<const ServedPlan>& plan) {
  return plan == nullptr ? "none" : plan->id();
}

// b in 1..8, s in 1..4.
std::shared_ptr<const BucketGrid> Grid(const std::vector<DimSpan>& of_b,
                                       const std::vector<DimSpan>& of_s = {{1, 4}}) {
  Graph graph;
  graph.dims = {{"b", 1, 8}, {"s", 1, 4}};
  BucketGrid::Ranges ranges;
  const auto add = [&](const std::string& dim, const std::vector<DimSpan>& spans) {
    v1::DimBuckets* given = ranges.Add();
    given->set_dim(dim);
    for (const DimSpan& span : spans) {
      auto* range = given->add_ranges();
      range->set_min(span.min);
      range->set_max(span.max);
    }
  };
  add("b", of_b);
  add("s", of_s);
  return std::make_shared<const BucketGrid>(BucketGrid::Create(graph, ranges, 64).value());
}

TEST(PlanTableTest, SizesWithoutAPlanOfTheirOwnRunOnTheFullRange) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  EXPECT_EQ(IdOf(table.For({1, 1})), "none");
  EXPECT_EQ(table.view().box(1).reason, "not compiled yet");
  ASSERT_TRUE(table.full().Set(Plan("full")));
  EXPECT_EQ(IdOf(table.For({1, 1})), "full");
  ASSERT_TRUE(table.Set(grid, 1, Plan("small")));
  EXPECT_EQ(IdOf(table.For({1, 4})), "small");
  EXPECT_EQ(IdOf(table.For({2, 4})), "full");
  EXPECT_EQ(table.view().box(1).reason, "");
}

TEST(PlanTableTest, OneRangeIsNoBox) {
  PlanTable table(Grid({{1, 8}}));
  table.full().Set(Plan("full"));
  EXPECT_EQ(table.view().boxes.size(), 1);
  EXPECT_EQ(IdOf(table.For({8, 4})), "full");
}

TEST(PlanTableTest, OtherBoxesComeInOneStep) {
  const auto before = Grid({{1, 1}, {2, 8}});
  PlanTable table(before);
  table.full().Set(Plan("full"));
  const auto after = Grid({{1, 4}, {5, 8}}, {{1, 2}, {3, 4}});
  std::vector<PlanTable::BoxPlan> boxes(after->size());
  boxes[2] = {Plan("b4 s4"), ""};
  boxes[3].reason = "too large";
  ASSERT_TRUE(table.Replace(after, std::move(boxes)));
  EXPECT_EQ(IdOf(table.For({4, 3})), "b4 s4");
  EXPECT_EQ(IdOf(table.For({4, 2})), "full");
  EXPECT_EQ(table.view().box(3).reason, "too large");
  // Who still searches for the boxes before finds them gone.
  EXPECT_FALSE(table.Set(before, 1, Plan("late")));
  EXPECT_EQ(IdOf(table.For({1, 1})), "full");
}

TEST(PlanTableTest, APinnedVersionIsServedByTheFullRange) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.full().Set(Plan("full"));
  table.Set(grid, 1, Plan("small"));
  table.UseBoxes(false);
  EXPECT_EQ(IdOf(table.For({1, 1})), "full");
  table.UseBoxes(true);
  EXPECT_EQ(IdOf(table.For({1, 1})), "small");
}

std::shared_ptr<const ServedPlan> Searched(const std::string& id) { return Plan(id, "search"); }

TEST(PlanTableTest, NoBaselineGoesBeforeAPlanThatASearchFound) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.full().Set(Plan("full"));
  table.Set(grid, 1, Plan("small"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "small");
  table.full().Set(Searched("full, found"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "full, found");
  table.Set(grid, 1, Searched("small, found"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "small, found");
  table.full().Set(Plan("full"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "small, found");
}

// As measured beside the full range's plan at the box's sizes.
TEST(PlanTableTest, ABaselineThatIsNotSlowerThereGoesFirst) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.full().Set(Searched("found"));
  table.Set(grid, 1, Plan("small"));
  table.SetBeside(grid, 1, "found");
  EXPECT_EQ(IdOf(table.For({1, 1})), "small");
  table.full().Set(Searched("found later"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "found later");
  ASSERT_TRUE(table.Set(grid, 1, nullptr, "slower"));
  EXPECT_EQ(table.view().box(1).reason, "slower");
  EXPECT_EQ(table.view().box(1).beside, "");
}

TEST(PlanTableTest, APinnedBoxIsServedByItsPlanWhateverComes) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.full().Set(Searched("full"));
  ASSERT_TRUE(table.Pin(grid, 1, Plan("pinned")));
  table.UseBoxes(false);
  EXPECT_EQ(IdOf(table.For({1, 1})), "pinned");
  EXPECT_EQ(IdOf(table.For({2, 1})), "full");
  EXPECT_FALSE(table.Set(grid, 1, Searched("found")));
  // Made from what was there before it was pinned.
  ASSERT_TRUE(table.Replace(grid, std::vector<PlanTable::BoxPlan>(grid->size())));
  EXPECT_EQ(IdOf(table.For({1, 1})), "pinned");
  EXPECT_FALSE(table.Replace(Grid({{1, 4}, {5, 8}}), std::vector<PlanTable::BoxPlan>(3)));
  const auto more = Grid({{1, 1}, {2, 4}, {5, 8}});
  ASSERT_TRUE(table.Replace(more, std::vector<PlanTable::BoxPlan>(4)));
  EXPECT_EQ(IdOf(table.For({1, 1})), "pinned");
  EXPECT_EQ(table.pinned(), std::vector<std::string>{"pinned"});
  table.Unpin(1, nullptr);
  EXPECT_EQ(IdOf(table.For({1, 1})), "full");
  EXPECT_TRUE(table.pinned().empty());
}

TEST(PlanTableTest, APinServesOnceItsPlanIsThere) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.SetPinned(1, "pinned");
  table.full().Set(Plan("full"));
  EXPECT_EQ(IdOf(table.For({1, 1})), "full");
  std::vector<PlanTable::BoxPlan> boxes(grid->size());
  boxes[1] = {Plan("pinned"), ""};
  ASSERT_TRUE(table.Replace(grid, std::move(boxes)));
  EXPECT_EQ(IdOf(table.For({1, 1})), "pinned");
  EXPECT_EQ(table.view().box(1).pinned, "pinned");
}

TEST(PlanTableTest, ClosedForGood) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  PlanTable table(grid);
  table.full().Set(Plan("full"));
  auto small = Plan("small");
  const std::weak_ptr<const ServedPlan> alive = small;
  table.Set(grid, 1, std::move(small));
  table.Close(absl::NotFoundError("deleted"));
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(IdOf(table.For({1, 1})), "none");
  EXPECT_FALSE(table.Set(grid, 1, Plan("late")));
  EXPECT_FALSE(table.Replace(grid, std::vector<PlanTable::BoxPlan>(grid->size())));
}

// Whatever boxes come and go, a size is served by a plan that holds it.
TEST(PlanTableTest, LookUpsBesideChanges) {
  const std::shared_ptr<const BucketGrid> grids[] = {Grid({{1, 1}, {2, 8}}),
                                                     Grid({{1, 4}, {5, 8}}, {{1, 2}, {3, 4}})};
  PlanTable table(grids[0]);
  table.full().Set(Plan("b=1..8 s=1..4"));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread reader([&] {
    for (int64_t i = 0; !stop; ++i) {
      const int64_t b = 1 + i % 8, s = 1 + i % 4;
      long long b_min = 0, b_max = 0, s_min = 0, s_max = 0;
      if (std::sscanf(IdOf(table.For({b, s})).c_str(), "b=%lld..%lld s=%lld..%lld", &b_min, &b_max,
                      &s_min, &s_max) != 4 ||
          b < b_min || b > b_max || s < s_min || s > s_max) {
        ++wrong;
      }
    }
  });
  for (int round = 0; round < 300; ++round) {
    const auto& grid = grids[round % 2];
    std::vector<PlanTable::BoxPlan> boxes(grid->size());
    for (int i = 1 + round % 3; i < grid->size(); ++i) boxes[i].plan = Plan(grid->Text(i));
    ASSERT_TRUE(table.Replace(grid, std::move(boxes)));
    ASSERT_TRUE(table.Set(grid, 1, Plan(grid->Text(1))));
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace athanor
