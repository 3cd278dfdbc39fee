// A GPU that is lost in a job: whose fault that is.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

// Ends this process, with 0 if a job's status has this code and text.
[[noreturn]] void ExitWith(const absl::Status& status, absl::StatusCode code,
                           const std::string& text) {
  const bool right = status.code() == code && absl::StrContains(status.message(), text);
  if (!right) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  _exit(right ? 0 : 1);
}

// Each is a process of its own, whose GPU is lost once.
TEST(LostGpuTest, OnlyAFaultOfAKernelIsTheJobs) {
  v1::Target target;
  target.set_device("cuda");
  ASSERT_TRUE(UseGpu(0).ok());
  EXPECT_EXIT(ExitWith(RunOnDevice(target, 1,
                                   [](Device* device) {
                                     return static_cast<CudaDevice*>(device)->Check(
                                         kCudaIllegalAddress, "a kernel");
                                   }),
                       absl::StatusCode::kInternal, "ILLEGAL_ADDRESS"),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ExitWith(RunOnDevice(target, 1,
                                   [](Device* device) {
                                     return static_cast<CudaDevice*>(device)->Check(
                                         kCudaMpsConnectionFailed, "a call");
                                   }),
                       absl::StatusCode::kUnavailable, "a call"),
              ::testing::ExitedWithCode(0), "");
  // The chip breaks, while the job runs and before it.
  const std::string broken = std::string(std::getenv("TEST_TMPDIR")) + "/broken";
  setenv("ATHANOR_EMULATOR_BREAKS", broken.c_str(), 1);
  EXPECT_EXIT(ExitWith(RunOnDevice(target, 1,
                                   [&](Device* device) {
                                     std::ofstream(broken).close();
                                     return device->Allocate(MemoryKind::kArena, 8).status();
                                   }),
                       absl::StatusCode::kUnavailable, "ECC"),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ExitWith(RunOnDevice(target, 1, [](Device*) { return absl::OkStatus(); }),
                       absl::StatusCode::kUnavailable, "ECC"),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace athanor
