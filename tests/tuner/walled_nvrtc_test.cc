// NVIDIA's own compiler in a tuner with all walls: it makes no call and opens no file that they
// deny.
#include <elf.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tuner/gpu_tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

class WalledNvrtcTest : public GpuTunerTest {
 protected:
  void SetUp() override {
    GpuTunerTest::SetUp();
    const absl::StatusOr<std::string> folder = TestNvrtcFolder("tests/tuner/gpu_tuner_test.h");
    ASSERT_TRUE(folder.ok()) << folder.status();
    options_.nvrtc = *folder;
    Start();
  }
};

int MachineOf(const std::string& object) {
  Elf64_Ehdr header{};
  if (object.size() < sizeof(header)) return 0;
  std::memcpy(&header, object.data(), sizeof(header));
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 ? header.e_machine : 0;
}

TEST_F(WalledNvrtcTest, Compiles) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    target_.set_cpu(arch);
    for (int i = 0; i < 3; ++i) {
      const auto object = tuner_->Compile(GpuKernel(absl::StrCat("// ", i)), target_);
      ASSERT_TRUE(object.ok()) << object.status();
      EXPECT_EQ(MachineOf(*object), EM_CUDA);
    }
  }
  EXPECT_THAT(tuner_->walls(), HasSubstr("system calls of a list"));
  EXPECT_THAT(tuner_->Target()->compiler_version(), HasSubstr("nvrtc 13."));
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(WalledNvrtcTest, RefusesWhatIsNoKernel) {
  const absl::Status refused = tuner_->Compile(GpuKernel("no CUDA"), target_).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused;
  EXPECT_TRUE(tuner_->Compile(GpuKernel(""), target_).ok());
  EXPECT_EQ(tuner_->starts(), 1);
}

// Two processes compile beside each other; the emulated GPU takes no real one's code.
TEST_F(WalledNvrtcTest, CompilesInTwoProcesses) {
  for (int i = 0; i < 6; ++i) Add(GpuKernel(absl::StrCat("// kernel ", i)));
  for (const internal::TryOutcome& end : Try()) {
    EXPECT_EQ(end.failed_at(), internal::TryOutcome::MEASURE) << end.message();
    EXPECT_THAT(end.message(), HasSubstr("NO_BINARY_FOR_GPU"));
    EXPECT_EQ(end.code(), static_cast<int>(Code::kFailedPrecondition)) << end.message();
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
