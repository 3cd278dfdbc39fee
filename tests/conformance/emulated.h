// The emulated GPU (tests/emulator) as conformance tests use it: one device for the process.
//
//   std::shared_ptr<CudaDevice> device = EmulatedDevice().value();
//   std::string code = EmulatedCode(PrintCudaKernel(kernel, {}), device->target()).value();
#ifndef ATHANOR_TESTS_CONFORMANCE_EMULATED_H_
#define ATHANOR_TESTS_CONFORMANCE_EMULATED_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/cuda/device.h"

namespace athanor {

// Returns the device, or a new one once a kernel's fault has ended it.
absl::StatusOr<std::shared_ptr<CudaDevice>> EmulatedDevice();

// Returns the machine code of a kernel's text; an error has both the messages and the text. Where
// the environment has ATHANOR_TEST_NVRTC=N, NVIDIA's compiler has to take one text in N too, for
// sm_80 and for sm_90a, keeping next to no registers in memory.
absl::StatusOr<std::string> EmulatedCode(const std::string& text, const v1::Target& target);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_EMULATED_H_
