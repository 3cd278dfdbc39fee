#include "compiler/search/regions/layout_join.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns the sum of the rows' costs if they agree about every value, else infinity.
double CostOf(const LayoutChain& chain, const std::vector<int>& rows) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  std::map<int, int> layouts;
  std::set<int> used;
  for (const LayoutStep& step : chain.steps) used.insert(step.inputs.begin(), step.inputs.end());
  double cost = 0;
  for (size_t s = 0; s < rows.size(); ++s) {
    const LayoutStep& step = chain.steps[s];
    const LayoutRow& row = chain.tables[step.table][rows[s]];
    cost += row.cost;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int value = step.inputs[i];
      const bool known = value != kFixed && layouts.contains(value);
      if (row.inputs[i] != (known ? layouts[value] : 0)) return kWrong;
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const int value = step.outputs[i];
      if (row.outputs[i] != 0 && (value == kFixed || !used.contains(value))) return kWrong;
      layouts[value] = row.outputs[i];
    }
  }
  return cost;
}

// Returns the costs of all possible joins, ascending.
std::vector<double> AllCosts(const LayoutChain& chain) {
  std::vector<double> costs;
  std::vector<int> rows(chain.steps.size());
  const std::function<void(size_t)> choose = [&](size_t s) {
    if (s == rows.size()) {
      const double cost = CostOf(chain, rows);
      if (cost < std::numeric_limits<double>::infinity()) costs.push_back(cost);
      return;
    }
    for (size_t r = 0; r < chain.tables[chain.steps[s].table].size(); ++r) {
      rows[s] = static_cast<int>(r);
      choose(s + 1);
    }
  };
  choose(0);
  std::sort(costs.begin(), costs.end());
  return costs;
}

// Returns chains with values that live long, are used more than once, or never, and with fixed
// ports; steps share tables. Costs are small integers, so sums are exact and ties are common.
LayoutChain RandomChain(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
  LayoutChain chain;
  std::vector<std::pair<int, int>> ports;  // numbers of inputs and outputs, by table
  for (int t = 0, count = 1 + below(3); t < count; ++t) {
    const auto [inputs, outputs] = ports.emplace_back(1 + below(2), 1 + below(2));
    std::vector<LayoutRow>& rows = chain.tables.emplace_back();
    rows.push_back({std::vector<int>(inputs), std::vector<int>(outputs), 1.0 * (5 + below(9))});
    for (int r = 0, more = below(7); r < more; ++r) {
      LayoutRow row{{}, {}, 1.0 * below(10)};
      for (int i = 0; i < inputs; ++i) row.inputs.push_back(below(4) % 3);
      for (int i = 0; i < outputs; ++i) row.outputs.push_back(below(4) % 3);
      if (below(10) == 0) row.cost = std::numeric_limits<double>::infinity();
      rows.push_back(row);
    }
  }
  std::vector<int> made = {kFixed, 1000};  // 1000: no step makes it
  int next = 0;
  for (int s = 0, count = 2 + below(4); s < count; ++s) {
    LayoutStep& step = chain.steps.emplace_back();
    step.table = below(ports.size());
    for (int i = 0; i < ports[step.table].first; ++i) {
      // The newest values are used more often.
      step.inputs.push_back(below(2) ? made.back() : made[below(made.size())]);
    }
    for (int i = 0; i < ports[step.table].second; ++i) {
      step.outputs.push_back(below(8) ? next++ : kFixed);
      made.push_back(step.outputs.back());
    }
  }
  return chain;
}

TEST(LayoutJoinTest, IsTheBestOfAllThereAre) {
  std::mt19937_64 random(7);
  int changed = 0, several = 0;
  for (int i = 0; i < 2000; ++i) {
    SCOPED_TRACE(i);
    const LayoutChain chain = RandomChain(random);
    const std::vector<double> all = AllCosts(chain);
    const std::vector<LayoutJoin> joins = JoinLayouts(chain, {.beam = 100'000, .best = 4});
    ASSERT_EQ(joins.size(), std::min<size_t>(4, all.size()));
    std::set<std::vector<int>> distinct;
    for (size_t k = 0; k < joins.size(); ++k) {
      EXPECT_EQ(joins[k].cost, all[k]);
      EXPECT_EQ(joins[k].cost, CostOf(chain, joins[k].rows));
      distinct.insert(joins[k].rows);
    }
    EXPECT_EQ(distinct.size(), joins.size());
    changed += *std::max_element(joins[0].rows.begin(), joins[0].rows.end()) > 0;
    several += joins.size() > 1;
  }
  EXPECT_GT(changed, 300);
  EXPECT_GT(several, 300);
}

TEST(LayoutJoinTest, ANarrowBeamGivesJoinsThatAreNoWorseThanNone) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    const LayoutChain chain = RandomChain(random);
    double as_it_is = 0;
    for (const LayoutStep& step : chain.steps) as_it_is += chain.tables[step.table][0].cost;
    for (const size_t beam : {0, 1, 2}) {
      const std::vector<LayoutJoin> joins = JoinLayouts(chain, {.beam = beam});
      ASSERT_EQ(joins.size(), 1u);
      EXPECT_EQ(joins[0].cost, CostOf(chain, joins[0].rows));
      EXPECT_LE(joins[0].cost, as_it_is);
    }
  }
}

// Returns layers that pass a value on; its layout may be 0 or 1.
LayoutChain Layers(int count, std::vector<LayoutRow> rows) {
  LayoutChain chain;
  chain.tables = {std::move(rows)};
  for (int i = 0; i < count; ++i) {
    chain.steps.push_back({0, {i == 0 ? kFixed : i - 1}, {i + 1 == count ? kFixed : i}});
  }
  return chain;
}

TEST(LayoutJoinTest, EqualLayersAreEqualButAtTheEnds) {
  const LayoutChain chain =
      Layers(40, {{{0}, {0}, 4}, {{0}, {1}, 5}, {{1}, {0}, 6}, {{1}, {1}, 3}});
  const std::vector<LayoutJoin> joins = JoinLayouts(chain, {});
  std::vector<int> want(40, 3);
  want.front() = 1;
  want.back() = 2;
  EXPECT_EQ(joins[0].rows, want);
  EXPECT_EQ(joins[0].cost, 5 + 6 + 38 * 3);
}

TEST(LayoutJoinTest, WhatConversionCostsMayOutweighTheGain) {
  const std::vector<LayoutRow> rows = {{{0}, {0}, 4}, {{0}, {1}, 7}, {{1}, {0}, 7}, {{1}, {1}, 3}};
  EXPECT_EQ(JoinLayouts(Layers(7, rows), {})[0].rows, std::vector<int>(7, 0));
  EXPECT_EQ(JoinLayouts(Layers(9, rows), {})[0].cost, 7 + 7 + 7 * 3);
}

TEST(LayoutJoinTest, OfEqualCostChangesFewest) {
  const LayoutChain chain =
      Layers(20, {{{0}, {0}, 1}, {{0}, {1}, 1}, {{1}, {0}, 1}, {{1}, {1}, 1}});
  EXPECT_EQ(JoinLayouts(chain, {})[0].rows, std::vector<int>(20, 0));
}

TEST(LayoutJoinTest, NothingToJoin) {
  EXPECT_EQ(JoinLayouts({}, {})[0].cost, 0);
  EXPECT_TRUE(JoinLayouts({}, {})[0].rows.empty());
  EXPECT_TRUE(JoinLayouts(Layers(3, {{{0}, {0}, 1}}), {.best = 0}).empty());
}

}  // namespace
}  // namespace athanor
