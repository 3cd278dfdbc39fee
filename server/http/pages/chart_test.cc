#include "server/http/pages/chart.h"

#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json Series(const Json& p50, const Json& p99, const Json& calls) {
  return {{"name", "call"}, {"p50", p50}, {"p99", p99}, {"calls", calls}};
}

TEST(ChartTest, TheNewestStepIsAtTheRight) {
  const std::string chart = SmallChart(Series({0.001, 0.002}, {0.002, 0.004}, {5, 6}));
  // 60 steps wide and 100 high; the highest p99 is the top.
  EXPECT_THAT(chart, HasSubstr("viewBox=\"0 0 60 100\""));
  EXPECT_THAT(chart, HasSubstr("class=\"p50\" d=\"M58.5 75.0h.01L59.5 50.0\""));
  EXPECT_THAT(chart, HasSubstr("class=\"p99\" d=\"M58.5 50.0h.01L59.5 0.0\""));
  EXPECT_THAT(chart, HasSubstr("aria-label=\"call, last 10 minutes: p99 at most 4.00 ms\""));
}

TEST(ChartTest, StepsWithoutCallsAreGaps) {
  const Json values = {1.0, nullptr, 1.0, 1.0};
  EXPECT_THAT(SmallChart(Series(values, values, {1, 0, 1, 1})),
              HasSubstr("d=\"M56.5 0.0h.01M58.5 0.0h.01L59.5 0.0\""));
  const Json none = {nullptr, nullptr};
  EXPECT_EQ(SmallChart(Series(none, none, {0, 0})), "");
  EXPECT_THAT(LargeChart(Series(none, none, {0, 0})), HasSubstr("no calls in the last 10 minutes"));
}

TEST(ChartTest, AScaleEndsAtARoundNumber) {
  for (const auto& [highest, top, half] :
       {std::tuple(0.0026, "3.00 ms", "1.50 ms"), std::tuple(0.001, "1.00 ms", "500 \u00b5s"),
        std::tuple(0.95, "1.00 s", "500.00 ms"), std::tuple(61.0, "1 min 20 s", "40.00 s"),
        std::tuple(0.0000073, "8 \u00b5s", "4 \u00b5s")}) {
    const std::string chart = LargeChart(Series({highest / 2}, {highest}, {1}));
    EXPECT_THAT(chart, HasSubstr(std::string("class=\"top\">") + top + "<")) << highest;
    EXPECT_THAT(chart, HasSubstr(std::string("class=\"half\">") + half + "<")) << highest;
  }
}

TEST(ChartTest, HoldsTheNumbersForThePointer) {
  const std::string chart = LargeChart(Series({nullptr, 0.00123456}, {nullptr, 0.5}, {0, 1234567}));
  EXPECT_THAT(chart, HasSubstr("data-p50=\",0.00123456\" data-p99=\",0.5\" "
                               "data-calls=\"0,1234567\""));
  EXPECT_THAT(chart, Not(HasSubstr("style=")));
}

}  // namespace
}  // namespace athanor
