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
// A part of each of two tensors: the compiler stores two values, so that 16 blocks fit.
constexpr char kChosen[] = R"cuda(#include "athanor/device.h"
struct Arguments {
  Buffer b0, b1, b2;
  i64 s1, s2, items;
  u8* workspace;
  i64 stride;
  ErrorSlot* error;
};
KERNEL(athanor_kernel) {
  const i64 s1 = a.s1, s2 = a.s2;
  const Buffer b0 = a.b0, b1 = a.b1, b2 = a.b2;
  for (i64 g = first(a); g < a.items; g += teams(a)) {
    i64 v0 = (i64)((i32)g / (24 * (i32)s1 * (i32)s2 > 1 ? 24 * (i32)s1 * (i32)s2 : 1));
    i64 v1 = (i64)(-8 * ((i32)g / (24 * (i32)s1 * (i32)s2 > 1 ? 24 * (i32)s1 * (i32)s2 : 1)) +
                   (i32)g / (3 * (i32)s1 * (i32)s2 > 1 ? 3 * (i32)s1 * (i32)s2 : 1));
    i64 v2 = (i64)(-3 * ((i32)g / (3 * (i32)s1 * (i32)s2 > 1 ? 3 * (i32)s1 * (i32)s2 : 1)) *
                   (i32)s1 * (i32)s2 + (i32)g);
    i64 v3 = (i64)((i32)v2 + 1);
    if (v1 < 3) {
      for (i64 x = v2; x < v3; x += 1) {
        f32 v = load<f32>(b1, (i64)(9 * (i32)s1 * (i32)s2 * (i32)v0 +
                                    3 * (i32)s1 * (i32)s2 * (i32)v1 + (i32)x));
        store<f32>(b0, (i64)(24 * (i32)s1 * (i32)s2 * (i32)v0 +
                             3 * (i32)s1 * (i32)s2 * (i32)v1 + (i32)x), v * v);
      }
    }
    if (2 < v1) {
      for (i64 x = v2; x < v3; x += 1) {
        f32 v = load<f32>(b2, (i64)(15 * (i32)s1 * (i32)s2 * (i32)v0 +
                                    3 * (i32)s1 * (i32)s2 * (i32)v1 +
                                    -9 * (i32)s1 * (i32)s2 + (i32)x));
        store<f32>(b0, (i64)(24 * (i32)s1 * (i32)s2 * (i32)v0 +
                             3 * (i32)s1 * (i32)s2 * (i32)v1 + (i32)x), v * v);
      }
    }
  }
}
)cuda";

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

TEST_F(VerdictsTest, SpillsByNeedAndByChoiceDiffer) {
  const auto verdicts = Open();
  const Verdict large = verdicts->Of(kLarge, "sm_90a").value();
  EXPECT_GT(large.spill_bytes, 0);
  EXPECT_EQ(large.needed_spill_bytes, large.spill_bytes);
  const Verdict chosen = verdicts->Of(kChosen, "sm_90a").value();
  EXPECT_EQ(chosen.spill_bytes, 16);
  EXPECT_EQ(chosen.needed_spill_bytes, 0);
  EXPECT_LT(chosen.registers, 64);
  EXPECT_EQ(Open()->Of(kChosen, "sm_90a").value(), chosen);
}

}  // namespace
}  // namespace athanor
