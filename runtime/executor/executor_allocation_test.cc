// Tests that a run allocates nothing. Counts at operator new, so it needs a program of its own.
#include <atomic>

#include "gtest/gtest.h"
#include "runtime/device/far_device_testing.h"
#include "runtime/executor/allocations_testing.h"
#include "runtime/executor/executor_testing.h"

namespace athanor {
namespace {

using ExecutorAllocationTest = ::testing::TestWithParam<bool>;
INSTANTIATE_TEST_SUITE_P(Devices, ExecutorAllocationTest, ::testing::Bool(), EitherDeviceName);

TEST_P(ExecutorAllocationTest, RunAllocatesNothing) {
  EitherDevice<FunctionDevice> device(FunctionDevice::Make(2), GetParam());
  v1::Plan plan = RowPlan();
  plan.add_outputs()->set_buffer(4);  // copied out
  const ParameterView parameters[] = {RowParameter(1.0f)};
  auto executable = Executable::Load(plan, RowPlanObjects(), parameters, device.get(), {}).value();
  auto context = executable->NewContext().value();
  RowCall large(64), small(3);
  std::vector<float> t(64 * kWidth);
  std::atomic<bool> cancelled{false};
  std::vector<int64_t> nanoseconds(3);
  const RunOptions options = {.deadline = std::chrono::steady_clock::now() + std::chrono::hours(1),
                              .cancelled = &cancelled,
                              .step_nanoseconds = absl::MakeSpan(nanoseconds)};
  int64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    // The far device's queue has room for a run's calls after the first.
    if (i == 1) before = allocations;
    RowCall& call = i % 3 == 0 ? small : large;
    const int64_t dims[] = {call.rows};
    const absl::string_view inputs[] = {RowCall::View(call.x), RowCall::View(call.idx)};
    const absl::Span<char> outputs[] = {RowCall::Span(call.y), RowCall::Span(call.g),
                                        RowCall::Span(t).first(call.rows * kWidth * sizeof(float))};
    if (!executable->Run(context.get(), dims, inputs, outputs, options).ok()) {
      FAIL();
    }
  }
  ASSERT_GT(before, 0);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_TRUE(large.Right(1.0f));
  EXPECT_TRUE(small.Right(1.0f));
}

}  // namespace
}  // namespace athanor
