#include "compiler/plan/arena.h"

#include <map>
#include <random>

#include "gtest/gtest.h"

namespace athanor {
namespace {

ArenaValue Alive(int64_t bytes, int first, int last, std::vector<int> may_replace = {}) {
  ArenaValue v;
  v.bytes = bytes;
  v.first = first;
  v.last = last;
  v.may_replace = std::move(may_replace);
  return v;
}

TEST(ArenaTest, ValuesThatNeverMeetShareAPlace) {
  std::vector<ArenaValue> v = {Alive(100, 0, 1), Alive(100, 2, 3), Alive(100, 4, 4)};
  EXPECT_EQ(PlaceValues(&v), 100);
  for (const ArenaValue& x : v) EXPECT_EQ(x.offset, 0);
}

TEST(ArenaTest, ValuesThatMeetAreApartAndAligned) {
  std::vector<ArenaValue> v = {Alive(100, 0, 1), Alive(10, 1, 2)};
  EXPECT_EQ(PlaceValues(&v), 138);
  EXPECT_EQ(v[1].offset, 128);
}

TEST(ArenaTest, ReplacingNeedsPermissionAndDeath) {
  std::vector<ArenaValue> yes = {Alive(100, 0, 1), Alive(100, 1, 2, {0})};
  EXPECT_EQ(PlaceValues(&yes), 100);
  std::vector<ArenaValue> lives_on = {Alive(100, 0, 2), Alive(100, 1, 2, {0})};
  EXPECT_EQ(PlaceValues(&lives_on), 228);
  std::vector<ArenaValue> other_size = {Alive(100, 0, 1), Alive(90, 1, 2, {0})};
  EXPECT_EQ(PlaceValues(&other_size), 218);
}

// A value that replaces another lies exactly over it, even if the space before it is free.
TEST(ArenaTest, ReplacingIsPlaceForPlace) {
  std::vector<ArenaValue> v = {Alive(1000, 0, 1), Alive(500, 1, 2), Alive(500, 2, 3, {1})};
  PlaceValues(&v);
  EXPECT_EQ(v[1].offset, 1024);
  EXPECT_EQ(v[2].offset, v[1].offset);
}

TEST(ArenaTest, SomeValuesWantMoreAlignment) {
  std::vector<ArenaValue> v = {Alive(100, 0, 1), Alive(90, 0, 1), Alive(80, 0, 1), Alive(70, 0, 1)};
  v[2].alignment = 256;
  EXPECT_EQ(PlaceValues(&v), 454);
  EXPECT_EQ(v[2].offset, 256);
  // The gap ahead of it is too small.
  EXPECT_EQ(v[3].offset, 384);
}

TEST(ArenaTest, NothingToPlace) {
  std::vector<ArenaValue> v = {Alive(0, 0, 3), Alive(64, -1, -1)};
  EXPECT_EQ(PlaceValues(&v), 0);
}

// Runs the steps over a memory of values' names: a step must read what was written.
TEST(ArenaTest, RandomLifetimesBySimulation) {
  std::mt19937 rng(7);
  auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    const int steps = 1 + below(30);
    std::vector<ArenaValue> v;
    std::vector<std::vector<int>> reads(steps);
    for (int s = 0; s < steps; ++s) {  // value s is born in step s
      v.push_back(Alive(1 + below(5) * 61, s, s));
      if (below(4) == 0) v[s].alignment = 256;
      for (int r = s > 0 ? below(3) : 0; r > 0; --r) {
        int operand = std::max(0, s - 1 - below(6));
        v[operand].Touch(s);
        reads[s].push_back(operand);
        if (below(2) == 0) v[s].may_replace.push_back(operand);
      }
    }
    const int64_t total = PlaceValues(&v);
    int64_t sum = 0;
    std::map<int64_t, std::pair<int, int64_t>> memory;  // byte → value and its byte
    for (int s = 0; s < steps; ++s) {
      sum += (v[s].bytes + 63) / 64 * 64 + v[s].alignment - 64;
      EXPECT_EQ(v[s].offset % v[s].alignment, 0);
      EXPECT_LE(v[s].offset + v[s].bytes, total);
      // Works byte by byte, as a kernel in place does: reads the operands' byte, then writes the
      // result's.
      int64_t longest = v[s].bytes;
      for (int r : reads[s]) longest = std::max(longest, v[r].bytes);
      for (int64_t byte = 0; byte < longest; ++byte) {
        for (int r : reads[s]) {
          if (byte >= v[r].bytes) continue;
          ASSERT_EQ(memory.at(v[r].offset + byte), std::make_pair(r, byte)) << "round " << round;
        }
        if (byte < v[s].bytes) memory[v[s].offset + byte] = {s, byte};
      }
    }
    EXPECT_LE(total, sum);
  }
}

}  // namespace
}  // namespace athanor
