// The kernels whose CUDA text tests pin and compile.
#ifndef ATHANOR_COMPILER_CODEGEN_CUDA_GOLDEN_KERNELS_TESTING_H_
#define ATHANOR_COMPILER_CODEGEN_CUDA_GOLDEN_KERNELS_TESTING_H_

#include <map>
#include <string>

#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/kir/written_kernels_testing.h"

namespace athanor {

// Returns those written for one lane, of all golden files those that the dialect takes, and
// those of teams of a GPU's baselines.
inline std::map<std::string, kir::Kernel> CudaKernels() {
  std::map<std::string, kir::Kernel> kernels = WrittenKernels({1});
  for (auto& [name, kernel] :
       KernelsIn({"compiler/codegen/lower/testdata", "compiler/pipeline/testdata",
                  "compiler/codegen/cuda/testdata"})) {
    if (VerifyCuda(kernel).ok()) kernels[name] = kernel;
  }
  for (auto& [name, kernel] : KernelsIn({"compiler/pipeline/testdata/cuda"})) {
    if (kernel.team > 1) kernels["gpu_" + name] = kernel;
  }
  return kernels;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CODEGEN_CUDA_GOLDEN_KERNELS_TESTING_H_
