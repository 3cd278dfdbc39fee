// A GPU whose memory does not suffice for a job: whose fault that is.
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/worker/propose.h"
#include "tests/tuner/gpu_calls.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

class ShortMemoryTest : public ::testing::Test {
 protected:
  ShortMemoryTest() { target_.set_device("cuda"); }

  // Runs a job that takes so many bytes.
  absl::Status Take(int64_t bytes) {
    return RunOnDevice(target_, 1, [&](Device* device) {
      return device->Allocate(MemoryKind::kScratch, bytes).status();
    });
  }

  v1::Target target_;
};

TEST_F(ShortMemoryTest, OnlyAJobThatHadAlmostAllOfItWantsTooMuch) {
  ASSERT_TRUE(UseGpu(0).ok());
  CudaDevice* const gpu = TheGpu().value();
  const int64_t all = gpu->properties().memory_bytes;
  EXPECT_TRUE(Take(all / 2).ok());
  const absl::Status too_much = Take(2 * all);
  EXPECT_EQ(too_much.code(), absl::StatusCode::kResourceExhausted) << too_much;
  EXPECT_FALSE(IsShortOfMemory(too_much));
  // As a server's weights, or another program.
  const std::unique_ptr<DeviceMemory> held =
      gpu->Allocate(MemoryKind::kScratch, all / 4 * 3).value();
  EXPECT_TRUE(Take(all / 8).ok());
  const absl::Status others = Take(all / 2);
  EXPECT_TRUE(IsShortOfMemory(others)) << others;
  EXPECT_EQ(others.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(others.message()), HasSubstr("; when it began, "));
  // Any other error is the job's own.
  const absl::Status wrong =
      RunOnDevice(target_, 1, [](Device*) { return absl::DataLossError("wrong"); });
  EXPECT_EQ(wrong, absl::DataLossError("wrong"));
}

TEST_F(ShortMemoryTest, WhatAProposalIsRefusedForIsNoLackOfMemory) {
  ASSERT_TRUE(UseGpu(0).ok());
  CudaDevice* const gpu = TheGpu().value();
  const std::unique_ptr<DeviceMemory> held =
      gpu->Allocate(MemoryKind::kScratch, gpu->properties().memory_bytes / 2).value();
  internal::ProposeJob job;
  job.set_library("cuBLASLt 13.1.0");
  job.set_text(CallText(0));
  const auto object = ServeProposeJob(job, [] {});
  EXPECT_TRUE(object.ok()) << object.status();
  // It needs none of the workspace.
  job.set_text(CallText(1, 32 << 20));
  job.set_refuse_poor(true);
  const absl::Status poor = ServeProposeJob(job, [] {}).status();
  EXPECT_EQ(poor.code(), absl::StatusCode::kResourceExhausted) << poor;
  EXPECT_FALSE(IsShortOfMemory(poor));
}

}  // namespace
}  // namespace athanor
