#include "server/http/pages/latency_history.h"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

std::shared_ptr<VersionMetrics> Version() { return std::make_shared<VersionMetrics>("m", "1"); }

TEST(LatencyHistoryTest, AStepIsWhatCameSinceTheOneBefore) {
  LatencyHistory history;
  const auto version = Version();
  EXPECT_EQ(history.Of(version), Json::array()) << "never taken";
  history.Take({version});
  EXPECT_EQ(history.Of(version), Json::array()) << "nothing observed";
  for (int i = 0; i < 100; ++i) version->cells.Observe(Metric::kRequestSeconds, milliseconds(2));
  history.Take({version});
  history.Take({version});
  for (int i = 0; i < 4; ++i) version->cells.Observe(Metric::kRequestSeconds, milliseconds(500));
  history.Take({version});
  const Json series = history.Of(version);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0]["name"], "call");
  EXPECT_EQ(series[0]["calls"], (Json{100, 0, 4}));
  const Json &p50 = series[0]["p50"], &p99 = series[0]["p99"];
  // The bounds of the buckets: 1.6 to 2.5 ms, 320 ms to 1 s.
  EXPECT_GT(p50[0], 0.0016);
  EXPECT_LE(p99[0], 0.0025);
  EXPECT_TRUE(p50[1].is_null() && p99[1].is_null());
  EXPECT_GT(p50[2], 0.32) << "the quantile of the step, not of all time";
  EXPECT_LE(p99[2], 1);
}

TEST(LatencyHistoryTest, KeepsTenMinutes) {
  LatencyHistory history;
  const auto version = Version();
  for (size_t i = 0; i < LatencyHistory::kSteps + 5; ++i) {
    for (size_t call = 0; call <= i; ++call) {
      version->cells.Observe(Metric::kRequestSeconds, milliseconds(1));
    }
    history.Take({version});
  }
  const Json calls = history.Of(version)[0]["calls"];
  ASSERT_EQ(calls.size(), LatencyHistory::kSteps);
  EXPECT_EQ(calls.front(), 6);
  EXPECT_EQ(calls.back(), LatencyHistory::kSteps + 5);
}

TEST(LatencyHistoryTest, TokensComeBeforeCalls) {
  LatencyHistory history;
  const auto version = Version();
  version->cells.Observe(Metric::kRequestSeconds, milliseconds(900));
  version->cells.Observe(Metric::kInterTokenLatency, milliseconds(20));
  version->cells.Observe(Metric::kTimeToFirstToken, milliseconds(80));
  history.Take({version});
  std::vector<std::string> names;
  for (const Json& series : history.Of(version)) names.push_back(series["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"TTFT", "ITL", "call"}));
}

TEST(LatencyHistoryTest, AVersionThatIsGoneLeavesNothingToTheNext) {
  LatencyHistory history;
  auto version = Version();
  version->cells.Observe(Metric::kRequestSeconds, milliseconds(1));
  history.Take({version});
  version = Version();  // of the same name
  EXPECT_EQ(history.Of(version), Json::array());
  version->cells.Observe(Metric::kRequestSeconds, milliseconds(1));
  history.Take({version});
  EXPECT_EQ(history.Of(version)[0]["calls"], (Json{1}));
}

TEST(LatencyHistoryTest, IsReadWhileItIsTaken) {
  LatencyHistory history;
  const auto version = Version();
  std::thread observes([&] {
    for (int i = 0; i < 2000; ++i) version->cells.Observe(Metric::kRequestSeconds, milliseconds(1));
  });
  std::thread reads([&] {
    for (int i = 0; i < 200; ++i) EXPECT_LE(history.Of(version).size(), 1u);
  });
  for (int i = 0; i < 40; ++i) history.Take({version});
  observes.join();
  reads.join();
  history.Take({version});
  int64_t calls = 0;
  const Json series = history.Of(version);  // lives as long as the loop
  for (const Json& step : series[0]["calls"]) calls += step.get<int64_t>();
  EXPECT_EQ(calls, 2000) << "each call is in one step";
}

}  // namespace
}  // namespace athanor
