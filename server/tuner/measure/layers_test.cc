#include "server/tuner/measure/layers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/device/forwarding_device.h"
#include "runtime/executor/executor_testing.h"

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

// Counts what the queues of another device do.
class CountingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_.NewQueue(scratch_bytes));
    return std::make_unique<Queue>(this, std::move(queue));
  }

  int records = 0, replays = 0, copies = 0;
  int64_t recorded = 0;  // launches of the recordings that are there
  bool timed = false;    // each launch takes a microsecond

 private:
  struct Recording : DeviceRecording {
    Recording(CountingDevice* device, std::unique_ptr<DeviceRecording> recording, int64_t launches)
        : device(*device), recording(std::move(recording)), launches(launches) {
      ++device->records;
      device->recorded += launches;
    }
    ~Recording() override { device.recorded -= launches; }
    absl::StatusOr<std::optional<double>> Seconds() const override {
      return device.timed ? std::optional<double>(1e-6 * static_cast<double>(launches))
                          : std::nullopt;
    }

    CountingDevice& device;
    const std::unique_ptr<DeviceRecording> recording;
    const int64_t launches;
  };
  class Queue : public DeviceQueue {
   public:
    Queue(CountingDevice* device, std::unique_ptr<DeviceQueue> queue)
        : device_(*device), queue_(std::move(queue)) {}
    absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
        absl::Span<const RecordedLaunch> launches) override {
      ASSIGN_OR_RETURN(std::unique_ptr<DeviceRecording> recording, queue_->Record(launches));
      return std::make_unique<Recording>(&device_, std::move(recording), std::ssize(launches));
    }
    absl::Status Replay(const DeviceRecording& recording) override {
      ++device_.replays;
      return queue_->Replay(*static_cast<const Recording&>(recording).recording);
    }
    void TimeRecordings() override { device_.timed = true; }
    Workspace workspace() const override { return queue_->workspace(); }
    absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
      ++device_.copies;
      return queue_->Copy(to, from, bytes, kind);
    }
    absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
      return queue_->Fill(to, byte, bytes);
    }
    absl::Status Wait() override { return queue_->Wait(); }

   private:
    CountingDevice& device_;
    const std::unique_ptr<DeviceQueue> queue_;
  };
};

TEST(LayerCallsTest, WhatIsTimedRecordsAndCopiesNothing) {
  const std::unique_ptr<FunctionDevice> near = FunctionDevice::Make(1);
  FarDevice far(near.get());
  CountingDevice device(&far);
  constexpr int kLayers = 5;
  const Layers layers = InLayers(RowPlan(), kLayers);
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const auto model =
      Executable::Load(layers.plan, RowPlanObjects(), parameters, &device, {}).value();
  LayerCalls calls(model, model->NewContext().value(), kLayers, device.host_memory());
  for (const int64_t rows : {3, 7, 3}) {
    RowCall row(rows);
    const int64_t dims[] = {rows};
    const CallMemory memory = MemoryOf(*model, kLayers, 2, row).value();
    for (const int64_t n : {1, 3, 3, 7, 12, 1, 5}) {
      ASSERT_TRUE(calls.Prepare(dims, memory, n).ok());
      device.records = device.replays = device.copies = 0;
      const absl::Status called = calls.Call(dims, memory, n);
      ASSERT_TRUE(called.ok()) << called;
      EXPECT_EQ(device.records, 0) << n;
      EXPECT_EQ(device.copies, 0) << n;
      EXPECT_GE(device.replays, 1) << n;
    }
    // It did compute: a run of no steps fetches what lies there.
    const absl::Status fetched =
        model->Run(calls.context(), dims, memory.inputs(), memory.outputs(), {.steps = 0});
    ASSERT_TRUE(fetched.ok()) << fetched;
    for (size_t o = 0; o < memory.outputs().size(); o += 2) {
      std::memcpy(row.y.data(), memory.outputs()[o].data(), memory.outputs()[o].size());
      std::memcpy(row.g.data(), memory.outputs()[o + 1].data(), memory.outputs()[o + 1].size());
      EXPECT_TRUE(row.Right(0.5f)) << rows << " output " << o;
    }
  }
}

TEST(LayerCallsTest, TimesAreTheDevices) {
  constexpr int kLayers = 5;
  const Layers layers = InLayers(RowPlan(), kLayers);
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const int64_t dims[] = {3};
  for (const bool timed : {false, true}) {
    const std::unique_ptr<FunctionDevice> near = FunctionDevice::Make(1);
    FarDevice far(near.get());
    CountingDevice device(&far);
    const auto model =
        Executable::Load(layers.plan, RowPlanObjects(), parameters, &device, {.timed = timed})
            .value();
    LayerCalls calls(model, model->NewContext().value(), kLayers, device.host_memory());
    const CallMemory memory = MemoryOf(*model, kLayers, 1, RowCall(3)).value();
    const int steps = model->steps() / kLayers;
    for (const int64_t n : {1, 3, 7, 12}) {
      ASSERT_TRUE(calls.Prepare(dims, memory, n).ok());
      ASSERT_TRUE(calls.Call(dims, memory, n).ok());
      ASSERT_EQ(calls.device_seconds().has_value(), timed) << n;
      if (timed) EXPECT_NEAR(*calls.device_seconds(), 1e-6 * static_cast<double>(n * steps), 1e-12);
    }
    std::vector<int64_t> nanoseconds(model->steps());
    const RunOptions options{
        .step_nanoseconds = absl::MakeSpan(nanoseconds), .steps = steps, .resident = true};
    ASSERT_TRUE(model->Run(calls.context(), dims, memory.inputs(), memory.outputs(), options).ok());
    for (int s = 0; s < steps; ++s) EXPECT_EQ(nanoseconds[s] == 1000, timed) << nanoseconds[s];
  }
  // Kernels of the host have no clock of their own.
  const std::unique_ptr<FunctionDevice> host = FunctionDevice::Make(1);
  const auto model =
      Executable::Load(layers.plan, RowPlanObjects(), parameters, host.get(), {.timed = true})
          .value();
  LayerCalls calls(model, model->NewContext().value(), kLayers, host->host_memory());
  const CallMemory memory = MemoryOf(*model, kLayers, 1, RowCall(3)).value();
  ASSERT_TRUE(calls.Call(dims, memory, 3).ok());
  EXPECT_EQ(calls.device_seconds(), std::nullopt);
}

TEST(LayerCallsTest, RecordingsAreFew) {
  const std::unique_ptr<FunctionDevice> near = FunctionDevice::Make(1);
  FarDevice far(near.get());
  CountingDevice device(&far);
  constexpr int kLayers = 128;
  const Layers layers = InLayers(RowPlan(), kLayers);
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const auto model =
      Executable::Load(layers.plan, RowPlanObjects(), parameters, &device, {}).value();
  LayerCalls calls(model, model->NewContext().value(), kLayers, device.host_memory());
  const int64_t dims[] = {1};
  const CallMemory memory = MemoryOf(*model, kLayers, 1, RowCall(1)).value();
  const int64_t steps = model->steps() / kLayers, most = LayerCalls::kMostRecorded;
  ASSERT_LT(8 * model->steps(), most);
  int64_t recorded = 0;
  bool dropped = false;
  for (int64_t n = 1; n <= kLayers; ++n) {
    ASSERT_TRUE(calls.Prepare(dims, memory, n).ok());
    dropped |= device.recorded < recorded;
    recorded = device.recorded;
    EXPECT_LE(recorded, most + n * steps) << n;
    device.records = 0;
    ASSERT_TRUE(calls.Call(dims, memory, n).ok());
    EXPECT_EQ(device.records, 0) << n;
  }
  EXPECT_TRUE(dropped);
}

// RowPlan for so many rows, without dims.
v1::Plan RowPlanOf(int64_t rows) {
  v1::Plan plan = RowPlan();
  plan.clear_dims();
  const auto fix = [&](v1::SizeExpr* size) {
    for (v1::SizeExpr::Term& term : *size->mutable_terms()) {
      for (int f = 0; f < term.factors_size(); ++f) term.set_coefficient(term.coefficient() * rows);
      term.clear_factors();
    }
  };
  for (v1::Buffer& buffer : *plan.mutable_buffers()) {
    fix(buffer.mutable_bytes());
    for (v1::SizeExpr& axis : *buffer.mutable_shape()) fix(&axis);
  }
  for (v1::Step& step : *plan.mutable_run()) fix(step.mutable_grid());
  return plan;
}

TEST(LayerCallsTest, WhatIsTimedOfAPlanWithoutDimsCopiesNothing) {
  const std::unique_ptr<FunctionDevice> near = FunctionDevice::Make(1);
  FarDevice far(near.get());
  CountingDevice device(&far);
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const auto model =
      Executable::Load(InLayers(RowPlanOf(3), 2).plan, RowPlanObjects(), parameters, &device, {})
          .value();
  LayerCalls calls(model, model->NewContext().value(), 2, device.host_memory());
  const RowCall row(3);
  const CallMemory memory =
      CallMemory::Create(*model, 2, 1, {},
                         [&](absl::string_view name) -> absl::StatusOr<absl::string_view> {
                           return name == "x" ? RowCall::View(row.x) : RowCall::View(row.idx);
                         })
          .value();
  for (const int64_t n : {1, 2, 5}) {
    ASSERT_TRUE(calls.Prepare({}, memory, n).ok());
    device.copies = 0;
    const absl::Status called = calls.Call({}, memory, n);
    ASSERT_TRUE(called.ok()) << called;
    EXPECT_EQ(device.copies, 0) << n;
  }
}

TEST(LayerCallsTest, GoFromLayerToLayer) {
  const std::unique_ptr<FunctionDevice> device = FunctionDevice::Make(1);
  const Layers layers = InLayers(RowPlan(), 3);
  const std::vector<ParameterView> parameters = {RowParameter(0.5f)};
  const auto model =
      Executable::Load(layers.plan, RowPlanObjects(), parameters, device.get(), {}).value();
  LayerCalls calls(model, model->NewContext().value(), 3, device->host_memory());
  const RowCall row(4);
  const int64_t dims[] = {4};
  const CallMemory memory = MemoryOf(*model, 3, 3, row).value();
  const auto written = [&] {
    std::vector<bool> which;
    for (size_t o = 0; o < memory.outputs().size(); o += 2) {
      which.push_back(LoadAt<float>(memory.outputs()[o].data(), 1) != 0);
      std::memset(memory.outputs()[o].data(), 0, memory.outputs()[o].size());
    }
    return which;
  };
  EXPECT_THAT(written(), ElementsAre(false, false, false));
  for (const auto& [n, which] :
       std::vector<std::pair<int64_t, std::vector<bool>>>{{1, {true, false, false}},
                                                          {1, {false, true, false}},
                                                          {2, {true, false, true}},
                                                          {0, {false, false, false}},
                                                          {4, {true, true, true}}}) {
    ASSERT_TRUE(calls.Prepare(dims, memory, n).ok());
    ASSERT_TRUE(calls.Call(dims, memory, n).ok());
    EXPECT_EQ(written(), which) << n;
  }
  calls.Restart();
  ASSERT_TRUE(calls.Call(dims, memory, 1).ok());
  EXPECT_THAT(written(), ElementsAre(true, false, false));
}

}  // namespace
}  // namespace athanor
