#include "compiler/search/regions/region_cuts.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

// Makes a symbol of each letter; each node uses the one before it.
CutSequence Chain(std::string_view letters) {
  CutSequence s;
  for (size_t i = 0; i < letters.size(); ++i) {
    s.symbols.push_back(letters[i]);
    s.operands.emplace_back();
    if (i > 0) s.operands.back().push_back(static_cast<int>(i) - 1);
  }
  return s;
}

std::string Repeat(std::string_view part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

using Cuts = std::vector<int>;

TEST(RegionCutsTest, ShortSequencesAreOneRegion) {
  EXPECT_EQ(ChooseCuts(Chain(""), {}), Cuts{});
  EXPECT_EQ(ChooseCuts(Chain("a"), {}), (Cuts{0, 1}));
  EXPECT_EQ(ChooseCuts(Chain("abcabcabc"), {}), (Cuts{0, 9}));
}

TEST(RegionCutsTest, EqualLayersAreCutAlike) {
  for (int layers : {2, 3, 6, 24, 48}) {
    Cuts want = {0};
    for (int i = 0; i <= layers; ++i) want.push_back(3 + 10 * i);
    want.push_back(3 + 10 * layers + 2);
    EXPECT_EQ(ChooseCuts(Chain("xyz" + Repeat("abcdefghij", layers) + "uv"), {}), want);
  }
}

TEST(RegionCutsTest, ShortPeriodsAreTakenSeveralAtOnce) {
  EXPECT_EQ(ChooseCuts(Chain(Repeat("abc", 9)), {}), (Cuts{0, 9, 18, 27}));
  EXPECT_EQ(ChooseCuts(Chain(Repeat("a", 26)), {.min_nodes = 4}),
            (Cuts{0, 4, 8, 12, 16, 20, 24, 26}));
}

TEST(RegionCutsTest, WhatRepeatsInsideALayerDoesNotCutIt) {
  const std::string layer = Repeat("abcdefgh", 3) + "xyz" + Repeat("pq", 5);
  const int size = static_cast<int>(layer.size());
  EXPECT_EQ(ChooseCuts(Chain(Repeat(layer, 4)), {}), (Cuts{0, size, 2 * size, 3 * size, 4 * size}));
}

TEST(RegionCutsTest, LayersLongerThanARegionAreCutAlikeInside) {
  const std::string layer = "abcdefghijklmnopqrstuvwxyz";
  const Cuts cuts = ChooseCuts(Chain(Repeat(layer, 5)), {.max_nodes = 10});
  const auto per_layer = (cuts.size() - 1) / 5;
  ASSERT_EQ(cuts.size(), 5 * per_layer + 1);
  for (size_t i = per_layer; i < cuts.size(); ++i) EXPECT_EQ(cuts[i], cuts[i - per_layer] + 26);
}

TEST(RegionCutsTest, TwoKindsOfLayersInTurn) {
  // Five of one kind, then one of the other, four times.
  const std::string some = "abcdefghij", other = "klmnopqrst";
  const Cuts cuts = ChooseCuts(Chain(Repeat(Repeat(some, 5) + other, 4)), {.max_nodes = 20});
  ASSERT_EQ(cuts.size(), 25);
  for (size_t i = 0; i < cuts.size(); ++i) EXPECT_EQ(cuts[i], 10 * static_cast<int>(i));
}

TEST(RegionCutsTest, CutsWhereFewValuesCross) {
  // Each layer keeps its first value until its last node.
  CutSequence s = Chain(Repeat("abcdefghij", 6));
  for (int i = 9; i < 60; i += 10) s.operands[i].push_back(i - 9);
  // Rotates the sequence, so that the run does not begin with a layer.
  CutSequence rotated;
  for (int i = 4; i < 60; ++i) {
    rotated.symbols.push_back(s.symbols[i]);
    rotated.operands.emplace_back();
    for (int operand : s.operands[i]) {
      if (operand >= 4) rotated.operands.back().push_back(operand - 4);
    }
  }
  EXPECT_EQ(ChooseCuts(rotated, {}), (Cuts{0, 6, 16, 26, 36, 46, 56}));
}

// Parallel towers often share operands.
TEST(RegionCutsTest, ParallelPartsStayTogetherWhileTheyFit) {
  CutSequence towers;
  for (int tower = 0; tower < 6; ++tower) {
    for (int i = 0; i < 10; ++i) {
      towers.symbols.push_back(i);
      towers.operands.emplace_back();
      if (i > 0) towers.operands.back().push_back(10 * tower + i - 1);
    }
  }
  towers.symbols.push_back(99);
  towers.operands.push_back({9, 19, 29, 39, 49, 59});
  EXPECT_EQ(ChooseCuts(towers, {}), (Cuts{0, 61}));
  EXPECT_EQ(ChooseCuts(towers, {.max_nodes = 30}), (Cuts{0, 10, 20, 30, 40, 50, 60, 61}));
}

TEST(RegionCutsTest, AlwaysCoversWithinTheLimit) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    CutSequence s;
    const int size = 1 + static_cast<int>(random() % 400);
    const int letters = 1 + static_cast<int>(random() % 5);
    for (int i = 0; i < size; ++i) {
      s.symbols.push_back(static_cast<int>(random() % letters));
      s.operands.emplace_back();
      for (int uses = static_cast<int>(random() % 3); uses > 0 && i > 0; --uses) {
        s.operands.back().push_back(static_cast<int>(random() % i));
      }
    }
    const CutOptions options{.max_nodes = 1 + static_cast<int>(random() % 60),
                             .min_nodes = 1 + static_cast<int>(random() % 12)};
    const Cuts cuts = ChooseCuts(s, options);
    ASSERT_EQ(cuts.front(), 0);
    ASSERT_EQ(cuts.back(), size);
    for (size_t i = 1; i < cuts.size(); ++i) {
      ASSERT_LT(cuts[i - 1], cuts[i]);
      ASSERT_LE(cuts[i] - cuts[i - 1], options.max_nodes) << round;
    }
    EXPECT_EQ(ChooseCuts(s, options), cuts);
  }
}

}  // namespace
}  // namespace athanor
