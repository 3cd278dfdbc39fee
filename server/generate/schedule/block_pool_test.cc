#include "server/generate/schedule/block_pool.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
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

BlockKey Key(int number) {
  BlockKey key{};
  key[0] = static_cast<char>(number);
  key[31] = static_cast<char>(number >> 8);
  return key;
}

TEST(BlockPoolTest, ANamedBlockIsFoundWhileReferredToAndWhenKept) {
  BlockPool pool(4);
  EXPECT_EQ(pool.Find(Key(1)), std::nullopt);
  ASSERT_EQ(pool.Take(), 1);
  pool.Name(1, Key(1));
  EXPECT_EQ(pool.Find(Key(1)), 1);
  pool.Share(1);
  EXPECT_FALSE(pool.Drop(1));
  EXPECT_EQ(pool.kept(), 0);
  EXPECT_TRUE(pool.Drop(1));
  EXPECT_EQ(pool.kept(), 1);
  EXPECT_TRUE(pool.IsKept(1));
  EXPECT_EQ(pool.free(), 3);
  EXPECT_EQ(pool.Find(Key(1)), 1);
  pool.Share(1);
  EXPECT_EQ(pool.kept(), 0);
  EXPECT_EQ(pool.references(1), 1);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

TEST(BlockPoolTest, OfEqualBlocksTheFirstIsFound) {
  BlockPool pool(4);
  for (int i = 0; i < 2; ++i) pool.Name(*pool.Take(), Key(1));
  EXPECT_EQ(pool.Find(Key(1)), 1);
  EXPECT_TRUE(pool.Drop(2));
  EXPECT_EQ(pool.kept(), 0) << "the second is blank";
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

TEST(BlockPoolTest, TakesBlankBlocksFirstThenKeptOnesByAge) {
  BlockPool pool(5);
  for (int32_t block = 1; block < 5; ++block) {
    ASSERT_EQ(pool.Take(), block);
    if (block < 4) pool.Name(block, Key(block));
  }
  for (int32_t block : {2, 3, 1, 4}) pool.Drop(block);
  pool.Share(2);  // used again: then the newest
  pool.Drop(2);
  EXPECT_EQ(pool.Take(), 4);
  EXPECT_EQ(pool.Take(), 3);
  EXPECT_EQ(pool.Find(Key(3)), std::nullopt) << "its contents will be written over";
  EXPECT_EQ(pool.Find(Key(1)), 1);
  EXPECT_EQ(pool.Take(), 1);
  EXPECT_EQ(pool.Take(), 2);
  EXPECT_EQ(pool.Take(), std::nullopt);
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

TEST(BlockPoolTest, ShedsTheOldestKeptOnes) {
  BlockPool pool(5);
  for (int32_t block = 1; block < 5; ++block) pool.Name(*pool.Take(), Key(block));
  for (int32_t block : {3, 1, 2}) pool.Drop(block);
  EXPECT_EQ(pool.Shed(0), std::vector<int32_t>());
  EXPECT_EQ(pool.Shed(2), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(pool.kept(), 1);
  EXPECT_EQ(pool.free(), 3);
  EXPECT_EQ(pool.Shed(100), std::vector<int32_t>{2});
  EXPECT_EQ(pool.Find(Key(4)), 4) << "it is referred to";
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

TEST(BlockPoolTest, AnUnnamedBlockIsNotFoundAndTakesAnotherKey) {
  BlockPool pool(3);
  pool.Name(*pool.Take(), Key(1));
  pool.Share(1);
  pool.Unname(1);
  pool.Unname(1);
  EXPECT_EQ(pool.Find(Key(1)), std::nullopt);
  pool.Name(1, Key(2));
  EXPECT_EQ(pool.Find(Key(2)), 1);
  pool.Unname(1);
  pool.Drop(1);
  pool.Drop(1);
  EXPECT_EQ(pool.kept(), 0);
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

TEST(BlockPoolTest, ForgetsKeysOfAll) {
  BlockPool pool(4);
  for (int32_t block = 1; block < 4; ++block) pool.Name(*pool.Take(), Key(block));
  pool.Drop(1);
  pool.Forget();
  for (int32_t block = 1; block < 4; ++block) EXPECT_EQ(pool.Find(Key(block)), std::nullopt);
  EXPECT_EQ(pool.kept(), 0);
  EXPECT_EQ(pool.free(), 1);
  pool.Name(2, Key(1));
  EXPECT_TRUE(pool.Drop(2));
  EXPECT_EQ(pool.Find(Key(1)), 2);
  EXPECT_TRUE(pool.Check().ok()) << pool.Check();
}

// Says what a pool holds in the plainest way.
struct Model {
  std::set<int32_t> blank;
  std::vector<int32_t> kept;  // the oldest first
  std::map<int32_t, int32_t> references;
  std::map<int32_t, int> keys;  // by block

  std::optional<int32_t> Find(int key) const {
    for (const auto& [block, its] : keys) {
      if (its == key) return block;
    }
    return std::nullopt;
  }
  std::optional<int32_t> Take() {
    if (blank.empty() && !kept.empty()) ShedOne();
    if (blank.empty()) return std::nullopt;
    const int32_t block = *blank.begin();
    blank.erase(blank.begin());
    references[block] = 1;
    return block;
  }
  int32_t ShedOne() {
    const int32_t block = kept.front();
    kept.erase(kept.begin());
    keys.erase(block);
    blank.insert(block);
    return block;
  }
  void Share(int32_t block) {
    kept.erase(std::remove(kept.begin(), kept.end(), block), kept.end());
    ++references[block];
  }
  bool Drop(int32_t block) {
    if (--references[block] > 0) return false;
    references.erase(block);
    if (keys.contains(block)) {
      kept.push_back(block);
    } else {
      blank.insert(block);
    }
    return true;
  }
};

TEST(BlockPoolTest, IsTheSimpleModelOverRandomOperations) {
  for (const int32_t blocks : {1, 2, 3, 17, 64, 300}) {
    std::mt19937 random(blocks);
    BlockPool pool(blocks);
    Model model;
    for (int32_t block = 1; block < blocks; ++block) model.blank.insert(block);
    for (int i = 0; i < 50'000; ++i) {
      const bool fills = i / 5000 % 2 == 0;  // phases, so that the pool is full and empty by turns
      const auto held = model.references.lower_bound(random() % blocks);
      const int key = static_cast<int>(random() % (2 * blocks));
      const std::optional<int32_t> found = model.Find(key);
      ASSERT_EQ(pool.Find(Key(key)), found);
      if (random() % 8 < (fills ? 5 : 2)) {
        ASSERT_EQ(pool.Take(), model.Take());
      } else if (random() % 4 == 0 && found.has_value()) {
        pool.Share(*found);
        model.Share(*found);
      } else if (random() % 200 == 0) {
        std::vector<int32_t> expected;
        for (auto left = random() % 4; left > 0 && !model.kept.empty(); --left) {
          expected.push_back(model.ShedOne());
        }
        ASSERT_EQ(pool.Shed(static_cast<int64_t>(expected.size())), expected);
      } else if (random() % 2000 == 0) {
        pool.Forget();
        while (!model.kept.empty()) model.ShedOne();
        model.keys.clear();
      } else if (held == model.references.end()) {
        continue;
      } else if (random() % 20 == 0) {
        pool.Unname(held->first);
        model.keys.erase(held->first);
      } else if (random() % 2 == 0 && !model.keys.contains(held->first)) {
        pool.Name(held->first, Key(key));
        if (!found.has_value()) model.keys[held->first] = key;
      } else {
        const int32_t block = held->first;
        ASSERT_EQ(pool.Drop(block), model.Drop(block));
      }
      ASSERT_EQ(pool.kept(), static_cast<int64_t>(model.kept.size()));
      ASSERT_EQ(pool.free(), static_cast<int64_t>(model.kept.size() + model.blank.size()));
      if (i % 100 != 0) continue;
      ASSERT_TRUE(pool.Check().ok()) << pool.Check();
      for (int32_t block = 1; block < blocks; ++block) {
        const auto one = model.references.find(block);
        ASSERT_EQ(pool.references(block), one == model.references.end() ? 0 : one->second);
      }
    }
  }
}

BlockKey NumberedKey(int number) {
  BlockKey key{};
  std::memcpy(key.data(), &number, sizeof(number));
  return key;
}

TEST(BlockPoolTest, TellsWhoseKeysAreGone) {
  using ::testing::ElementsAre;
  BlockPool pool(4000);
  std::vector<int32_t> blocks;
  for (int i = 0; i < 3000; ++i) {
    blocks.push_back(*pool.Take());
    pool.Name(blocks.back(), NumberedKey(i));
  }
  EXPECT_EQ(pool.gone(), 0);
  EXPECT_THAT(*pool.GoneSince(0), ElementsAre());
  pool.Unname(blocks[7]);
  pool.Unname(blocks[7]);
  pool.Unname(blocks[3]);
  EXPECT_EQ(pool.gone(), 2);
  EXPECT_THAT(*pool.GoneSince(0), ElementsAre(blocks[7], blocks[3]));
  EXPECT_THAT(*pool.GoneSince(1), ElementsAre(blocks[3]));
  pool.Name(blocks[3], NumberedKey(3));
  EXPECT_EQ(pool.gone(), 2);
  for (const int32_t block : blocks) pool.Drop(block);
  pool.Shed(2500);
  EXPECT_EQ(pool.gone(), 2502);
  EXPECT_FALSE(pool.GoneSince(0).has_value());
  ASSERT_TRUE(pool.GoneSince(2502 - 1024).has_value());
  EXPECT_EQ(pool.GoneSince(2502 - 1024)->size(), 1024u);
  EXPECT_EQ(pool.GoneSince(2501)->front(), pool.GoneSince(2502 - 1024)->back());
  pool.Forget();
  EXPECT_FALSE(pool.GoneSince(2502).has_value());
  EXPECT_THAT(*pool.GoneSince(pool.gone()), ElementsAre());
}

}  // namespace
}  // namespace athanor
