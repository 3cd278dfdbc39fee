#include "server/generate/block_pool.h"

#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(BlockPoolTest, APoolOfBlockZeroAloneGivesNone) {
  BlockPool pool(1);
  EXPECT_EQ(pool.blocks(), 0);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.Take(), std::nullopt);
  EXPECT_TRUE(pool.Check().ok());
}

TEST(BlockPoolTest, GivesTheLowestUntilNoneIsLeft) {
  BlockPool pool(4);
  for (int32_t block = 1; block < 4; ++block) EXPECT_EQ(pool.Take(), block);
  EXPECT_EQ(pool.Take(), std::nullopt);
  EXPECT_TRUE(pool.Drop(3));
  EXPECT_TRUE(pool.Drop(1));
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.Take(), 1);
  EXPECT_EQ(pool.Take(), 3);
}

TEST(BlockPoolTest, IsFreeOnlyAfterTheLastReference) {
  BlockPool pool(2);
  ASSERT_EQ(pool.Take(), 1);
  pool.Share(1);
  pool.Share(1);
  EXPECT_EQ(pool.references(1), 3);
  EXPECT_FALSE(pool.Drop(1));
  EXPECT_FALSE(pool.Drop(1));
  EXPECT_EQ(pool.Take(), std::nullopt);
  EXPECT_TRUE(pool.Drop(1));
  EXPECT_EQ(pool.Take(), 1);
}

TEST(BlockPoolTest, CheckFindsABlockDroppedTwiceAndOneSharedWhileFree) {
  BlockPool twice(3);
  ASSERT_EQ(twice.Take(), 1);
  twice.Drop(1);
  twice.Drop(1);
  EXPECT_EQ(twice.Check().message(), "block 1 has -1 references and is free 2 times");
  BlockPool shared(3);
  shared.Share(2);
  EXPECT_EQ(shared.Check().message(), "block 2 has 1 references and is free 1 times");
}

// Against a set of free blocks and a map of references.
TEST(BlockPoolTest, IsTheSimpleModelOverRandomOperations) {
  for (const int32_t blocks : {1, 2, 3, 17, 64, 1000}) {
    std::mt19937 random(blocks);
    BlockPool pool(blocks);
    std::set<int32_t> free;
    for (int32_t block = 1; block < blocks; ++block) free.insert(block);
    std::map<int32_t, int32_t> references;
    for (int i = 0; i < 100'000; ++i) {
      const bool fills = i / 5000 % 2 == 0;  // phases, so that the pool is full and empty by turns
      const auto held =
          references.empty() ? references.end() : references.lower_bound(random() % blocks);
      if (random() % 8 < (fills ? 5 : 2)) {
        std::optional<int32_t> expected;
        if (!free.empty()) {
          expected = *free.begin();
          free.erase(free.begin());
          references[*expected] = 1;
        }
        ASSERT_EQ(pool.Take(), expected);
      } else if (held == references.end()) {
        continue;
      } else if (random() % 4 == 0) {
        pool.Share(held->first);
        ++held->second;
      } else {
        const int32_t block = held->first;
        const bool last = --held->second == 0;
        if (last) {
          references.erase(held);
          free.insert(block);
        }
        ASSERT_EQ(pool.Drop(block), last);
      }
      ASSERT_EQ(pool.free(), static_cast<int64_t>(free.size()));
      if (i % 100 == 0) {
        ASSERT_TRUE(pool.Check().ok()) << pool.Check();
      }
    }
    for (int32_t block = 1; block < blocks; ++block) {
      const auto found = references.find(block);
      EXPECT_EQ(pool.references(block), found == references.end() ? 0 : found->second);
    }
  }
}

}  // namespace
}  // namespace athanor
