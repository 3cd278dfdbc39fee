// Compiles every kernel of golden_kernels_testing.h, and those of a GPU's baselines whose teams
// have one thread, with NVRTC: none spills, and none is warned of.
#include <map>
#include <string>

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
  std::map<std::string, kir::Kernel> kernels = CudaKernels();
  for (auto& [name, kernel] : KernelsIn({"compiler/pipeline/testdata/cuda"})) {
    kernels.emplace("gpu_" + name, kernel);
  }
  for (const auto& [name, kernel] : kernels) {
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

INSTANTIATE_TEST_SUITE_P(Architectures, CompiledKernels, ::testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor
