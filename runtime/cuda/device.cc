#include "runtime/cuda/device.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/queue.h"
#include "runtime/device/elf.h"

namespace athanor {
namespace {

constexpr int kOldestCompute = 80;
constexpr int kOldestDriver = 13000;  // as cuDriverGetVersion says it: takes code of NVRTC 13
// Keeps items' scratch apart by whole sectors of the memory.
constexpr int64_t kScratchAlignment = 128;

int64_t Rounded(int64_t bytes) {
  return bytes / kScratchAlignment * kScratchAlignment +
         (bytes % kScratchAlignment != 0 ? kScratchAlignment : 0);
}

}  // namespace

absl::StatusOr<int> CountGpus(const CudaDriver& cuda) {
  int count = 0;
  RETURN_IF_ERROR(CudaStatus(cuda, cuda.Init(0), "cuInit"));
  RETURN_IF_ERROR(CudaStatus(cuda, cuda.DeviceGetCount(&count), "cuDeviceGetCount"));
  if (count <= 0) return absl::FailedPreconditionError("the CUDA driver shows no GPU");
  return count;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaDriver& cuda,
                                                               const CudaDeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(cuda, options));
  RETURN_IF_ERROR(device->Named(device->Start()));
  return device;
}

absl::Status CudaDevice::Start() {
  ASSIGN_OR_RETURN(const int gpus, CountGpus(cuda_));
  if (options_.ordinal >= gpus) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no such GPU; the driver shows ", gpus, ", numbered from cuda:0"));
  }
  RETURN_IF_ERROR(Check(cuda_.DeviceGet(&handle_, options_.ordinal), "cuDeviceGet"));
  RETURN_IF_ERROR(ReadProperties());
  if (properties_.compute < kOldestCompute) {
    return absl::FailedPreconditionError(absl::StrCat(properties_.name, " is sm_",
                                                      properties_.compute, "; kernels need sm_",
                                                      kOldestCompute, " (Ampere) or newer"));
  }
  RETURN_IF_ERROR(Check(cuda_.PrimaryCtxRetain(&context_, handle_), "cuDevicePrimaryCtxRetain"));
  return ReadGranule();
}

absl::Status CudaDevice::ReadGranule() {
  int has = 0;
  RETURN_IF_ERROR(Check(cuda_.DeviceGetAttribute(&has, kCudaVirtualMemory, handle_),
                        absl::StrCat("cuDeviceGetAttribute(", kCudaVirtualMemory, ")")));
  if (has == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Enter());
  const CudaAllocationProperties properties = {.location = {.id = handle_}};
  size_t granule = 0;
  RETURN_IF_ERROR(Check(cuda_.MemGranularity(&granule, &properties, kCudaGranularityMinimum),
                        "cuMemGetAllocationGranularity"));
  properties_.granule = granule;
  return absl::OkStatus();
}

absl::Status CudaDevice::ReadProperties() {
  char name[256] = {};
  RETURN_IF_ERROR(Check(cuda_.DeviceGetName(name, sizeof(name) - 1, handle_), "cuDeviceGetName"));
  properties_.name = name;
  char bus_id[32] = {};
  RETURN_IF_ERROR(
      Check(cuda_.DeviceGetPciBusId(bus_id, sizeof(bus_id) - 1, handle_), "cuDeviceGetPCIBusId"));
  properties_.bus_id = bus_id;
  int version = 0;
  RETURN_IF_ERROR(Check(cuda_.DriverGetVersion(&version), "cuDriverGetVersion"));
  properties_.driver = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  if (version < kOldestDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("its driver knows CUDA ", properties_.driver,
                     "; kernels need one that knows 13.0, which drivers from 580 do"));
  }
  size_t memory = 0;
  RETURN_IF_ERROR(Check(cuda_.DeviceTotalMem(&memory, handle_), "cuDeviceTotalMem"));
  properties_.memory_bytes = memory;
  int major = 0, minor = 0, threads = 0, l2 = 0, shared = 0, mode = 0;
  int core_kilohertz = 0, memory_kilohertz = 0;
  const std::pair<int, int*> attributes[] = {
      {kCudaComputeMajor, &major},
      {kCudaComputeMinor, &minor},
      {kCudaMultiprocessors, &properties_.multiprocessors},
      {kCudaThreadsPerMultiprocessor, &threads},
      {kCudaL2Bytes, &l2},
      {kCudaSharedBytesPerMultiprocessor, &shared},
      {kCudaComputeMode, &mode},
      {kCudaClockKilohertz, &core_kilohertz},
      {kCudaMemoryClockKilohertz, &memory_kilohertz},
      {kCudaMemoryBusBits, &properties_.memory_bits},
  };
  for (const auto& [attribute, value] : attributes) {
    RETURN_IF_ERROR(Check(cuda_.DeviceGetAttribute(value, attribute, handle_),
                          absl::StrCat("cuDeviceGetAttribute(", attribute, ")")));
  }
  if (mode != kCudaComputeModeDefault) {
    return absl::FailedPreconditionError(
        absl::StrCat("its compute mode is ", mode,
                     "; kernels are checked in other processes, which mode 0 (default) admits"));
  }
  properties_.compute = 10 * major + minor;
  properties_.core_hertz = 1e3 * core_kilohertz;
  properties_.memory_hertz = 1e3 * memory_kilohertz;
  properties_.threads = threads * properties_.multiprocessors;
  properties_.l2_bytes = l2;
  properties_.shared_bytes = shared;
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  {
    MutexLock lock(library_mu_);
    // A lost context frees nothing.
    if (library_ != nullptr && !Enter().ok()) library_.release();
    library_.reset();
  }
  if (context_ != nullptr) cuda_.PrimaryCtxRelease(handle_);
}

absl::Status CudaDevice::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("device ", full_name(), ": ", status.message()));
}

std::string CudaDevice::full_name() const { return absl::StrCat("cuda:", options_.ordinal); }

absl::Status CudaDevice::loss() const {
  if (!lost_.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(mu_);
  return loss_;
}

absl::Status CudaDevice::Enter() const {
  RETURN_IF_ERROR(loss());
  return Check(cuda_.CtxSetCurrent(context_), "cuCtxSetCurrent");
}

absl::Status CudaDevice::Check(CudaResult result, absl::string_view call) const {
  if (result == kCudaSuccess) return absl::OkStatus();
  const absl::Status status = CudaStatus(cuda_, result, call);
  if (!IsStickyError(result)) return status;
  {
    MutexLock lock(mu_);
    if (!loss_.ok()) return loss_;
    loss_ = absl::UnavailableError(absl::StrCat(
        "device ", full_name(), " is lost until this process restarts: ", status.message()));
    lost_by_kernel_.store(IsKernelFault(result), std::memory_order_release);
    lost_.store(true, std::memory_order_release);
  }
  const absl::Status lost = loss();
  if (on_loss_) on_loss_(lost);
  return lost;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> CudaDevice::Allocate(MemoryKind kind, int64_t bytes) {
  return AllocateCudaMemory(*this, kind, bytes);
}

bool CudaDevice::CommitsLater(MemoryKind kind, int64_t bytes) const {
  const bool whole = kind == MemoryKind::kScratch || kind == MemoryKind::kStaging;
  return !whole && properties_.granule > 0 && bytes > properties_.granule;
}

absl::StatusOr<int64_t> CudaDevice::FreeBytes() const {
  RETURN_IF_ERROR(Enter());
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(Check(cuda_.MemGetInfo(&free, &total), "cuMemGetInfo"));
  return static_cast<int64_t>(free);
}

absl::StatusOr<std::unique_ptr<DeviceKernel>> CudaDevice::LoadKernel(absl::string_view object) {
  // The driver takes no length, and would read behind a file that was cut off.
  RETURN_IF_ERROR(CheckElf(object).status());
  RETURN_IF_ERROR(Enter());
  return LoadCudaKernel(*this, object);
}

absl::StatusOr<int64_t> CudaDevice::ResidentThreads(CudaFunction function,
                                                    int block_threads) const {
  int blocks = 0;
  RETURN_IF_ERROR(Check(cuda_.OccupancyBlocks(&blocks, function, block_threads, 0),
                        "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  return int64_t{blocks} * block_threads * properties_.multiprocessors;
}

absl::StatusOr<const CudaLibrary*> CudaDevice::library() const {
  MutexLock lock(library_mu_);
  if (library_ == nullptr) {
    ASSIGN_OR_RETURN(library_, CudaLibrary::Open(options_.library_folder));
  }
  return library_.get();
}

absl::Status CudaDevice::CheckCall(const LibraryCall& call) {
  RETURN_IF_ERROR(Enter());
  ASSIGN_OR_RETURN(const CudaLibrary* const calls, library());
  return calls->Check(call);
}

int64_t CudaDevice::Teams(int64_t stride) const {
  const int64_t resident = std::max(properties_.threads, 1);
  if (stride == 0) return resident;
  return std::clamp<int64_t>(options_.workspace_bytes / stride, 1, resident);
}

int64_t CudaDevice::ScratchBytes(int64_t per_item) const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (per_item > kMost - kScratchAlignment) return kMost;
  const int64_t stride = Rounded(per_item);
  return stride * Teams(stride);
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> CudaDevice::NewQueue(int64_t scratch_bytes) {
  const int64_t bytes = ScratchBytes(scratch_bytes);
  std::unique_ptr<DeviceMemory> workspace;
  if (bytes > 0) {
    ASSIGN_OR_RETURN(workspace, Allocate(MemoryKind::kScratch, bytes));
  }
  return NewCudaQueue(*this, std::move(workspace), Rounded(scratch_bytes));
}

v1::Target CudaDevice::target() const {
  v1::Target target;
  target.set_device(std::string(name()));
  target.set_triple("nvptx64-nvidia-cuda");
  // The letter admits what this architecture alone has.
  target.set_cpu(absl::StrCat("sm_", properties_.compute, properties_.compute >= 90 ? "a" : ""));
  target.set_vector_bytes(1);
  target.set_vector_registers(32);
  target.set_l1_bytes(properties_.shared_bytes);
  target.set_l2_bytes(properties_.l2_bytes);
  target.set_l3_bytes(properties_.l2_bytes);
  target.set_threads(properties_.threads);
  return target;
}

}  // namespace athanor
