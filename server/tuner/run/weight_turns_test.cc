#include "server/tuner/run/weight_turns.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;

// Makes layers of x = x * scale + offset; all parameters are f32[256]: 1 KiB.
Graph Layers(int layers) {
  Graph graph;
  GraphBuilder builder(&graph);
  const TensorType type{DType::kF32, {256}};
  NodeId x = builder.Input("x", type).value();
  for (int i = 0; i < layers; ++i) {
    const NodeId scale = builder.Parameter(absl::StrCat("scale", i), type).value();
    const NodeId offset = builder.Parameter(absl::StrCat("offset", i), type).value();
    x = builder.Add(Op::kMul, {x, scale}).value();
    x = builder.Add(Op::kAdd, {x, offset}).value();
  }
  builder.Output("y", x);
  return graph;
}

TEST(WeightTurnsTest, WhatFitsStandsForItself) {
  const std::vector<int> turns = WeightTurns(Layers(4), 8 << 10);
  EXPECT_THAT(turns, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_FALSE(AreShared(turns));
}

TEST(WeightTurnsTest, EachKindTakesTurnsWithinItself) {
  const std::vector<int> turns = WeightTurns(Layers(4), 6 << 10);
  EXPECT_THAT(turns, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1));
  EXPECT_TRUE(AreShared(turns));
}

TEST(WeightTurnsTest, NeighboursDifferHoweverLittleMayBeHeld) {
  EXPECT_THAT(WeightTurns(Layers(5), 0), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  EXPECT_THAT(WeightTurns(Layers(1), 0), ElementsAre(0, 1));
  EXPECT_THAT(WeightTurns(Layers(0), 0), ElementsAre());
}

TEST(WeightTurnsTest, NamesTellContentsApart) {
  EXPECT_EQ(WeightName(1, 12), WeightName(1, 12));
  EXPECT_NE(WeightName(1, 12), WeightName(11, 2));
  EXPECT_NE(WeightName(0, 1), WeightName(1, 1));
}

}  // namespace
}  // namespace athanor
