#include "server/cache_samples.h"

#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(CacheSamplesTest, HitsAndMissesByReason) {
  v1::CacheStat stat;
  v1::CacheStat::TierStat* kernels = stat.add_tiers();
  kernels->set_tier("kernels");
  kernels->set_hits(7);
  kernels->set_misses(5);
  (*kernels->mutable_misses_by_reason())["absent"] = 3;
  (*kernels->mutable_misses_by_reason())["bad_row"] = 1;
  stat.add_tiers()->set_tier("plans");
  stat.set_kernels_compiled(4);
  stat.set_candidates_measured(9);
  stat.set_bytes(4096);
  std::vector<MetricSample> samples;
  AddCacheSamples(stat, &samples);
  std::map<std::vector<std::string>, double> hits, misses;
  for (const MetricSample& sample : samples) {
    if (sample.labels.empty()) continue;
    (sample.metric == Metric::kCacheHits ? hits : misses)[sample.labels] = sample.value;
  }
  ASSERT_EQ(samples.size(), 9u);
  EXPECT_EQ(samples[0].metric, Metric::kCandidates);
  EXPECT_EQ(samples[0].value, 9);
  EXPECT_EQ(samples[1].metric, Metric::kKernelsCompiled);
  EXPECT_EQ(samples[1].value, 4);
  EXPECT_EQ(samples[2].metric, Metric::kCacheBytes);
  EXPECT_EQ(samples[2].value, 4096);
  EXPECT_THAT(hits, ElementsAre(Pair(ElementsAre("kernels"), 7), Pair(ElementsAre("plans"), 0)));
  EXPECT_THAT(misses, ElementsAre(Pair(ElementsAre("kernels", "absent"), 3),
                                  Pair(ElementsAre("kernels", "bad_row"), 1),
                                  Pair(ElementsAre("kernels", "other"), 1),
                                  Pair(ElementsAre("plans", "other"), 0)));
}

}  // namespace
}  // namespace athanor
