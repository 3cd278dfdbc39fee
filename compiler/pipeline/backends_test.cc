#include "compiler/pipeline/backends.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Backends, AnUnknownDeviceIsNamed) {
  const absl::StatusOr<const Backend*> none = FindBackend("abacus");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()),
              AllOf(HasSubstr("\"abacus\" has no backend"), HasSubstr("cpu, cuda")));
}

// Takes what only a GPU's kernels have: teams of threads, and memory that items share.
TEST(Backends, ACpuHasNeitherTeamsNorMemoryOfALaunch) {
  const Backend& cpu = *FindBackend("cpu").value();
  kir::Kernel kernel;
  kernel.name = "k";
  EXPECT_TRUE(cpu.verify(kernel).ok());
  kernel.team = 32;
  EXPECT_THAT(std::string(cpu.verify(kernel).message()),
              HasSubstr("kernel \"k\" is of teams of 32 threads"));
  kernel.team = 1;
  kernel.buffers.push_back({.space = kir::Space::kLaunch});
  EXPECT_THAT(std::string(cpu.verify(kernel).message()),
              HasSubstr("kernel \"k\" has memory of the launch; on a CPU items share nothing"));
}

}  // namespace
}  // namespace athanor
