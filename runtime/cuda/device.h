// An NVIDIA GPU as a device: kernels are cubins, memory is the GPU's, and each queue is a stream.
//
//   ASSIGN_OR_RETURN(const CudaDriver* cuda, CudaDriver::Load());
//   ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device,
//                    CudaDevice::Create(*cuda, {.ordinal = 1}));
//
// It works in the GPU's primary context, as torch does, so that addresses mean the same to both. A
// fault of a kernel ends that context for the life of the process: from then on every call returns
// UNAVAILABLE with the first error.
#ifndef ATHANOR_RUNTIME_CUDA_DEVICE_H_
#define ATHANOR_RUNTIME_CUDA_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/cuda/clocks.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/library.h"
#include "runtime/device/device.h"

namespace athanor {

struct CudaDeviceOptions {
  int ordinal = 0;
  // The most that a queue holds for kernels' scratch: launches that want more run fewer items at a
  // time, but one always.
  int64_t workspace_bytes = 256 << 20;
  // Folder of cuBLASLt; empty: the usual ones (Cublaslt::Load).
  std::string library_folder;
};

// Holds what a driver tells of a device.
struct CudaProperties {
  std::string name;    // "NVIDIA H100 80GB HBM3"
  std::string driver;  // the newest CUDA that its driver knows: "13.0"
  std::string bus_id;  // "0000:01:00.0"
  int compute = 0;     // its architecture: 90 is sm_90
  int multiprocessors = 0;
  int threads = 0;  // that are resident at once
  int64_t memory_bytes = 0;
  // The most that its clocks are set to, and how much memory moves at once; 0: its driver does not
  // tell.
  double core_hertz = 0;
  double memory_hertz = 0;
  int memory_bits = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes = 0;  // of a multiprocessor
  int64_t granule = 0;       // of virtual memory, in bytes; 0: it has none
};

// Returns how many GPUs the driver shows. FAILED_PRECONDITION: none, or the driver is a stub, has
// no license or does not fit the kernel's. UNAVAILABLE: it does not start now.
absl::StatusOr<int> CountGpus(const CudaDriver& cuda);

// Thread-safe.
class CudaDevice : public Device {
 public:
  // `cuda` must outlive it. FAILED_PRECONDITION: no GPU has this ordinal, or its architecture is
  // older than sm_80. UNAVAILABLE: it does not start.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDriver& cuda,
                                                            const CudaDeviceOptions& options);
  ~CudaDevice() override;

  absl::string_view name() const override { return "cuda"; }
  bool host_memory() const override { return false; }
  // runtime/cuda/memory.h says which kinds are committed granule by granule.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;
  bool CommitsLater(MemoryKind kind, int64_t bytes) const override;
  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override;
  absl::Status CheckCall(const LibraryCall& call) override;
  int64_t ScratchBytes(int64_t per_item) const override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override;

  std::string full_name() const;  // "cuda:0"
  const CudaProperties& properties() const { return properties_; }
  // Returns how much memory nobody holds now, in bytes.
  absl::StatusOr<int64_t> FreeBytes() const;
  CudaClocks clocks() const { return ReadClocks(properties_.bus_id); }
  // Returns the first error that ended the context; OK as long as it is usable.
  absl::Status loss() const;
  // Reports whether that error can be a kernel's doing (IsKernelFault).
  bool LostByKernel() const { return lost_by_kernel_.load(std::memory_order_acquire); }
  // Sets what is called with that error once, on the thread that finds it. Before other threads
  // use the device.
  void OnLoss(std::function<void(const absl::Status&)> call) { on_loss_ = std::move(call); }
  // Describes it to the compiler. `threads` is the number of items that run at once.
  v1::Target target() const;

  // What follows is for its memory, kernels and queues.

  const CudaDriver& driver() const { return cuda_; }
  CudaDeviceHandle handle() const { return handle_; }
  // Makes the context that of the calling thread, unless the device is lost.
  absl::Status Enter() const;
  // Returns the status of a driver's call, and remembers the first that ended the context.
  absl::Status Check(CudaResult result, absl::string_view call) const;
  // Returns how many threads of a kernel are resident at once in blocks of so many, as its
  // registers and shared memory admit; 0: not even one block. REQUIRES: the context is that of this
  // thread
  absl::StatusOr<int64_t> ResidentThreads(CudaFunction function, int block_threads) const;
  // Returns how many items run at once whose scratch takes `stride` bytes each; at least 1.
  int64_t Teams(int64_t stride) const;
  // Returns the library, opened at the first call: it takes half a GB of addresses.
  // FAILED_PRECONDITION: there is none. REQUIRES: the context is that of this thread
  absl::StatusOr<const CudaLibrary*> library() const;

 private:
  CudaDevice(const CudaDriver& cuda, const CudaDeviceOptions& options)
      : cuda_(cuda), options_(options) {}
  absl::Status Start();
  absl::Status ReadProperties();
  absl::Status ReadGranule();
  // Puts the device's name before an error.
  absl::Status Named(const absl::Status& status) const;

  const CudaDriver& cuda_;
  const CudaDeviceOptions options_;
  CudaProperties properties_;
  CudaDeviceHandle handle_ = 0;
  CudaContext context_ = nullptr;  // retained
  std::function<void(const absl::Status&)> on_loss_;
  mutable std::atomic<bool> lost_{false}, lost_by_kernel_{false};
  mutable Mutex mu_;
  mutable absl::Status loss_ ABSL_GUARDED_BY(mu_);  // the first error that ended the context
  mutable Mutex library_mu_;
  // Null: not wanted so far, or there is none.
  mutable std::unique_ptr<CudaLibrary> library_ ABSL_GUARDED_BY(library_mu_);
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_DEVICE_H_
