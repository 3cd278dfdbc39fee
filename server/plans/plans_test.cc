#include "server/plans/plans.h"

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

TEST(PlansTest, SizesWithoutAPlanOfTheirOwnRunOnTheFullRange) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  EXPECT_EQ(IdOf(plans.For({1, 1})), "none");
  EXPECT_EQ(plans.view().box(1).reason, "not compiled yet");
  ASSERT_TRUE(plans.full().Set(Plan("full")));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full");
  ASSERT_TRUE(plans.Set(grid, 1, Plan("small")));
  EXPECT_EQ(IdOf(plans.For({1, 4})), "small");
  EXPECT_EQ(IdOf(plans.For({2, 4})), "full");
  EXPECT_EQ(plans.view().box(1).reason, "");
}

TEST(PlansTest, OneRangeIsNoBox) {
  Plans plans(Grid({{1, 8}}));
  plans.full().Set(Plan("full"));
  EXPECT_EQ(plans.view().books.size(), 1);
  EXPECT_EQ(IdOf(plans.For({8, 4})), "full");
}

TEST(PlansTest, OtherBoxesComeInOneStep) {
  const auto before = Grid({{1, 1}, {2, 8}});
  Plans plans(before);
  plans.full().Set(Plan("full"));
  const auto after = Grid({{1, 4}, {5, 8}}, {{1, 2}, {3, 4}});
  std::vector<PlanBook> boxes(after->size());
  boxes[2].serving = Plan("b4 s4");
  boxes[3].reason = "too large";
  ASSERT_TRUE(plans.Replace(after, std::move(boxes)));
  EXPECT_EQ(IdOf(plans.For({4, 3})), "b4 s4");
  EXPECT_EQ(IdOf(plans.For({4, 2})), "full");
  EXPECT_EQ(plans.view().box(3).reason, "too large");
  // A search for boxes that were replaced finds them gone.
  EXPECT_FALSE(plans.Set(before, 1, Plan("late")));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full");
}

TEST(PlansTest, APinnedVersionIsServedByTheFullRange) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.full().Set(Plan("full"));
  plans.Set(grid, 1, Plan("small"));
  plans.SetPinned(BucketGrid::kFullRange, "full");
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full");
  plans.SetPinned(BucketGrid::kFullRange, "");
  EXPECT_EQ(IdOf(plans.For({1, 1})), "small");
}

std::shared_ptr<const ServedPlan> Searched(const std::string& id) { return Plan(id, "search"); }

TEST(PlansTest, NoBaselineGoesBeforeAPlanThatASearchFound) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.full().Set(Plan("full"));
  plans.Set(grid, 1, Plan("small"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "small");
  plans.full().Set(Searched("full, found"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full, found");
  plans.Set(grid, 1, Searched("small, found"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "small, found");
  plans.full().Set(Plan("full"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "small, found");
}

// As measured beside the full range's plan at the box's sizes.
// The full range's plan was withdrawn, and only a call that began before holds it.
TEST(PlansTest, AWithdrawnPlanGoesBeforeNoBox) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  ASSERT_TRUE(plans.Publish(Plan("full", "search")));
  const auto held = plans.full().plan();
  plans.Withdraw(absl::UnavailableError("damaged"));
  EXPECT_EQ(IdOf(plans.For({1, 1}, held)), "full");
  ASSERT_TRUE(plans.Set(grid, 1, Plan("small")));
  EXPECT_EQ(IdOf(plans.For({1, 1}, held)), "small");
}

TEST(PlansTest, ABaselineThatIsNotSlowerThereGoesFirst) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.full().Set(Searched("found"));
  plans.Set(grid, 1, Plan("small"));
  plans.SetBeside(grid, 1, "found");
  EXPECT_EQ(IdOf(plans.For({1, 1})), "small");
  plans.full().Set(Searched("found later"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "found later");
  ASSERT_TRUE(plans.Set(grid, 1, nullptr, "slower"));
  EXPECT_EQ(plans.view().box(1).reason, "slower");
  EXPECT_EQ(plans.view().box(1).beside, "");
}

TEST(PlansTest, APinnedBoxIsServedByItsPlanWhateverComes) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.full().Set(Searched("full"));
  ASSERT_TRUE(plans.Pin(grid, 1, Plan("pinned")));
  plans.SetPinned(BucketGrid::kFullRange, "full");
  EXPECT_EQ(IdOf(plans.For({1, 1})), "pinned");
  EXPECT_EQ(IdOf(plans.For({2, 1})), "full");
  EXPECT_FALSE(plans.Set(grid, 1, Searched("found")));
  // Made from what was there before it was pinned.
  ASSERT_TRUE(plans.Replace(grid, std::vector<PlanBook>(grid->size())));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "pinned");
  EXPECT_FALSE(plans.Replace(Grid({{1, 4}, {5, 8}}), std::vector<PlanBook>(3)));
  const auto more = Grid({{1, 1}, {2, 4}, {5, 8}});
  ASSERT_TRUE(plans.Replace(more, std::vector<PlanBook>(4)));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "pinned");
  EXPECT_EQ(plans.pinned_boxes(), std::vector<std::string>{"pinned"});
  plans.Unpin(1, nullptr);
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full");
  EXPECT_TRUE(plans.pinned_boxes().empty());
}

TEST(PlansTest, APinServesOnceItsPlanIsThere) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.SetPinned(1, "pinned");
  plans.full().Set(Plan("full"));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "full");
  std::vector<PlanBook> boxes(grid->size());
  boxes[1].serving = Plan("pinned");
  ASSERT_TRUE(plans.Replace(grid, std::move(boxes)));
  EXPECT_EQ(IdOf(plans.For({1, 1})), "pinned");
  EXPECT_EQ(plans.view().box(1).pinned, "pinned");
}

TEST(PlansTest, ClosedForGood) {
  const auto grid = Grid({{1, 1}, {2, 8}});
  Plans plans(grid);
  plans.full().Set(Plan("full"));
  auto small = Plan("small");
  const std::weak_ptr<const ServedPlan> alive = small;
  plans.Set(grid, 1, std::move(small));
  plans.Close(absl::NotFoundError("deleted"));
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(IdOf(plans.For({1, 1})), "none");
  EXPECT_FALSE(plans.Set(grid, 1, Plan("late")));
  EXPECT_FALSE(plans.Replace(grid, std::vector<PlanBook>(grid->size())));
}

// A size is always served by a plan that holds it, while boxes come and go.
TEST(PlansTest, LookUpsBesideChanges) {
  const std::shared_ptr<const BucketGrid> grids[] = {Grid({{1, 1}, {2, 8}}),
                                                     Grid({{1, 4}, {5, 8}}, {{1, 2}, {3, 4}})};
  Plans plans(grids[0]);
  plans.full().Set(Plan("b=1..8 s=1..4"));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread reader([&] {
    for (int64_t i = 0; !stop; ++i) {
      const int64_t b = 1 + i % 8, s = 1 + i % 4;
      long long b_min = 0, b_max = 0, s_min = 0, s_max = 0;
      if (std::sscanf(IdOf(plans.For({b, s})).c_str(), "b=%lld..%lld s=%lld..%lld", &b_min, &b_max,
                      &s_min, &s_max) != 4 ||
          b < b_min || b > b_max || s < s_min || s > s_max) {
        ++wrong;
      }
    }
  });
  for (int round = 0; round < 300; ++round) {
    const auto& grid = grids[round % 2];
    std::vector<PlanBook> boxes(grid->size());
    for (int i = 1 + round % 3; i < grid->size(); ++i) boxes[i].serving = Plan(grid->Text(i));
    ASSERT_TRUE(plans.Replace(grid, std::move(boxes)));
    ASSERT_TRUE(plans.Set(grid, 1, Plan(grid->Text(1))));
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace athanor
