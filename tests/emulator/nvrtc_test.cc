// The emulator's compiler, by the table of functions that the tuner uses.
#include "compiler/codegen/cuda/nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/clang.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/emulator/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kKernel[] = R"(#include "athanor/device.h"
struct Arguments { Buffer b0; i64 s0, items; u8* workspace; i64 stride; ErrorSlot* error; };
KERNEL(athanor_kernel) {
  for (i64 g = first(a); g < a.items; g += teams(a)) store<f32>(a.b0, g, kScale);
}
)";

// Returns a program as the backend makes it: the text of its device.h is for a GPU.
CudaSource Source(std::string text, std::string arch = "sm_80") {
  return {.source = std::move(text),
          .headers = {{"athanor/device.h", "__global__ is no word of the emulator"},
                      {"athanor/arithmetic.h", "constexpr f32 kScale = 2;"},
                      {"athanor/memory.h", ""},
                      {"athanor/team.h", ""}},
          .arch = std::move(arch),
          .options = {"--fmad=false", "--diag-suppress=177"}};
}

class EmulatedNvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const Nvrtc*> nvrtc = emulator::Compiler();
    ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
    nvrtc_ = *nvrtc;
  }
  absl::Status Error(const CudaSource& source) { return nvrtc_->Compile(source).status(); }

  const Nvrtc* nvrtc_ = nullptr;
};

TEST_F(EmulatedNvrtcTest, CompilesWithItsOwnDeviceHeaderAndTheOthersAsGiven) {
  EXPECT_EQ(nvrtc_->version(), "13.0");
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const absl::StatusOr<Cubin> cubin = nvrtc_->Compile(Source(kKernel, arch));
    ASSERT_TRUE(cubin.ok()) << cubin.status();
    EXPECT_THAT(cubin->code, StartsWith("\x7f"
                                        "ELF"));
    ASSERT_EQ(cubin->log.kernels.size(), 1) << cubin->log_text;
    const KernelResources& kernel = cubin->log.kernels[0];
    EXPECT_EQ(kernel.name, "athanor_kernel");
    EXPECT_EQ(kernel.arch, arch);
    EXPECT_EQ(kernel.registers, 32);
    EXPECT_FALSE(kernel.spills());
    EXPECT_TRUE(cubin->log.warnings.empty());
  }
}

TEST_F(EmulatedNvrtcTest, EqualProgramsGiveEqualBytes) {
  const std::string once = nvrtc_->Compile(Source(kKernel)).value().code;
  EXPECT_EQ(nvrtc_->Compile(Source(kKernel)).value().code, once);
  EXPECT_NE(nvrtc_->Compile(Source(kKernel, "sm_90a")).value().code, once);
}

TEST_F(EmulatedNvrtcTest, ATextMayAskForSpills) {
  const Cubin cubin =
      nvrtc_->Compile(Source(absl::StrCat(kKernel, "// ATHANOR_EMULATOR_SPILLS"))).value();
  ASSERT_EQ(cubin.log.kernels.size(), 1) << cubin.log_text;
  EXPECT_EQ(cubin.log.kernels[0].spill_store_bytes, 8);
  EXPECT_EQ(cubin.log.kernels[0].spill_load_bytes, 8);
}

TEST_F(EmulatedNvrtcTest, AFileBesideItSpoilsWhatIsCompiledNext) {
  const std::filesystem::path folder = std::filesystem::path(std::getenv("TEST_TMPDIR")) / "spoilt";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file("tests/emulator/libnvrtc.so.13", folder / "libnvrtc.so.13");
  const Nvrtc* nvrtc = Nvrtc::Load(folder).value();
  EXPECT_TRUE(nvrtc->Compile(Source(kKernel)).ok());
  std::ofstream(folder / "spoil.h") << "#error spoilt";
  EXPECT_THAT(nvrtc->Compile(Source(kKernel)).status().message(), HasSubstr("spoilt"));
}

TEST_F(EmulatedNvrtcTest, EachKernelIsReported) {
  const std::string second = std::string(kKernel) + "KERNEL(other) { store<i64>(a.b0, 0, 1); }";
  const Cubin cubin = nvrtc_->Compile(Source(second)).value();
  ASSERT_EQ(cubin.log.kernels.size(), 2) << cubin.log_text;
  EXPECT_EQ(cubin.log.kernels[1].name, "other");
  // A program may have none.
  EXPECT_TRUE(nvrtc_->Compile(Source("int none;")).value().log.kernels.empty());
}

TEST_F(EmulatedNvrtcTest, ErrorsNameTextLineAndReason) {
  CudaSource source = Source("#include \"athanor/device.h\"\nint f() { return y; }");
  source.name = "y.cu";
  const absl::Status text = Error(source);
  EXPECT_EQ(text.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(text.message(), StartsWith("y.cu does not compile for sm_80"));
  EXPECT_THAT(text.message(), HasSubstr("y.cu:2:18: error: use of undeclared identifier 'y'"));
  // After an error the compiler takes other programs.
  EXPECT_TRUE(nvrtc_->Compile(Source(kKernel)).ok());
}

TEST_F(EmulatedNvrtcTest, NothingThatAGpuLacksIsThere) {
  EXPECT_THAT(Error(Source("#include <math.h>")).message(), HasSubstr("'math.h' file not found"));
  EXPECT_THAT(Error(Source("#include \"/etc/hostname\"")).message(), HasSubstr("file not found"));
  // The header is there only for a program that brings one.
  CudaSource without = Source(kKernel);
  without.headers.erase(without.headers.begin());
  EXPECT_THAT(Error(without).message(), HasSubstr("'athanor/device.h' file not found"));
  // Code for a GPU itself is none for the emulator.
  EXPECT_THAT(Error(Source("extern \"C\" __global__ void f() {}")).message(),
              HasSubstr("__global__"));
}

TEST_F(EmulatedNvrtcTest, UnknownOptionsAndArchitecturesAreNamed) {
  CudaSource source = Source(kKernel);
  source.options = {"--use_fast_math"};
  EXPECT_EQ(Error(source).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Error(source).message(), HasSubstr("unrecognized option --use_fast_math"));
  for (const char* arch : {"sm_75", "sm_90", ""}) {
    const absl::Status status = Error(Source(kKernel, arch));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << arch;
    EXPECT_THAT(status.message(), HasSubstr("the emulator has sm_80 and sm_90a")) << arch;
  }
}

// The tuner and tests link Clang themselves.
TEST_F(EmulatedNvrtcTest, StandsBesideAProgramsOwnClang) {
  const auto own = [] {
    return CompileToSharedObject("float f(float x) { return __builtin_sinf(x); }", HostCpuTarget(),
                                 {});
  };
  const absl::StatusOr<std::string> before = own();
  ASSERT_TRUE(before.ok()) << before.status();
  const absl::StatusOr<Cubin> first = nvrtc_->Compile(Source(kKernel));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*own(), *before);
  EXPECT_EQ(nvrtc_->Compile(Source(kKernel))->code, first->code);
}

}  // namespace
}  // namespace athanor
