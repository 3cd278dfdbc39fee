// Plans whose states live from run to run.
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/executor_testing.h"
#include "runtime/memory/state_memory.h"

namespace athanor {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSlotBytes = kWidth * sizeof(float);

// s += c in each of n slots of 8 f32, then y = s * 1. n is in 0..32.
v1::Plan AddingPlan(float c, absl::string_view state = "s", absl::string_view layout = "rows") {
  const std::string rows =
      "bytes { terms { coefficient: 32 factors { symbol: 'n' } } } "
      "shape { terms { coefficient: 1 factors { symbol: 'n' } } } "
      "shape { terms { coefficient: 8 } } ";
  const std::string row = "bytes { terms { coefficient: 32 } } ";
  const std::string step =
      "sizes { terms { coefficient: 8 } } "
      "grid { terms { coefficient: 1 factors { symbol: 'n' } } } ";
  v1::Plan plan;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("format: 5 plan_id: 'p-1' dims { name: 'n' min: 0 max: 32 } "
                   "kernels { name: 'add_row' } kernels { name: 'mul_row' } "
                   "buffers { kind: STATE name: '",
                   state, "' layout: '", layout, "' dtype: 'f32' ", rows,
                   "} buffers { kind: CONSTANT dtype: 'f32' ", row,
                   "} buffers { kind: CONSTANT dtype: 'f32' ", row,
                   "} buffers { kind: OUTPUT name: 'y' dtype: 'f32' ", rows,
                   "} run { kernel: 0 buffers: [0, 1, 0] label: 'add' scratch_bytes: 32 ", step,
                   "} run { kernel: 1 buffers: [0, 2, 3] label: 'read' ", step,
                   "} outputs { name: 'y' buffer: 3 }"),
      &plan));
  const auto fill = [&](int buffer, float value) {
    const std::vector<float> values(kWidth, value);
    plan.mutable_buffers(buffer)->set_literal(std::string(RowCall::View(values)));
  };
  fill(1, c);
  fill(2, 1.0f);
  return plan;
}

class StatesTest : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<const Executable> Load(const v1::Plan& plan) {
    const absl::string_view objects[] = {"add_row", "mul_row"};
    auto loaded = Executable::Load(plan, objects, {}, device_.get(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }
  std::unique_ptr<StateMemory> Memory(std::vector<StateMemory::Spec> specs, int64_t slots = 32) {
    return StateMemory::Create(device_.get(), nullptr, std::move(specs), slots, 8).value();
  }
  absl::StatusOr<std::vector<float>> Run(const Executable& executable, Executable::Context* context,
                                         int64_t slots) {
    std::vector<float> y(slots * kWidth);
    const absl::Span<char> outputs[] = {RowCall::Span(y)};
    const absl::Status status = executable.Run(context, {slots}, {}, outputs, {});
    if (!status.ok()) return status;
    return y;
  }
  void ExpectUnfit(const v1::Plan& plan, const StateMemory* memory, absl::string_view part) {
    const absl::Status status = Load(plan)->NewContext(memory).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  EitherDevice<FunctionDevice> device_{FunctionDevice::Make(/*threads=*/2), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Devices, StatesTest, ::testing::Bool(), EitherDeviceName);

// Two plans of a version, by turns, as after a swap; the order of the states is not theirs.
TEST_P(StatesTest, PlansByTurnsSeeWhatTheOtherLeft) {
  auto memory = Memory({{"other", "", 4}, {"s", "rows", kSlotBytes}});
  ASSERT_TRUE(memory->Commit(0).ok());  // zero, since it is new
  const auto first = Load(AddingPlan(1)), second = Load(AddingPlan(100));
  auto context = first->NewContext(memory.get()).value();
  EXPECT_THAT(Run(*first, context.get(), 8).value(), Each(1));
  EXPECT_THAT(Run(*first, context.get(), 8).value(), Each(2));
  auto swapped = second->NewContext(memory.get()).value();
  EXPECT_THAT(Run(*second, swapped.get(), 8).value(), Each(102));
  EXPECT_THAT(Run(*first, context.get(), 8).value(), Each(103));
  context.reset();
  EXPECT_THAT(Run(*second, swapped.get(), 8).value(), Each(203));
  // Other sizes, with blocks that are new, and none.
  for (int64_t block = 1; block < 4; ++block) ASSERT_TRUE(memory->Commit(block).ok());
  const std::vector<float> all = Run(*second, swapped.get(), 32).value();
  EXPECT_THAT(std::vector<float>(all.begin(), all.begin() + 8 * kWidth), Each(303));
  EXPECT_THAT(std::vector<float>(all.begin() + 8 * kWidth, all.end()), Each(100));
  EXPECT_TRUE(Run(*second, swapped.get(), 0).ok());
  swapped->Trim();
  EXPECT_THAT(Run(*second, swapped.get(), 8).value(), Each(403));
}

TEST_P(StatesTest, PoisonLeavesStatesAlone) {
  auto memory = Memory({{"s", "rows", kSlotBytes}});
  ASSERT_TRUE(memory->Commit(0).ok());
  const absl::string_view objects[] = {"add_row", "mul_row"};
  auto poisoned =
      Executable::Load(AddingPlan(1), objects, {}, device_.get(), {.poison = true}).value();
  auto context = poisoned->NewContext(memory.get()).value();
  EXPECT_THAT(Run(*poisoned, context.get(), 8).value(), Each(1));
  EXPECT_THAT(Run(*poisoned, context.get(), 8).value(), Each(2));
}

TEST_P(StatesTest, AMemoryOfOtherStatesIsRefused) {
  ExpectUnfit(AddingPlan(1), nullptr, "needs a state memory");
  auto memory = Memory({{"s", "rows", kSlotBytes}});
  ExpectUnfit(AddingPlan(1, "t"), memory.get(), "state 't': is not in the state memory");
  ExpectUnfit(AddingPlan(1, "s", "columns"), memory.get(),
              "has the layout 'columns', in the state memory 'rows'");
  auto narrow = Memory({{"s", "rows", kSlotBytes / 2}});
  ExpectUnfit(AddingPlan(1), narrow.get(),
              "has at most 32 slots in 1024 bytes, in the state memory 16 bytes a slot");
  // A plan may be for more slots than there are, but no run.
  auto few = Memory({{"s", "rows", kSlotBytes}}, 16);
  for (int64_t block = 0; block < 2; ++block) ASSERT_TRUE(few->Commit(block).ok());
  const auto executable = Load(AddingPlan(1));
  auto context = executable->NewContext(few.get()).value();
  EXPECT_THAT(Run(*executable, context.get(), 16).value(), Each(1));
  const absl::Status beyond = Run(*executable, context.get(), 17).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kFailedPrecondition) << beyond;
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("state 's' has 17 slots in 544 bytes, the state memory 16 slots"));
  EXPECT_THAT(Run(*executable, context.get(), 16).value(), Each(2));
}

TEST_P(StatesTest, PlansAreChecked) {
  const auto expect = [&](const v1::Plan& plan, absl::string_view part) {
    const absl::Status status = BuildProgram(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  v1::Plan plan = AddingPlan(1);
  plan.set_format(4);
  expect(plan, "with states 5");
  plan = AddingPlan(1);
  *plan.add_buffers() = plan.buffers(0);
  expect(plan, "state 's' is buffer 0 already");
  plan = AddingPlan(1);
  plan.mutable_buffers(0)->clear_shape();
  expect(plan, "state 's' has no axis");
  plan = AddingPlan(1);
  v1::Step* step = plan.add_prepare();
  step->set_kernel(1);
  step->add_buffers(0);
  expect(plan, "of kind STATE");
}

}  // namespace
}  // namespace athanor
