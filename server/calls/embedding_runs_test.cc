#include "server/calls/embedding_runs.h"

#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EmbeddingRunsTest, LikeLengthsAreTogether) {
  const auto runs = EmbeddingRuns({3, 100, 4, 90}, {.rows = 64});
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].length, 100);
  EXPECT_THAT(runs[0].inputs, ElementsAre(1, 3));
  EXPECT_EQ(runs[1].length, 4);
  EXPECT_THAT(runs[1].inputs, ElementsAre(2, 0));
}

TEST(EmbeddingRunsTest, EqualLengthsKeepTheirOrder) {
  EXPECT_THAT(EmbeddingRuns({5, 5, 5}, {.rows = 3})[0].inputs, ElementsAre(0, 1, 2));
}

TEST(EmbeddingRunsTest, Edges) {
  EXPECT_THAT(EmbeddingRuns({}, {}), IsEmpty());
  EXPECT_EQ(EmbeddingRuns({7, 7}, {.rows = 1}).size(), 2u);
  // One input may have more than a run's positions.
  const auto longest = EmbeddingRuns({100, 100}, {.rows = 8, .tokens = 64});
  ASSERT_EQ(longest.size(), 2u);
  EXPECT_EQ(longest[0].length, 100);
  const auto padded = EmbeddingRuns({1, 2, 3}, {.rows = 8, .least_length = 4});
  ASSERT_EQ(padded.size(), 1u);
  EXPECT_EQ(padded[0].length, 4);
}

TEST(EmbeddingRunsTest, BoundsHoldForAnyLengths) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> lengths(random() % 300);
    for (int64_t& length : lengths) length = 1 + random() % (round % 2 == 0 ? 8 : 512);
    const EmbeddingLimits limits{.rows = 1 + static_cast<int64_t>(random() % 64),
                                 .tokens = 1 + static_cast<int64_t>(random() % 4096)};
    std::set<size_t> seen;
    for (const EmbeddingRun& run : EmbeddingRuns(lengths, limits)) {
      const auto rows = static_cast<int64_t>(run.inputs.size());
      ASSERT_GE(rows, 1);
      ASSERT_LE(rows, limits.rows);
      if (rows > 1) ASSERT_LE(rows * run.length, limits.tokens);
      int64_t used = 0;
      for (const size_t input : run.inputs) {
        ASSERT_TRUE(seen.insert(input).second);
        ASSERT_LE(lengths[input], run.length);
        used += lengths[input];
      }
      ASSERT_GE(used * 4, rows * run.length * 3);
    }
    ASSERT_EQ(seen.size(), lengths.size());
  }
}

}  // namespace
}  // namespace athanor
