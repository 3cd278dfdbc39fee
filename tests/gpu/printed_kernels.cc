// The golden kernels of compiler/codegen/cuda/testdata on a GPU, against the reference evaluator.
// Their ops and accesses, one kernel of all for each dtype, are kernel_ops_test's and
// kernel_memory_test's.
#include <map>
#include <string>
#include <vector>

#include "compiler/codegen/kir/written_kernels_testing.h"
#include "compiler/codegen/print/printed_kernels_testing.h"
#include "gtest/gtest.h"
#include "tests/conformance/kernel_runner.h"

namespace athanor {
namespace {

class GpuLauncher : public PrintedLauncher {
 public:
  RecordedFailure Run(const std::string& name, const std::vector<Tensor*>& tensors,
                      const std::vector<int64_t>& sizes, int64_t items, int64_t) override {
    static const auto& kernels =
        *new std::map<std::string, kir::Kernel>(KernelsIn({"compiler/codegen/cuda/testdata"}));
    if (items == 0) return {};  // plans launch nothing
    const absl::StatusOr<KernelError> error = RunGpuKernel(kernels.at(name), tensors, sizes, items);
    EXPECT_TRUE(error.ok()) << name << ": " << error.status();
    if (!error.ok()) return {};
    return {error->code, error->item, error->index, error->extent};
  }
};

class PrintedKernels : public ::testing::TestWithParam<PrintedCheck> {};

TEST_P(PrintedKernels, EqualTheReference) {
  GpuLauncher launcher;
  GetParam().run(launcher);
}

INSTANTIATE_TEST_SUITE_P(Golden, PrintedKernels, ::testing::ValuesIn(PrintedChecks()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace athanor
