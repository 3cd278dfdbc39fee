// Compiles every kernel of golden_kernels_testing.h with NVRTC: none spills, and none is warned of.
// So do those of a GPU's baselines whose teams have one thread, but for two.
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/golden_kernels_testing.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CompiledKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(CompiledKernels, NeitherSpillNorWarn) {
  const absl::StatusOr<const Nvrtc*> nvrtc = TestNvrtc("compiler/codegen/cuda/dialect.h");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  for (const auto& [name, kernel] : CudaKernels()) {
    SCOPED_TRACE(name);
    const absl::StatusOr<Cubin> cubin =
        (*nvrtc)->Compile(CudaSourceOf(PrintCudaKernel(kernel, {}), GetParam()));
    ASSERT_TRUE(cubin.ok()) << cubin.status();
    ASSERT_EQ(cubin->log.kernels.size(), 1) << cubin->log_text;
    EXPECT_EQ(cubin->log.kernels[0].name, "athanor_kernel");
    EXPECT_FALSE(cubin->log.kernels[0].spills()) << cubin->log_text;
    EXPECT_THAT(cubin->log_text, Not(HasSubstr("warning")));
  }
}

// Where registers are left, the compiler may spill some so that one more block fits a
// multiprocessor; with `one_block` it may not.
int64_t SpilledBytes(const Nvrtc& nvrtc, const kir::Kernel& kernel, const char* arch,
                     bool one_block) {
  CudaSource source = CudaSourceOf(PrintCudaKernel(kernel, {}), arch);
  for (CudaSource::Header& header : source.headers) {
    if (!one_block) break;
    header.text =
        absl::StrReplaceAll(header.text, {{"__launch_bounds__(128)", "__launch_bounds__(128, 1)"}});
  }
  const absl::StatusOr<Cubin> cubin = nvrtc.Compile(source);
  EXPECT_TRUE(cubin.ok()) << cubin.status();
  return cubin.ok() ? cubin->log.kernels.at(0).spill_store_bytes : -1;
}

TEST_P(CompiledKernels, OfOneThreadAreKnownWhereTheySpill) {
  const absl::StatusOr<const Nvrtc*> nvrtc = TestNvrtc("compiler/codegen/cuda/dialect.h");
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status();
  std::map<std::string, int64_t> spilled;
  for (const auto& [name, kernel] : KernelsIn({"compiler/pipeline/testdata/cuda"})) {
    if (kernel.team > 1) continue;
    const int64_t bytes = SpilledBytes(**nvrtc, kernel, GetParam(), /*one_block=*/false);
    if (bytes == 0) continue;
    spilled[name] = bytes;
    EXPECT_EQ(SpilledBytes(**nvrtc, kernel, GetParam(), /*one_block=*/true), 0) << name;
  }
  std::map<std::string, int64_t> known = {{"map_bf16_to_f32_0", 4}};
  if (GetParam() == std::string("sm_90a")) known["top_k_of_few_0"] = 52;
  EXPECT_EQ(spilled, known);
}

INSTANTIATE_TEST_SUITE_P(Architectures, CompiledKernels, ::testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor
