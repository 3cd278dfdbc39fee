// Opens the emulator for a test, which has both libraries among its data.
#ifndef ATHANOR_TESTS_EMULATOR_TESTING_H_
#define ATHANOR_TESTS_EMULATOR_TESTING_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "runtime/cuda/driver.h"

namespace athanor::emulator {

// Returns the driver of a device of its own, which another test's faults do not reach: a library is
// loaded again under another file, whose `path` is told.
inline absl::StatusOr<const CudaDriver*> NewDevice(std::string* path = nullptr) {
  static int devices = 0;
  const char* const folder = std::getenv("TEST_TMPDIR");
  if (folder == nullptr) return absl::FailedPreconditionError("TEST_TMPDIR names no folder");
  const std::filesystem::path copy =
      std::filesystem::path(folder) / ("libcuda.so.1." + std::to_string(++devices));
  std::error_code error;
  std::filesystem::copy_file("tests/emulator/libcuda.so.1", copy,
                             std::filesystem::copy_options::overwrite_existing, error);
  if (error)
    return absl::FailedPreconditionError("tests/emulator/libcuda.so.1: " + error.message());
  if (path != nullptr) *path = copy;
  return CudaDriver::Load(copy.c_str());
}

// Names the folder of the library of matrix products.
inline constexpr char kLibraryFolder[] = "tests/emulator";

inline absl::StatusOr<const Nvrtc*> Compiler() { return Nvrtc::Load("tests/emulator"); }

}  // namespace athanor::emulator

#endif  // ATHANOR_TESTS_EMULATOR_TESTING_H_
