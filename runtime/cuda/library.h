// Library calls of plans on a GPU, by cuBLASLt.
//
//   ASSIGN_OR_RETURN(const CudaLibrary* library, device.library());
//   auto calls = library->Propose(call, /*most=*/8, /*most_workspace=*/32 << 20).value();
//   RETURN_IF_ERROR(library->Enqueue(calls[0], buffers, stream));
//
// Matrices of plans have rows of adjacent elements and cuBLASLt's have columns, so it is given the
// product of the transposed matrices in the other order. Sums are in f32 or wider; operands are not
// rounded (no TF32); partial sums meet in the workspace, in the type of the sums.
#ifndef ATHANOR_RUNTIME_CUDA_LIBRARY_H_
#define ATHANOR_RUNTIME_CUDA_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/driver.h"
#include "runtime/device/library_call.h"

namespace athanor {

// Thread-safe. REQUIRES of all calls, and of its end: the device's context is that of this thread.
class CudaLibrary {
 public:
  // Opens the library of a folder (Cublaslt::Load). FAILED_PRECONDITION if there is none.
  static absl::StatusOr<std::unique_ptr<CudaLibrary>> Open(const std::string& folder);
  ~CudaLibrary() { library_.Destroy(handle_); }

  std::string version() const { return library_.version(); }

  // Returns up to `most` ways to compute a product, the fastest first as the library expects: the
  // call, completed by library, algorithm and workspace. Empty: it knows none.
  absl::StatusOr<std::vector<LibraryCall>> Propose(const LibraryCall& call, int most,
                                                   int64_t most_workspace) const;
  // Does what Device::CheckCall promises.
  absl::Status Check(const LibraryCall& call) const;
  // Enqueues a call, or has it captured. REQUIRES: Check(call) was OK
  absl::Status Enqueue(const LibraryCall& call, const LibraryBuffers& buffers,
                       CudaStream stream) const;

 private:
  // Checks that an algorithm wants no more alignment of a matrix than it has.
  absl::Status CheckAlignment(const CublasAlgorithm& algorithm, CublasAlgorithmAttribute attribute,
                              absl::string_view name, uint32_t alignment) const;

  CudaLibrary(const Cublaslt& library, CublasHandle handle) : library_(library), handle_(handle) {}

  const Cublaslt& library_;
  const CublasHandle handle_;
  mutable Mutex mu_;  // held by calls with the handle
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_LIBRARY_H_
