// The devices of tests/conformance/devices.h in this program: the GPU of this machine alone.
#ifndef ATHANOR_TESTS_GPU_THIS_GPU_H_
#define ATHANOR_TESTS_GPU_THIS_GPU_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace athanor {

// Opens the driver, its first device and the compiler of a folder (compiler/codegen/cuda/nvrtc.h).
// Call it once, before any test.
absl::Status OpenThisGpu(const std::string& nvrtc_folder);

// Counts what GpuCode compiled.
struct GpuCompilations {
  int64_t kernels = 0, spilling = 0;
  double seconds = 0;
};
const GpuCompilations& Compilations();

}  // namespace athanor

#endif  // ATHANOR_TESTS_GPU_THIS_GPU_H_
