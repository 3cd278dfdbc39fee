#include "runtime/cuda/queue.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr int64_t kWaveThreads = 32;
constexpr size_t kMostWords = kCudaArgumentBytes / sizeof(uint64_t);

class CudaKernel : public DeviceKernel {
 public:
  CudaKernel(const CudaDevice& device, CudaModule module) : device_(device), module_(module) {}
  ~CudaKernel() override {
    if (device_.Enter().ok()) {
      device_.Check(device_.driver().ModuleUnload(module_), "cuModuleUnload").IgnoreError();
    }
  }
  absl::Status FindFunction() {
    return device_.Check(device_.driver().ModuleGetFunction(&function_, module_, kCudaKernelSymbol),
                         absl::StrCat("cuModuleGetFunction of '", kCudaKernelSymbol, "'"));
  }
  CudaFunction function() const { return function_; }

 private:
  const CudaDevice& device_;
  const CudaModule module_;
  CudaFunction function_ = nullptr;
};

class CudaQueue : public DeviceQueue {
 public:
  CudaQueue(const CudaDevice& device, std::unique_ptr<DeviceMemory> workspace,
            std::unique_ptr<DeviceMemory> slots, int64_t stride)
      : device_(device),
        cuda_(device.driver()),
        workspace_(std::move(workspace)),
        slots_(std::move(slots)),
        stride_(stride),
        teams_(device.Teams(stride)) {
    arguments_.reserve(kMostWords);
    waiting_.reserve(kCudaQueueSlots);
  }

  ~CudaQueue() override {
    // Waits for launches that still use the workspace.
    if (stream_ != nullptr) Wait().IgnoreError();
    if (!device_.Enter().ok()) return;
    if (host_slots_ != nullptr) cuda_.MemFreeHost(host_slots_);
    if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  }

  absl::Status Start() {
    RETURN_IF_ERROR(device_.Enter());
    void* host = nullptr;
    RETURN_IF_ERROR(device_.Check(
        cuda_.MemHostAlloc(&host, kCudaQueueSlots * sizeof(CudaErrorSlot), kCudaHostPortable),
        "cuMemHostAlloc"));
    host_slots_ = static_cast<CudaErrorSlot*>(host);
    return device_.Check(cuda_.StreamCreate(&stream_, kCudaStreamNonBlocking), "cuStreamCreate");
  }

  absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch) override {
    if (waiting_.size() == kCudaQueueSlots) RETURN_IF_ERROR(Wait());
    RETURN_IF_ERROR(device_.Enter());
    RETURN_IF_ERROR(ClearSlots());
    RETURN_IF_ERROR(SetArguments(launch));
    const auto [blocks, threads] = Geometry(launch);
    size_t bytes = arguments_.size() * sizeof(uint64_t);
    void* extra[] = {reinterpret_cast<void*>(kCudaLaunchBuffer), arguments_.data(),
                     reinterpret_cast<void*>(kCudaLaunchBufferBytes), &bytes,
                     reinterpret_cast<void*>(kCudaLaunchEnd)};
    RETURN_IF_ERROR(device_.Check(
        cuda_.LaunchKernel(static_cast<const CudaKernel&>(kernel).function(), blocks, 1, 1, threads,
                           1, 1, /*shared_bytes=*/0, stream_, nullptr, extra),
        "cuLaunchKernel"));
    waiting_.push_back(launch.error);
    used_slots_ = std::max(used_slots_, waiting_.size());
    return absl::OkStatus();
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
    RETURN_IF_ERROR(device_.Enter());
    if (bytes == 0) return absl::OkStatus();
    switch (kind) {
      case CopyKind::kToDevice:
        return device_.Check(cuda_.CopyToDevice(AddressOnDevice(to), from, bytes, stream_),
                             "cuMemcpyHtoDAsync");
      case CopyKind::kToHost:
        return device_.Check(cuda_.CopyToHost(to, AddressOnDevice(from), bytes, stream_),
                             "cuMemcpyDtoHAsync");
      case CopyKind::kOnDevice:
        break;
    }
    return device_.Check(
        cuda_.CopyOnDevice(AddressOnDevice(to), AddressOnDevice(from), bytes, stream_),
        "cuMemcpyDtoDAsync");
  }

  absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    RETURN_IF_ERROR(device_.Enter());
    if (bytes == 0) return absl::OkStatus();
    return device_.Check(cuda_.FillBytes(AddressOnDevice(to), byte, bytes, stream_),
                         "cuMemsetD8Async");
  }

  absl::Status Wait() override {
    const size_t launches = waiting_.size();
    absl::Status status = device_.Enter();
    if (status.ok() && launches > 0) {
      status = device_.Check(cuda_.CopyToHost(host_slots_, AddressOnDevice(slots_->data()),
                                              launches * sizeof(CudaErrorSlot), stream_),
                             "cuMemcpyDtoHAsync");
    }
    // Waits after an error, too.
    const absl::Status waited =
        device_.Check(cuda_.StreamSynchronize(stream_), "cuStreamSynchronize");
    if (status.ok()) status = waited;
    for (size_t i = 0; status.ok() && i < launches; ++i) {
      if (host_slots_[i].error.code != 0) *waiting_[i] = host_slots_[i].error;
    }
    waiting_.clear();
    return status;
  }

 private:
  CudaGeometry Geometry(const LaunchArguments& launch) const {
    if (launch.one_thread) return {1, static_cast<unsigned>(launch.team)};
    return GeometryOf(launch.grid, launch.team, teams_, device_.properties().threads,
                      device_.properties().multiprocessors);
  }

  // Lays out what the kernel takes (compiler/codegen/cuda/dialect.h).
  absl::Status SetArguments(const LaunchArguments& launch) {
    const size_t words = 2 * launch.buffers.size() + launch.sizes.size() + 4;
    if (words > kMostWords) {
      return absl::InvalidArgumentError(
          absl::StrCat("a launch of ", launch.buffers.size(), " buffers and ", launch.sizes.size(),
                       " sizes; CUDA takes ", kMostWords, " words of arguments"));
    }
    arguments_.clear();
    for (size_t i = 0; i < launch.buffers.size(); ++i) {
      arguments_.push_back(AddressOnDevice(launch.buffers[i]));
      arguments_.push_back(launch.bytes[i]);
    }
    arguments_.insert(arguments_.end(), launch.sizes.begin(), launch.sizes.end());
    arguments_.push_back(launch.grid);
    arguments_.push_back(workspace_ != nullptr ? AddressOnDevice(workspace_->data()) : 0);
    arguments_.push_back(stride_);
    arguments_.push_back(AddressOnDevice(slots_->data()) + waiting_.size() * sizeof(CudaErrorSlot));
    return absl::OkStatus();
  }

  // Clears the slots of launches that were waited for, before the next one.
  absl::Status ClearSlots() {
    if (!waiting_.empty() || used_slots_ == 0) return absl::OkStatus();
    RETURN_IF_ERROR(device_.Check(cuda_.FillBytes(AddressOnDevice(slots_->data()), 0,
                                                  used_slots_ * sizeof(CudaErrorSlot), stream_),
                                  "cuMemsetD8Async"));
    used_slots_ = 0;
    return absl::OkStatus();
  }

  const CudaDevice& device_;
  const CudaDriver& cuda_;
  const std::unique_ptr<DeviceMemory> workspace_;  // null: no kernel needs scratch
  const std::unique_ptr<DeviceMemory> slots_;      // kCudaQueueSlots of them
  size_t used_slots_ = 0;                          // behind them all are zero
  const int64_t stride_;
  const int64_t teams_;
  CudaErrorSlot* host_slots_ = nullptr;  // pinned
  CudaStream stream_ = nullptr;
  std::vector<uint64_t> arguments_;    // of the launch that is being made
  std::vector<KernelError*> waiting_;  // of launches since the last Wait(), by slot
};

}  // namespace

CudaGeometry GeometryOf(int64_t grid, int team, int64_t most_teams, int64_t most_threads,
                        int64_t multiprocessors) {
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Each team that is launched has its workspace.
  const int64_t most = std::max<int64_t>(std::min(most_teams, most_threads / team), 1);
  const int64_t teams = std::min(grid, most);
  const int64_t share = ceil(teams, std::max<int64_t>(multiprocessors, 1));
  const int64_t waves = ceil(share * team, kWaveThreads);
  // Whole waves are whole teams.
  const int64_t threads = std::min({waves * kWaveThreads, int64_t{kCudaBlockThreads}, most * team});
  const int64_t in_block = threads / team;
  const int64_t blocks = std::min(ceil(teams, in_block), most / in_block);
  return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)};
}

absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadCudaKernel(const CudaDevice& device,
                                                             absl::string_view cubin) {
  CudaModule module = nullptr;
  // The driver reads headers where they lie, at multiples of 8 bytes.
  std::vector<uint64_t> aligned((cubin.size() + 7) / 8);
  std::memcpy(aligned.data(), cubin.data(), cubin.size());
  RETURN_IF_ERROR(
      device.Check(device.driver().ModuleLoadData(&module, aligned.data()), "cuModuleLoadData"));
  auto kernel = std::make_unique<CudaKernel>(device, module);
  RETURN_IF_ERROR(kernel->FindFunction());
  return kernel;
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(const CudaDevice& device,
                                                          std::unique_ptr<DeviceMemory> workspace,
                                                          std::unique_ptr<DeviceMemory> slots,
                                                          int64_t stride) {
  auto queue = std::make_unique<CudaQueue>(device, std::move(workspace), std::move(slots), stride);
  RETURN_IF_ERROR(queue->Start());
  return queue;
}

}  // namespace athanor
