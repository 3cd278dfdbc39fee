// Tests of the end of a search: budgets, rooflines, limits that are raised.
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "compiler/search/search/search.h"
#include "compiler/search/search/search_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(SearchStopTest, StopsAtItsBudgetAndAtTheRoofline) {
  Search budget(SingleForm(Layers(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .max_kernels = 5});
  Drive(budget, PrefersTile(8, 3));
  EXPECT_EQ(budget.Report().stop, SearchStop::kBudget);
  EXPECT_EQ(budget.Report().limited_by.find("the budget: kernels take "), 0u);
  EXPECT_LT(budget.Report().kernels_measured, 5 + 4);
  Search fast(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(fast, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    return Limit(s, k);
  });
  EXPECT_EQ(fast.Report().limited_by,
            "the machine: kernels take 1.00 times what the machine's limits allow");
  EXPECT_EQ(fast.Report().stop, SearchStop::kRoofline);
}

// Kernels are near their rooflines, but the plan takes as long as before: only what plans reach
// counts.
TEST(SearchStopTest, ARooflineThatPlansDoNotReachIsNotNear) {
  const auto kernels = [](const Verdict& verdict) {
    Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
    int asked = 0;
    Drive(
        search,
        [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
          return Limit(s, k) * (++asked < 3 ? 3 : 1.01);
        },
        1, verdict);
    const bool unheld = search.Report().limited_by.starts_with("whole plans: the last took ");
    EXPECT_EQ(unheld, search.Report().stop != SearchStop::kRoofline) << search.Report().limited_by;
    return std::pair(search.Report().stop, search.Report().kernels_measured);
  };
  const auto [held_stop, held] = kernels(Take);
  const auto [unheld_stop, unheld] =
      kernels([](Search& s, int plan) { s.TellPlan(plan, false, 1.0); });
  EXPECT_EQ(held_stop, SearchStop::kRoofline);
  EXPECT_NE(unheld_stop, SearchStop::kRoofline);
  EXPECT_GT(unheld, held);
}

// Each plan's time is a share of that of the plan before; its prediction is a share of the
// baseline's.
TEST(SearchStopTest, ARooflineThatPlansReachInStepsIsNear) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  int asked = 0, taken = 0;
  double serving = 1;
  Drive(
      search,
      [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
        return Limit(s, k) * (1.01 + 3 * std::exp(-++asked / 30.0));
      },
      1,
      [&](Search& s, int plan) {
        s.TellPlan(plan, true, s.plan(plan).predicted / serving);
        serving = s.plan(plan).predicted;
        ++taken;
      });
  EXPECT_EQ(search.Report().stop, SearchStop::kRoofline);
  EXPECT_GE(taken, 2);
}

// Returns limits as if they were measured while other work ran.
Machine HalfOf(Machine machine) {
  for (double* limit : {&machine.read_bytes_per_second, &machine.cache_bytes_per_second,
                        &machine.near_bytes_per_second, &machine.f32_flops_per_second}) {
    *limit /= 2;
  }
  return machine;
}

// Kernels that take twice the least time are near limits that were measured half as high.
TEST(SearchStopTest, ASearchGoesOnWhenItsLimitsAreRaised) {
  const Machine full = Machine::Typical(Target());
  Search search(SingleForm(Scaled(0)), Target(), HalfOf(full), {.sizes = {{16}}});
  EXPECT_EQ(search.Report().limited_by, "") << "nothing is known yet";
  double least = 0;
  int asked = 0;
  const Cost cost = [&](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    least = Limit(s, k);
    return least * (++asked < 6 ? 2 : 1.05);
  };
  Drive(search, cost);
  const SearchReport low = search.Report();
  EXPECT_EQ(low.stop, SearchStop::kRoofline);
  EXPECT_LT(low.kernels_measured, 6);
  EXPECT_GT(low.tasks[0].roofline[0], 1.9 * least);
  search.RaiseLimits(full);
  Drive(search, cost);
  const SearchReport raised = search.Report();
  EXPECT_EQ(raised.stop, SearchStop::kRoofline);
  EXPECT_NEAR(raised.predicted, 1.05 / 2, 1e-6);
  EXPECT_DOUBLE_EQ(raised.tasks[0].roofline[0], least);
  EXPECT_NEAR(raised.roofline, 0.5, 1e-6);
}

// Beating the former limits says nothing about the raised ones.
TEST(SearchStopTest, LimitsThatWereBeatenAreNearOnceTheyAreRaised) {
  const Machine full = Machine::Typical(Target());
  Search search(SingleForm(Scaled(0)), Target(), HalfOf(full), {.sizes = {{16}}});
  const Cost cost = [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    return Limit(s, k) * 1.05;
  };
  Drive(search, cost);
  EXPECT_NE(search.Report().stop, SearchStop::kRoofline);
  search.RaiseLimits(full);
  EXPECT_TRUE(Drive(search, cost).empty());
  EXPECT_EQ(search.Report().stop, SearchStop::kRoofline);
}

// Small kernels that find more in the caches than the roofline allows do not end a search.
TEST(SearchStopTest, ARooflineThatIsBeatenIsNone) {
  Search search(SingleForm(Layers(1)), Target(), Machine::Typical(Target()), {.sizes = {{16}}});
  Drive(search, [](const Search& s, const KernelCandidate& k) -> absl::StatusOr<double> {
    const auto& c = std::get<PanelSchedule>(k.choice.contract);
    return Limit(s, k) * (0.2 + 0.05 * (std::abs(c.mr - 8) + std::abs(c.nv - 3)));
  });
  const SearchReport report = search.Report();
  EXPECT_NE(report.stop, SearchStop::kRoofline);
  EXPECT_TRUE(report.limited_by.starts_with("the space: ")) << report.limited_by;
  EXPECT_GT(report.kernels_measured, 20);
  EXPECT_EQ(report.tasks[0].schedule.substr(0, 19), "contract mr=8 nv=3 ");
}

TEST(SearchStopTest, BudgetsOfNoneOneAndMore) {
  for (SearchMode mode : {SearchMode::kFast, SearchMode::kBudget, SearchMode::kExhaust}) {
    Search none(SingleForm(Layers(1)), Target(), Machine::Typical(Target()),
                {.sizes = {{16}}, .mode = mode, .max_kernels = 0});
    const Search::Step step = none.Next();
    EXPECT_TRUE(step.done);
    EXPECT_EQ(step.stop, SearchStop::kBudget);
  }
  for (int64_t kernels : {int64_t{1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    Search search(SingleForm(Layers(2)), Target(), Machine::Typical(Target()),
                  {.sizes = {{16}}, .max_kernels = kernels});
    Drive(search, PrefersTile(8, 3));
    EXPECT_LE(search.Report().kernels_measured, kernels);
    EXPECT_GE(search.Report().kernels_measured, 1);
  }
}

}  // namespace
}  // namespace athanor
