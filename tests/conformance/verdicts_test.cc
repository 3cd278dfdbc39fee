#include "tests/conformance/verdicts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr char kSmall[] = "extern \"C\" __global__ void k(float* p) { p[threadIdx.x] += 1; }";
constexpr char kShared[] =
    "extern \"C\" __global__ void k(float* p) {\n"
    "  __shared__ float s[64];\n"
    "  s[threadIdx.x] = p[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  p[threadIdx.x] = s[63 - threadIdx.x];\n"
    "}";

// Has more values at once than a thread of so many has registers.
constexpr char kLarge[] =
    "extern \"C\" __global__ void __launch_bounds__(1024) k(const float* p, float* q) {\n"
    "  float v[100];\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 100; ++i) v[i] = p[threadIdx.x * 100 + i];\n"
    "  for (int j = 0; j < 9; ++j) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 100; ++i) v[i] = v[(i * 7 + 1) % 100] * v[i] + q[j];\n"
    "  }\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < 100; ++i) q[threadIdx.x * 100 + i] = v[i];\n"
    "}";

class VerdictsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const Nvrtc*> nvrtc = TestNvrtc("tests/conformance/verdicts.h");
    ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
    nvrtc_ = *nvrtc;
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + "/verdicts";
  }
  std::unique_ptr<Verdicts> Open() { return Verdicts::Open(*nvrtc_, folder_).value(); }

  const Nvrtc* nvrtc_ = nullptr;
  std::string folder_;
};

TEST_F(VerdictsTest, AreAskedForOnce) {
  Verdict small, shared;
  {
    const auto verdicts = Open();
    small = verdicts->Of(kSmall, "sm_80").value();
    shared = verdicts->Of(kShared, "sm_80").value();
    EXPECT_EQ(verdicts->Of(kSmall, "sm_80").value(), small);
    EXPECT_EQ(verdicts->compiled(), 2);
  }
  EXPECT_GT(small.registers, 0);
  EXPECT_EQ(small.spill_bytes, 0);
  EXPECT_EQ(small.shared_bytes, 0);
  EXPECT_EQ(shared.shared_bytes, 256);
  const auto again = Open();
  EXPECT_EQ(again->Of(kSmall, "sm_80").value(), small);
  EXPECT_EQ(again->Of(kShared, "sm_80").value(), shared);
  EXPECT_EQ(again->compiled(), 0);
  EXPECT_TRUE(again->Of(kSmall, "sm_90a").ok());
  EXPECT_EQ(again->compiled(), 1) << "another architecture";
}

TEST_F(VerdictsTest, OfWhatDoesNotCompileNoneIsKept) {
  for (int i = 0; i < 2; ++i) {
    const auto verdicts = Open();
    const absl::Status status = verdicts->Of("nonsense", "sm_80").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("nonsense"));
    EXPECT_EQ(verdicts->compiled(), 1);
  }
}

// Two processes that append, and one that died while it wrote.
TEST_F(VerdictsTest, SharedAndTornFilesAreRead) {
  const auto first = Open(), second = Open();
  const Verdict small = first->Of(kSmall, "sm_80").value();
  const Verdict shared = second->Of(kShared, "sm_80").value();
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) path = entry.path();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const auto torn = Open();
  EXPECT_EQ(torn->Of(kSmall, "sm_80").value(), small);
  EXPECT_EQ(torn->compiled(), 0);
  EXPECT_EQ(torn->Of(kShared, "sm_80").value(), shared);
  EXPECT_EQ(torn->compiled(), 1);
}

TEST_F(VerdictsTest, SpillsAreKept) {
  const Verdict large = Open()->Of(kLarge, "sm_90a").value();
  EXPECT_GT(large.spill_bytes, 0);
  EXPECT_EQ(Open()->Of(kLarge, "sm_90a").value(), large);
}

}  // namespace
}  // namespace athanor
