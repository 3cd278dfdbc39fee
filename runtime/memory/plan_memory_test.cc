#include "runtime/memory/plan_memory.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr int kParameter = 1, kConstant = 2, kPrepared = 3;  // buffers of RowPlan

class Ledger final : public MemoryLedger {
 public:
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    if (held + bytes > limit) return absl::ResourceExhaustedError("held and limit");
    held += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override { held -= bytes; }
  int64_t limit = int64_t{1} << 40, held = 0;
};

// RowPlan with hashes of kernels, as the compiler makes it.
v1::Plan HashedPlan() {
  v1::Plan plan = RowPlan();
  for (v1::Kernel& kernel : *plan.mutable_kernels())
    kernel.set_source_hash("hash " + kernel.name());
  return plan;
}

std::vector<PreparedKey> Keys(const v1::Plan& plan, const ParameterHashes& hashes = {{"w", "W"}}) {
  const Program program = BuildProgram(plan).value();
  return PreparedKeys(plan, program, hashes);
}

// RowPlan with a second prepared buffer: twice the first.
v1::Plan ChainPlan() {
  v1::Plan plan = HashedPlan();
  *plan.add_buffers() = plan.buffers(kPrepared);
  v1::Step* step = plan.add_prepare();
  *step = plan.prepare(0);
  step->set_buffers(0, kPrepared);
  step->set_buffers(1, plan.buffers_size() - 1);
  return plan;
}

TEST(PreparedKeysTest, SayWhatMakesTheBytes) {
  const v1::Plan plan = HashedPlan();
  const std::vector<PreparedKey> keys = Keys(plan);
  ASSERT_EQ(keys.size(), 2);  // constant, prepared
  EXPECT_EQ(keys[0].size(), 32);
  EXPECT_EQ(keys[1].size(), 32);
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_EQ(Keys(plan), keys);
  // Names, labels and the bucket do not matter.
  v1::Plan other = plan;
  other.set_plan_id("p-1");
  other.mutable_dims(0)->set_max(7);
  other.mutable_prepare(0)->set_label("another");
  other.mutable_buffers(1)->set_name("v");
  EXPECT_EQ(Keys(other, {{"v", "W"}}), keys);
}

TEST(PreparedKeysTest, EverythingThatMattersIsInThem) {
  const v1::Plan plan = HashedPlan();
  const std::vector<PreparedKey> keys = Keys(plan);
  EXPECT_NE(Keys(plan, {{"w", "V"}})[1], keys[1]);
  v1::Plan other = plan;
  other.mutable_kernels(0)->set_source_hash("another");
  EXPECT_NE(Keys(other)[1], keys[1]);
  other = plan;
  other.mutable_prepare(0)->mutable_grid()->mutable_terms(0)->set_coefficient(4);
  EXPECT_NE(Keys(other)[1], keys[1]);
  other = plan;
  other.mutable_prepare(0)->add_sizes()->add_terms()->set_coefficient(4);
  EXPECT_NE(Keys(other)[1], keys[1]);
  other = plan;
  other.mutable_buffers(kPrepared)->mutable_bytes()->mutable_terms(0)->set_coefficient(64);
  EXPECT_NE(Keys(other)[1], keys[1]);
  other = plan;
  (*other.mutable_buffers(kConstant)->mutable_literal())[3] ^= 1;
  EXPECT_NE(Keys(other)[0], keys[0]);
  EXPECT_EQ(Keys(other)[1], keys[1]);  // it is not made from the constant
  other.mutable_prepare(0)->set_buffers(0, kConstant);
  EXPECT_NE(Keys(other)[1], keys[1]);
}

TEST(PreparedKeysTest, ChainsOfSteps) {
  const v1::Plan plan = ChainPlan();
  const std::vector<PreparedKey> keys = Keys(plan);
  ASSERT_EQ(keys.size(), 3);
  EXPECT_EQ(keys[1], Keys(HashedPlan())[1]);
  EXPECT_NE(keys[2], keys[1]);
  EXPECT_NE(Keys(plan, {{"w", "V"}})[2], keys[2]);
}

TEST(PreparedKeysTest, NoneWhereTheBytesAreNotKnownByWhatMadeThem) {
  EXPECT_EQ(Keys(HashedPlan(), {})[1], "");
  EXPECT_EQ(Keys(ChainPlan(), {})[2], "");
  EXPECT_EQ(Keys(RowPlan())[1], "");  // kernels without hashes
  v1::Plan twice = HashedPlan();
  *twice.add_prepare() = twice.prepare(0);  // changes the buffer that was made
  EXPECT_EQ(Keys(twice), std::vector<PreparedKey>(2));
}

TEST(PlanMemoryTest, CountsEachKeyOnce) {
  v1::Plan plan = HashedPlan();
  PlanMemory memory = MemoryOf(plan, {{"w", "W"}}, /*host_memory=*/true).value();
  EXPECT_EQ(memory.WeightBytes(), 128);
  EXPECT_EQ(memory.arena, 2112);
  EXPECT_EQ(memory.scratch, 32);
  EXPECT_EQ(memory.brief, 0);
  EXPECT_EQ(MemoryOf(ChainPlan(), {{"w", "W"}}, true).value().brief, 64);
  // Prepares the same weight the same way into a second buffer, which runs use.
  *plan.add_buffers() = plan.buffers(kPrepared);
  v1::Step* step = plan.add_prepare();
  *step = plan.prepare(0);
  step->set_buffers(1, plan.buffers_size() - 1);
  plan.mutable_run(1)->set_buffers(1, plan.buffers_size() - 1);
  memory = MemoryOf(plan, {{"w", "W"}}, true).value();
  // the constant is not used any more, and the weight counts once
  EXPECT_EQ(memory.WeightBytes(), 64);
  EXPECT_EQ(MemoryOf(plan, {}, true).value().WeightBytes(), 128);
  plan.set_format(9);
  EXPECT_FALSE(MemoryOf(plan, {}, true).ok());
}

TEST(PlanMemoryTest, CountsWhatADeviceOfItsOwnMemoryHolds) {
  v1::Plan plan = HashedPlan();
  // The weight is read by `prepare` alone, and given back.
  PlanMemory memory = MemoryOf(plan, {{"w", "W"}}, /*host_memory=*/false).value();
  EXPECT_EQ(memory.WeightBytes(), 128);
  // There are two inputs and two outputs of up to 64 rows, in places of their own.
  EXPECT_EQ(memory.arena, 2112 + 64 * (32 + 8 + 32 + 4));
  plan.mutable_run(0)->set_buffers(1, kParameter);
  memory = MemoryOf(plan, {{"w", "W"}}, false).value();
  EXPECT_EQ(memory.WeightBytes(), 128);  // the constant and the weight, no prepared one
  ASSERT_EQ(memory.weights.size(), 2u);
  EXPECT_EQ(memory.weights[1].key, WeightKey("W"));
  EXPECT_EQ(MemoryOf(plan, {{"w", "W"}}, true).value().WeightBytes(), 64);
  EXPECT_EQ(MemoryOf(plan, {}, false).value().weights[1].key, "");
  // Another name of the same weight, then of another.
  *plan.add_buffers() = plan.buffers(kParameter);
  plan.mutable_buffers(plan.buffers_size() - 1)->set_name("v");
  plan.mutable_run(1)->set_buffers(1, plan.buffers_size() - 1);
  EXPECT_EQ(MemoryOf(plan, {{"w", "W"}, {"v", "W"}}, false).value().WeightBytes(), 64);
  EXPECT_EQ(MemoryOf(plan, {{"w", "W"}, {"v", "V"}}, false).value().WeightBytes(), 128);
  // More than any memory holds.
  plan.mutable_dims(0)->set_max(int64_t{1} << 57);
  EXPECT_EQ(MemoryOf(plan, {}, false).value().arena, INT64_MAX);
}

class SharedPlansTest : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<const Executable> Load(const v1::Plan& plan, float w) {
    auto loaded = TryLoad(plan, w);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }
  absl::StatusOr<std::shared_ptr<const Executable>> TryLoad(const v1::Plan& plan, float w) {
    ParameterView parameter = RowParameter(w);
    parameter.hash = std::to_string(w);
    return Executable::Load(plan, RowPlanObjects(), {parameter}, device_.get(),
                            {.ledger = &ledger_, .pool = &pool_, .poison = true});
  }
  static void ExpectRight(const Executable& executable, float w) {
    auto context = executable.NewContext().value();
    RowCall call(5);
    ASSERT_TRUE(call.Run(executable, context.get()).ok());
    EXPECT_TRUE(call.Right(w));
  }

  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(2), GetParam()};
  Ledger ledger_;
  PreparedPool pool_{device_.get(), &ledger_};
};

INSTANTIATE_TEST_SUITE_P(Devices, SharedPlansTest, ::testing::Bool(), EitherDeviceName);

TEST_P(SharedPlansTest, EqualWeightsAreHeldOnce) {
  const v1::Plan plan = HashedPlan();
  v1::Plan box = plan;
  box.mutable_dims(0)->set_max(7);
  const PlanMemory memory = MemoryOf(plan, {{"w", std::to_string(1.0f)}}, !GetParam()).value();
  EXPECT_EQ(memory.NewBytes(pool_), 128);
  auto first = Load(plan, 1);
  EXPECT_EQ(memory.NewBytes(pool_), 0);
  auto second = Load(box, 1);
  EXPECT_EQ(ledger_.held, 128);
  EXPECT_EQ(second->fixed_bytes(), 128);
  // With another weight, the constant is shared and the prepared buffer is not.
  auto third = Load(plan, 2);
  EXPECT_EQ(ledger_.held, 128 + 64);
  ExpectRight(*first, 1);
  ExpectRight(*second, 1);
  ExpectRight(*third, 2);
  first.reset();
  ExpectRight(*second, 1);
  EXPECT_EQ(ledger_.held, 128 + 64);
  second.reset();
  EXPECT_EQ(ledger_.held, 128);
  ExpectRight(*third, 2);
  third.reset();
  EXPECT_EQ(ledger_.held, 0);
  EXPECT_EQ(memory.NewBytes(pool_), 128);
}

// A plan holds what was told before it was loaded.
TEST_P(SharedPlansTest, TheEstimateIsWhatIsHeld) {
  v1::Plan plan = HashedPlan();
  for (const bool reads_weight : {false, true}) {
    if (reads_weight) plan.mutable_run(0)->set_buffers(1, kParameter);
    const PlanMemory memory =
        MemoryOf(plan, {{"w", std::to_string(3.0f)}}, device_->host_memory()).value();
    EXPECT_EQ(memory.NewBytes(pool_), memory.WeightBytes());
    auto executable = Load(plan, 3);
    EXPECT_EQ(ledger_.held, memory.WeightBytes());
    EXPECT_EQ(executable->fixed_bytes(), memory.WeightBytes());
    EXPECT_EQ(memory.NewBytes(pool_), 0);
    auto context = executable->NewContext().value();
    RowCall call(64);
    ASSERT_TRUE(call.Run(*executable, context.get()).ok());
    const int64_t page = sysconf(_SC_PAGESIZE);
    // Inputs and outputs of so few rows lie elsewhere.
    EXPECT_EQ(context->charged_bytes(), (plan.arena_bytes() + page - 1) / page * page);
    EXPECT_GE(memory.arena, plan.arena_bytes());
  }
}

TEST_P(SharedPlansTest, WhatOnlyStepsNeedIsGivenBack) {
  v1::Plan plan = ChainPlan();
  // Runs use the last buffer of the chain: twice two times w in place of p.
  plan.mutable_run(0)->set_buffers(1, plan.buffers_size() - 1);
  auto executable = Load(plan, 1);
  EXPECT_EQ(ledger_.held, 128);  // the constant and the last of the chain
  ExpectRight(*executable, 2);   // 4 * 1
  // The next load finds the last buffer, and makes nothing.
  auto again = Load(plan, 1);
  EXPECT_EQ(ledger_.held, 128);
  ExpectRight(*again, 2);
  // A load that needs the first buffer makes only that.
  auto first = Load(HashedPlan(), 1);
  EXPECT_EQ(ledger_.held, 192);
  ExpectRight(*first, 1);
}

TEST_P(SharedPlansTest, OneWeightPreparedTwiceInOnePlan) {
  v1::Plan plan = HashedPlan();
  // The first buffer by number is made last, and read before.
  *plan.add_buffers() = plan.buffers(kPrepared);
  const int added = plan.buffers_size() - 1;
  v1::Step first = plan.prepare(0);
  first.set_buffers(1, added);
  *plan.add_prepare() = plan.prepare(0);
  *plan.mutable_prepare(0) = first;
  plan.mutable_run(1)->set_buffers(1, added);
  plan.mutable_run(1)->set_kernel(2);
  auto executable = Load(plan, 1);
  EXPECT_EQ(ledger_.held, 64);
  auto context = executable->NewContext().value();
  RowCall call(3);
  ASSERT_TRUE(call.Run(*executable, context.get()).ok());
  for (int i = 0; i < 3 * kWidth; ++i) EXPECT_EQ(call.y[i], (call.x[i] + 2) * 2);
}

TEST_P(SharedPlansTest, StepsThatFailLeaveNothing) {
  v1::Plan plan = HashedPlan();
  *plan.add_buffers() = plan.buffers(kPrepared);
  v1::Step* step = plan.add_prepare();
  step->set_kernel(3);  // gather, with floats as indices
  for (int buffer : {kConstant, kConstant, plan.buffers_size() - 1}) step->add_buffers(buffer);
  step->add_sizes()->add_terms()->set_coefficient(1);
  step->mutable_grid()->add_terms()->set_coefficient(1);
  plan.mutable_run(0)->set_buffers(1, plan.buffers_size() - 1);
  EXPECT_EQ(TryLoad(plan, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_.held, 0);
  EXPECT_EQ(MemoryOf(plan, {{"w", std::to_string(1.0f)}}, !GetParam()).value().NewBytes(pool_),
            128);
}

TEST_P(SharedPlansTest, WhatDoesNotFitIsRefusedBeforeItIsLoaded) {
  auto first = Load(HashedPlan(), 1);
  ledger_.limit =
      128 + 256 + 63;  // room for the scratch of two threads, but not for the weight too
  std::vector<absl::string_view> objects = RowPlanObjects();
  objects[0] = "garbage";  // would be refused if it were loaded
  ParameterView parameter = RowParameter(2);
  parameter.hash = "2";
  const absl::Status refused = Executable::Load(HashedPlan(), objects, {parameter}, device_.get(),
                                                {.ledger = &ledger_, .pool = &pool_})
                                   .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr(absl::StrCat(
          "plan 'p-0' needs 128 bytes of prepared weights, constants and copies of weights, 64 "
          "of them new, and for each call up to ",
          GetParam() ? 6976 : 2112,
          " bytes of arena and 32 of scratch per thread: held and limit")));
  ledger_.limit = 128 + 255;
  EXPECT_THAT(
      std::string(TryLoad(HashedPlan(), 1).status().message()),
      HasSubstr("plan 'p-0' needs 256 bytes of scratch for steps that use up to 32: held and"));
  EXPECT_EQ(ledger_.held, 128);
  ledger_.limit = 128 + 256;
  EXPECT_TRUE(TryLoad(HashedPlan(), 1).ok());  // all of it is shared
}

class LockedLedger final : public MemoryLedger {
 public:
  absl::Status Reserve(MemoryKind kind, int64_t bytes) override {
    held += bytes;
    return absl::OkStatus();
  }
  void Release(MemoryKind kind, int64_t bytes) override { held -= bytes; }
  std::atomic<int64_t> held = 0;
};

using SharedPlansThreadsTest = ::testing::TestWithParam<bool>;
INSTANTIATE_TEST_SUITE_P(Devices, SharedPlansThreadsTest, ::testing::Bool(), EitherDeviceName);

TEST_P(SharedPlansThreadsTest, TwoLoadersOfOneWeightKeepOneCopy) {
  LockedLedger ledger;
  EitherDevice<FunctionDevice> device(FunctionDevice::Make(1), GetParam());
  PreparedPool pool(device.get(), &ledger);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::shared_ptr<const Executable>> loaded(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < loaded.size(); ++t) {
      threads.emplace_back([&, t] {
        ParameterView parameter = RowParameter(3);
        parameter.hash = "3";
        loaded[t] = Executable::Load(HashedPlan(), RowPlanObjects(), {parameter}, device.get(),
                                     {.ledger = &ledger, .pool = &pool})
                        .value();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ledger.held, 128);
    for (const auto& executable : loaded) {
      auto context = executable->NewContext().value();
      RowCall call(4);
      ASSERT_TRUE(call.Run(*executable, context.get()).ok());
      EXPECT_TRUE(call.Right(3));
    }
    loaded.clear();
    EXPECT_EQ(ledger.held, 0);
  }
}

}  // namespace
}  // namespace athanor
