#include "server/tuner/measure/layers.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/executor_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Returns RowPlan with a weight that a step reads in place, in addition to the prepared one.
v1::Plan Streaming() {
  v1::Plan plan = RowPlan();
  plan.mutable_run(1)->set_buffers(1, 1);  // y = t * w
  return plan;
}

// Creates a CallMemory in which all calls have the bytes of RowCall.
absl::StatusOr<CallMemory> MemoryOf(const Executable& model, int layers, int turns,
                                    const RowCall& call) {
  const int64_t dims[] = {call.rows};
  return CallMemory::Create(model, layers, turns, dims,
                            [&](absl::string_view name) -> absl::StatusOr<absl::string_view> {
                              if (name == "x") return RowCall::View(call.x);
                              if (name == "idx") return RowCall::View(call.idx);
                              return absl::NotFoundError(name);
                            });
}

TEST(LayersTest, AsManyAsTheModelHasWeightsFor) {
  const v1::Plan plan = RowPlan();
  EXPECT_EQ(CountLayers(plan, 32, {{2}}, {.weights = 32 * 18 + 5})->layers, 18);
  EXPECT_EQ(CountLayers(plan, 32, {{2}}, {.weights = int64_t{1} << 40})->layers, 128);
  EXPECT_EQ(CountLayers(plan, 32, {{2}}, {})->layers, 1);
  // At most 64 MiB are held.
  EXPECT_EQ(CountLayers(plan, int64_t{30} << 20, {{2}}, {.weights = int64_t{1} << 40})->layers, 2);
  EXPECT_EQ(CountLayers(plan, int64_t{200} << 20, {{2}}, {.weights = int64_t{1} << 40})->layers, 1);
}

// A call of two rows reads and writes four tensors of 16 to 64 bytes, each on its own cache lines.
TEST(LayersTest, InputsTakeTurnsInAsMuchAsLiesBetweenSteps) {
  const v1::Plan plan = RowPlan();
  const LayerCounts counts =
      CountLayers(plan, 0, {{2}, {64}}, {.activations = {1024, 1024}}).value();
  EXPECT_EQ(counts.layers, 4);
  EXPECT_THAT(counts.turns, ElementsAre(4, 1));
  // Each layer uses one memory, so there are at most as many memories as layers.
  const LayerCounts heavy =
      CountLayers(plan, int64_t{30} << 20, {{2}}, {.activations = {1024}}).value();
  EXPECT_EQ(heavy.layers, 2);
  EXPECT_THAT(heavy.turns, ElementsAre(2));
  EXPECT_EQ(CountLayers(plan, 0, {{65}}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CountLayers(plan, 0, {{}}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LayersTest, OneLayerIsThePlan) {
  const Layers model = InLayers(Streaming(), 1);
  EXPECT_EQ(model.plan.SerializeAsString(), Streaming().SerializeAsString());
  EXPECT_THAT(model.copies, IsEmpty());
}

TEST(LayersTest, WeightsReadWhereTheyLieAreEachLayersOwn) {
  v1::Plan plan = Streaming();
  plan.mutable_buffers(0)->set_name("w#1");  // a name that is already taken
  const Layers model = InLayers(plan, 3);
  EXPECT_THAT(model.copies, ElementsAre(Pair("w#1#", "w"), Pair("w#2", "w")));
  std::set<uint32_t> read;
  for (int layer = 0; layer < 3; ++layer) read.insert(model.plan.run(3 * layer + 1).buffers(1));
  EXPECT_EQ(read.size(), 3u);
  EXPECT_THAT(InLayers(RowPlan(), 3).copies, IsEmpty());
}

TEST(LayersTest, WhatARunWouldCopyOutIsNoOutput) {
  v1::Plan plan = RowPlan();
  v1::PlanOutput* copied = plan.add_outputs();
  copied->set_name("t");
  copied->set_buffer(4);
  *plan.add_outputs() = plan.outputs(0);
  const Layers model = InLayers(plan, 2);
  std::vector<std::string> names;
  for (const v1::PlanOutput& o : model.plan.outputs()) names.push_back(o.name());
  EXPECT_THAT(names, ElementsAre("y", "g", "y", "g"));
}

// Each layer computes the plan's values, in the memory assigned to it.
TEST(LayersTest, CallsGoFromLayerToLayer) {
  constexpr int kLayers = 3, kTurns = 2;
  auto device = FunctionDevice::Make(2);
  const Layers model = InLayers(RowPlan(), kLayers);
  std::optional<Arena> own;
  auto parameters = LayerParameters(model, {RowParameter(1.0f)}, &own).value();
  auto executable =
      Executable::Load(model.plan, RowPlanObjects(), parameters, device.get(), {}).value();
  // A prepared weight for each layer, and the constant.
  EXPECT_EQ(executable->fixed_bytes(), 64 * (1 + kLayers));
  RowCall call(5);
  const CallMemory memory = MemoryOf(*executable, kLayers, kTurns, call).value();
  ASSERT_EQ(memory.inputs().size(), 2u * kLayers);
  std::set<const void*> places;
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(memory.inputs()[2 * layer], RowCall::View(call.x)) << layer;
    EXPECT_EQ(memory.inputs()[2 * layer + 1], RowCall::View(call.idx)) << layer;
    places.insert(memory.inputs()[2 * layer].data());
    places.insert(memory.outputs()[2 * layer].data());
  }
  EXPECT_EQ(places.size(), 2u * kTurns);
  auto context = executable->NewContext().value();
  const int64_t dims[] = {call.rows};
  const int steps = executable->steps() / kLayers;
  ASSERT_EQ(steps, 3);
  for (int layer = 0; layer < kLayers; ++layer) {
    const absl::Span<char> y = memory.outputs()[2 * layer], g = memory.outputs()[2 * layer + 1];
    std::fill(y.begin(), y.end(), 0);
    std::fill(g.begin(), g.end(), 0);
    const RunOptions options{.first_step = layer * steps, .steps = steps};
    ASSERT_TRUE(
        executable->Run(context.get(), dims, memory.inputs(), memory.outputs(), options).ok());
    std::memcpy(call.y.data(), y.data(), y.size());
    std::memcpy(call.g.data(), g.data(), g.size());
    EXPECT_TRUE(call.Right(1.0f)) << layer;
  }
}

TEST(LayersTest, CopiesHaveTheBytesOfWhatTheyAreCopiesOf) {
  const Layers model = InLayers(Streaming(), 20);
  std::optional<Arena> own;
  const ParameterView given = RowParameter(3.0f);
  const auto views = LayerParameters(model, {given}, &own).value();
  ASSERT_EQ(views.size(), 20u);
  std::set<const void*> places;
  for (const ParameterView& view : views) {
    EXPECT_EQ(view.data, given.data) << view.name;
    places.insert(view.data.data());
  }
  EXPECT_EQ(places.size(), 20u);
  EXPECT_EQ(LayerParameters(model, {}, &own).status().code(), absl::StatusCode::kNotFound);
}

TEST(LayersTest, AnInputThatIsNotThereIsNamed) {
  auto device = FunctionDevice::Make(1);
  v1::Plan plan = RowPlan();
  plan.mutable_buffers(0)->set_name("z");
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable = Executable::Load(plan, RowPlanObjects(), parameters, device.get(), {}).value();
  const auto memory = MemoryOf(*executable, 1, 1, RowCall(2));
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(memory.status().message(), "z");
}

}  // namespace
}  // namespace athanor
