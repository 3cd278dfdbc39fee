// Tests that a call on a recording allocates nothing and asks little of the driver. Counts at
// operator new, so it needs a program of its own.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/empty_driver_testing.h"
#include "runtime/executor/allocations_testing.h"
#include "runtime/executor/executor.h"

namespace athanor {
namespace {

struct Counts {
  int launches, graphs, instantiated, copies, fills, waits;
  bool operator==(const Counts&) const = default;
};
Counts counts;

// The empty driver, which counts.
CudaDriver CountingDriver() {
  CudaDriver driver = EmptyDriver();
  driver.LaunchKernel = [](CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CudaStream, void**,
                           void**) -> CudaResult { return ++counts.launches, kCudaSuccess; };
  driver.GraphInstantiate = [](CudaGraphExec*, CudaGraph, unsigned long long) -> CudaResult {
    return ++counts.instantiated, kCudaSuccess;
  };
  driver.GraphLaunch = [](CudaGraphExec, CudaStream) -> CudaResult {
    return ++counts.graphs, kCudaSuccess;
  };
  driver.CopyToDevice = [](CudaPointer to, const void* from, size_t bytes,
                           CudaStream stream) -> CudaResult {
    return ++counts.copies, EmptyDriver().CopyToDevice(to, from, bytes, stream);
  };
  driver.CopyToHost = [](void* to, CudaPointer from, size_t bytes,
                         CudaStream stream) -> CudaResult {
    return ++counts.copies, EmptyDriver().CopyToHost(to, from, bytes, stream);
  };
  driver.FillBytes = [](CudaPointer to, unsigned char value, size_t bytes,
                        CudaStream stream) -> CudaResult {
    return ++counts.fills, EmptyDriver().FillBytes(to, value, bytes, stream);
  };
  driver.StreamSynchronize = [](CudaStream) -> CudaResult { return ++counts.waits, kCudaSuccess; };
  return driver;
}

class CallTest : public ::testing::Test {
 protected:
  void Load(const v1::Plan& plan) {
    const std::string object = EmptyObject();
    executable_ = Executable::Load(plan, {object}, {}, device_.get(), {}).value();
    context_ = executable_->NewContext().value();
  }
  // Calls with sizes that change, and returns what a call asked of the driver.
  Counts Call(int64_t rows) {
    const Counts before = counts;
    const int64_t dims[] = {rows};
    const std::string& from = bytes_[0];
    const absl::string_view inputs[] = {absl::string_view(from).substr(0, 64 * rows)};
    const absl::Span<char> outputs[] = {absl::MakeSpan(bytes_[1]).first(64 * rows)};
    const bool right = executable_->Run(context_.get(), dims, inputs, outputs, {}).ok();
    if (!right) ADD_FAILURE();
    return {counts.launches - before.launches,
            counts.graphs - before.graphs,
            counts.instantiated - before.instantiated,
            counts.copies - before.copies,
            counts.fills - before.fills,
            counts.waits - before.waits};
  }

  const CudaDriver driver_ = CountingDriver();
  const std::unique_ptr<CudaDevice> device_ = CudaDevice::Create(driver_, {}).value();
  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<Executable::Context> context_;
  std::vector<std::string> bytes_ = {std::string(4096, 'x'), std::string(4096, 'y')};
};

TEST_F(CallTest, IsACopyARecordingAndACopyBack) {
  for (const int steps : {1, 20, 300}) {
    Load(ChainPlan(steps));
    for (const int64_t rows : {64, 1, 7, 64}) {
      EXPECT_EQ(Call(rows), (Counts{.graphs = 1, .copies = 2, .waits = 1})) << steps;
    }
  }
}

TEST_F(CallTest, OfALoopIsOneRecordingATurn) {
  constexpr int kTurns = 200;
  Load(ChainPlan(4, kTurns));
  const Counts of = Call(8);
  EXPECT_EQ(of.graphs, 1 + kTurns);
  EXPECT_EQ(of.instantiated, 0);
  EXPECT_EQ(of.fills, kTurns);
  EXPECT_EQ(of.copies, 2 + 2 * kTurns);
  EXPECT_LE(of.waits, 1 + kTurns / 32) << "the host runs ahead";
}

TEST_F(CallTest, AllocatesNothing) {
  for (const int turns : {0, 100}) {
    Load(ChainPlan(20, turns));
    Call(1);
    const int64_t before = allocations;
    for (int i = 0; i < 100; ++i) Call(1 + i % 3);
    EXPECT_GT(before, 0);
    EXPECT_EQ(allocations - before, 0) << turns;
  }
}

TEST_F(CallTest, ARecordingThatDoesNotFitIsRefusedAndNothingIsLost) {
  static int left;  // recordings that fit
  CudaDriver full = EmptyDriver();
  full.GraphInstantiate = [](CudaGraphExec*, CudaGraph, unsigned long long) -> CudaResult {
    return left-- > 0 ? kCudaSuccess : kCudaOutOfMemory;
  };
  const auto device = CudaDevice::Create(full, {}).value();
  const std::string object = EmptyObject();
  const auto executable =
      Executable::Load(ChainPlan(4, 10), {object}, {}, device.get(), {}).value();
  for (left = 0; left < 2;) {  // steps before the loop, and its own
    const int fit = left;
    const absl::Status status = executable->NewContext().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_NE(status.message().find("cuGraphInstantiate"), std::string::npos) << status;
    left = fit + 1;
  }
  EXPECT_TRUE(executable->NewContext().ok());
  EXPECT_TRUE(device->loss().ok());
}

}  // namespace
}  // namespace athanor
