#include "compiler/codegen/cuda/nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kArchitectures[] = {"sm_80", "sm_90a", "sm_100a"};

// A sum of 64 values, reversed through shared memory behind a barrier.
constexpr char kPlain[] = R"(#include "scale.h"
extern "C" __global__ void reverse(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x] * kScale;
})";

// 96 live values in the 64 registers that a block of 1024 threads leaves to each.
constexpr char kSpilling[] = R"(
extern "C" __global__ void __launch_bounds__(1024) many(float* x, int n) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = x[i * n];
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i + 1) % 96] + x[k];
  }
#pragma unroll
  for (int i = 0; i < 96; i++) x[i * n] = v[i];
})";

// Does BETWEEN between two instructions that add to one accumulator.
constexpr char kTouched[] = R"(
#define MULTIPLY asm volatile( \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;" \
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(tile))
extern "C" __global__ void touched(float* x, unsigned long long tile, int n) {
  float c[4] = {};
  for (int i = 0; i < n; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    MULTIPLY;
    BETWEEN;
    MULTIPLY;
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  x[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
})";

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const Nvrtc*> nvrtc = TestNvrtc("compiler/codegen/cuda/nvrtc.h");
    ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
    nvrtc_ = *nvrtc;
  }
  const Nvrtc* nvrtc_ = nullptr;
};

TEST_F(NvrtcTest, CompilesForEachArchitectureWithHeadersInMemory) {
  EXPECT_EQ(nvrtc_->version(), "13.0");
  for (const char* arch : kArchitectures) {
    const absl::StatusOr<Cubin> cubin = nvrtc_->Compile(
        {.source = kPlain, .headers = {{"scale.h", "constexpr float kScale = 2;"}}, .arch = arch});
    ASSERT_TRUE(cubin.ok()) << arch << ": " << cubin.status();
    EXPECT_THAT(cubin->code, StartsWith("\x7f"
                                        "ELF"));
    ASSERT_EQ(cubin->log.kernels.size(), 1) << cubin->log_text;
    const KernelResources& kernel = cubin->log.kernels[0];
    EXPECT_EQ(kernel.name, "reverse");
    EXPECT_EQ(kernel.arch, arch);
    EXPECT_EQ(kernel.shared_bytes, 256);
    EXPECT_EQ(kernel.barriers, 1);
    EXPECT_GT(kernel.registers, 0);
    EXPECT_FALSE(kernel.spills());
  }
}

TEST_F(NvrtcTest, SpillsShowOnEachArchitecture) {
  for (const char* arch : kArchitectures) {
    const absl::StatusOr<Cubin> cubin = nvrtc_->Compile({.source = kSpilling, .arch = arch});
    ASSERT_TRUE(cubin.ok()) << arch << ": " << cubin.status();
    ASSERT_EQ(cubin->log.kernels.size(), 1) << cubin->log_text;
    const KernelResources& kernel = cubin->log.kernels[0];
    EXPECT_TRUE(kernel.spills());
    EXPECT_GT(kernel.stack_bytes, 100);
    EXPECT_EQ(kernel.registers, 64);
  }
}

TEST_F(NvrtcTest, WarningsOfWgmmaShow) {
  const auto compile = [&](const char* between) {
    return nvrtc_->Compile({.source = kTouched, .arch = "sm_90a", .options = {between}}).value();
  };
  const Cubin clean = compile("-DBETWEEN="), written = compile("-DBETWEEN=c[0]+=1"),
              read = compile("-DBETWEEN=x[i]=c[0]");
  EXPECT_TRUE(clean.log.warnings.empty()) << clean.log_text;
  EXPECT_TRUE(written.log.Warns("C7519")) << written.log_text;
  EXPECT_TRUE(read.log.Warns("C7514")) << read.log_text;
  EXPECT_TRUE(read.log.serialised()) << read.log_text;
}

TEST_F(NvrtcTest, OptionsReachTheCompiler) {
  const std::string text = "extern \"C\" __global__ void f(float* x) { x[0] = VALUE; }";
  EXPECT_FALSE(nvrtc_->Compile({.source = text, .arch = "sm_80"}).ok());
  EXPECT_TRUE(nvrtc_->Compile({.source = text, .arch = "sm_80", .options = {"-DVALUE=3"}}).ok());
}

TEST_F(NvrtcTest, ErrorsNameTextArchitectureAndReason) {
  const absl::Status text =
      nvrtc_->Compile({.source = "__global__ void f() { y = 1; }", .arch = "sm_80", .name = "y.cu"})
          .status();
  EXPECT_EQ(text.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(text.message(), StartsWith("y.cu does not compile for sm_80"));
  EXPECT_THAT(text.message(), HasSubstr("identifier \"y\" is undefined"));
  const absl::Status arch =
      nvrtc_->Compile({.source = "__global__ void f() {}", .arch = "sm_7"}).status();
  EXPECT_EQ(arch.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(arch.message(), HasSubstr("sm_7"));
}

TEST(NvrtcLoadTest, AMachineWithoutItIsToldSo) {
  const absl::Status status = Nvrtc::Load("/no/such/folder").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no CUDA compiler (NVRTC)"));
  EXPECT_THAT(status.message(), HasSubstr("/no/such/folder/libnvrtc.so.13"));
  EXPECT_THAT(status.message(), HasSubstr(kNvrtcVariable));
}

// An environment's python3 may itself be a link, from a folder that has no packages.
TEST(NvrtcLoadTest, ThePythonInPathHasIt) {
  const absl::StatusOr<std::string> nvrtc = TestNvrtcFolder("compiler/codegen/cuda/nvrtc.h");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  const std::filesystem::path root = std::getenv("TEST_TMPDIR"), prefix = root / "opt/x/.venv";
  const std::filesystem::path package = prefix / "lib/python3.99/site-packages/nvidia/cu13";
  std::filesystem::create_directories(package);
  std::filesystem::create_directories(prefix / "bin");
  std::filesystem::create_directories(root / "bin");
  std::filesystem::create_directory_symlink(*nvrtc, package / "lib");
  std::ofstream(prefix / "bin/python3") << "an interpreter";
  std::filesystem::create_symlink("../opt/x/.venv/bin/python3", root / "bin/python3");
  unsetenv(kNvrtcVariable);
  setenv("PATH", ("/no/such/folder:" + (root / "bin").string()).c_str(), 1);
  EXPECT_TRUE(Nvrtc::Load("").ok()) << Nvrtc::Load("").status();
}

}  // namespace
}  // namespace athanor
