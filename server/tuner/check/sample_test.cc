#include "server/tuner/check/sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Positions = std::vector<int64_t>;

TEST(SampleTest, EdgesAreCorners) {
  EXPECT_THAT(EdgePositions({}), ElementsAre(0));
  EXPECT_THAT(EdgePositions({5}), ElementsAre(0, 4));
  EXPECT_THAT(EdgePositions({3, 4}), ElementsAre(0, 3, 8, 11));
  EXPECT_THAT(EdgePositions({3, 0}), IsEmpty());
  EXPECT_LE(EdgePositions({9, 9, 9, 9, 9}).size(), 10u);
  EXPECT_THAT(EdgePositions({9, 9, 9, 9, 9}), Contains(9 * 9 * 9 * 9 * 9 - 1));
}

TEST(SampleTest, FewElementsAreAllTaken) {
  Positions all(12);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(SpreadPositions({3, 4}, 12, 1), all);
  EXPECT_EQ(SpreadPositions({}, 5, 1), Positions{0});
  EXPECT_THAT(SpreadPositions({0, 4}, 12, 1), IsEmpty());
}

TEST(SampleTest, PositionsAreDistinctInsideAndFollowFromTheSeed) {
  for (const Positions& shape :
       {Positions{1000, 1000}, {1 << 20}, {7, 3, 1000}, {2, 2, 2, 2, 99}, {int64_t{1} << 40, 3}}) {
    const int64_t elements =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    for (int64_t count : {4, 31, 512}) {
      if (elements <= count) continue;
      const Positions some = SpreadPositions(shape, count, 5);
      EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
      EXPECT_EQ(std::set<int64_t>(some.begin(), some.end()).size(), some.size());
      EXPECT_GE(some.front(), 0);
      EXPECT_LT(some.back(), elements);
      EXPECT_LE(some.size(), static_cast<size_t>(count));
      EXPECT_GE(some.size(), static_cast<size_t>(count) / 2);
      EXPECT_EQ(some, SpreadPositions(shape, count, 5));
      EXPECT_NE(some, SpreadPositions(shape, count, 6));
    }
  }
}

TEST(SampleTest, EveryCoordinateOfAShortAxisIsMet) {
  const Positions some = SpreadPositions({250, 100'000}, 512, 3);
  std::set<int64_t> rows, deciles;
  for (int64_t p : some) {
    rows.insert(p / 100'000);
    deciles.insert(p % 100'000 / 1000);
  }
  EXPECT_EQ(rows.size(), 250u);
  EXPECT_EQ(deciles.size(), 100u);
}

// Finds errors in a tile of 16 rows behind the last full column tile of any width.
TEST(SampleTest, TileRemaindersAreMet) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::set<int64_t> tiles;
    for (int64_t p : SpreadPositions({1000, 1000}, 512, seed)) {
      if (p % 1000 == 999) tiles.insert(p / 1000 / 16);
    }
    EXPECT_EQ(tiles.size(), 63u) << seed;
  }
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(SampleTest, SuspectsAreUntouchedNotFiniteOrLargest) {
  std::vector<float> values(10'000, 1);
  EXPECT_THAT(SuspectPositions(BytesOf(values), DType::kF32, 0x5a), ElementsAre(0));
  values[77] = -2;
  EXPECT_THAT(SuspectPositions(BytesOf(values), DType::kF32, 0x5a), ElementsAre(77));
  values[500] = std::nanf("");
  values[9000] = 1e30f;
  EXPECT_THAT(SuspectPositions(BytesOf(values), DType::kF32, 0x5a), ElementsAre(77, 500));
  std::string bytes = BytesOf(values);
  std::memset(bytes.data() + 4 * 1234, 0x5a, 4);
  EXPECT_THAT(SuspectPositions(bytes, DType::kF32, 0x5a), Contains(1234));
  std::memset(bytes.data(), 0x5a, bytes.size());
  EXPECT_THAT(SuspectPositions(bytes, DType::kI64, 0x5a),
              ElementsAre(0, 1, 2, 3, 4996, 4997, 4998, 4999));
  EXPECT_THAT(SuspectPositions("", DType::kF64, 0x5a), IsEmpty());
}

// Against a look at one element after another, wherever the interesting ones are.
TEST(SampleTest, SuspectsAreThoseOfAPlainLoop) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> values(random() % 700);
    for (double& v : values) v = static_cast<double>(random() % 1000) - 500;
    for (int special = 0; special < round % 4 && !values.empty(); ++special) {
      const double chosen[] = {std::nan(""), -HUGE_VAL, 1e300, -1e300};
      values[random() % values.size()] = chosen[random() % 4];
    }
    std::set<int64_t> want;
    double magnitude = -1;
    int64_t largest = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      if (!std::isfinite(values[i])) {
        want.insert(i);
        break;
      }
      if (std::fabs(values[i]) <= magnitude) continue;
      magnitude = std::fabs(values[i]);
      largest = i;
    }
    if (largest >= 0) want.insert(largest);
    EXPECT_THAT(SuspectPositions(BytesOf(values), DType::kF64, 0x5a), ElementsAreArray(want));
  }
}

}  // namespace
}  // namespace athanor
