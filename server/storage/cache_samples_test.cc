#include "server/storage/cache_samples.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Labels = std::vector<std::string>;

std::map<Labels, double> Values(const CacheCounts& counts, Metric metric) {
  std::vector<MetricSample> samples;
  AddCacheSamples(counts, &samples);
  std::map<Labels, double> values;
  for (const MetricSample& sample : samples) {
    if (sample.metric == metric) EXPECT_TRUE(values.emplace(sample.labels, sample.value).second);
  }
  return values;
}

std::vector<Labels> Series(const CacheCounts& counts) {
  std::vector<MetricSample> samples;
  AddCacheSamples(counts, &samples);
  std::vector<Labels> series;
  for (MetricSample& sample : samples) {
    series.push_back(std::move(sample.labels));
    series.back().emplace_back(RowOf(sample.metric).name);
  }
  return series;
}

TEST(CacheSamplesTest, HitsAndMissesByReason) {
  CacheCounts counts;
  counts.tiers = {{.name = "kernels", .hits = 7}, {.name = "plans"}};
  counts.tiers[0].misses[static_cast<int>(MissReason::kAbsent)] = 3;
  counts.tiers[0].misses[static_cast<int>(MissReason::kBadRow)] = 1;
  counts.candidates_measured = 9;
  counts.bytes = 4096;
  EXPECT_THAT(Values(counts, Metric::kCandidates), ElementsAre(Pair(Labels(), 9)));
  EXPECT_THAT(Values(counts, Metric::kCacheBytes), ElementsAre(Pair(Labels(), 4096)));
  EXPECT_THAT(Values(counts, Metric::kCacheHits),
              ElementsAre(Pair(ElementsAre("kernels"), 7), Pair(ElementsAre("plans"), 0)));
  const std::map<Labels, double> misses = Values(counts, Metric::kCacheMisses);
  EXPECT_EQ(misses.size(), 2u * kMissReasonCount);
  EXPECT_EQ(misses.at({"kernels", "absent"}), 3);
  EXPECT_EQ(misses.at({"kernels", "bad_row"}), 1);
  EXPECT_EQ(misses.at({"kernels", "gate"}), 0);
  EXPECT_EQ(misses.at({"plans", "absent"}), 0);
}

// If a series disappeared when another appeared, every graph of it would have a gap.
TEST(CacheSamplesTest, TheFirstHitsAndMissesBringNoSeriesAndTakeNone) {
  const auto cache = Cache::Open({}, [](absl::string_view) {});
  const std::vector<Labels> before = Series(cache->Counts());
  EXPECT_FALSE(cache->kernels().Find(KernelKey()).has_value());
  EXPECT_FALSE(cache->targets().Find("machine", "tuner").has_value());
  double misses = 0;
  for (const auto& [labels, count] : Values(cache->Counts(), Metric::kCacheMisses)) {
    misses += count;
  }
  EXPECT_EQ(misses, 2);
  EXPECT_EQ(Series(cache->Counts()), before);
}

}  // namespace
}  // namespace athanor
