// The devices that conformance tests compile for and run on. A program links one of two libraries:
// `emulated_devices` has this machine's CPU, by Clang, and the emulated GPU (tests/emulator);
// tests/gpu has the GPU of the machine alone.
//
//   std::shared_ptr<CudaDevice> device = TestGpu().value();
//   std::string code = GpuCode(PrintCudaKernel(kernel, {})).value();
#ifndef ATHANOR_TESTS_CONFORMANCE_DEVICES_H_
#define ATHANOR_TESTS_CONFORMANCE_DEVICES_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/cuda/device.h"

namespace athanor {

// Returns the GPU, one for the process; where it is emulated, a new one once a kernel's fault has
// ended it.
absl::StatusOr<std::shared_ptr<CudaDevice>> TestGpu();

// Returns the file of that GPU's driver; only the emulated one's tests have it.
std::string TestGpuLibrary();

// Returns the machine code of a kernel's text for that GPU; an error has both the messages and the
// text.
absl::StatusOr<std::string> GpuCode(const std::string& text);

// Returns the device, triple, name and features of this machine's CPU; nothing where the program
// has no compiler for it.
std::optional<v1::Target> TestCpu();

// Returns the object of a kernel's text; an error has both the messages and the text.
absl::StatusOr<std::string> CpuCode(const std::string& text, const v1::Target& target,
                                    int opt_level);

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_DEVICES_H_
