#include "runtime/cpu/device.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/mutex.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/module.h"
#include "runtime/memory/arena.h"

namespace athanor {
namespace {

// Keeps threads' scratch two cache lines apart, because processors fetch lines in pairs.
constexpr int64_t kScratchAlignment = 128;

class CpuMemory : public DeviceMemory {
 public:
  explicit CpuMemory(Arena arena)
      : DeviceMemory(arena.data(), arena.bytes()), arena_(std::move(arena)) {}
  int64_t granularity() const override { return arena_.granularity(); }
  int64_t Decommit(int64_t offset, int64_t bytes) override {
    arena_.Decommit(offset, bytes);
    return 0;
  }

 private:
  Arena arena_;
};

class CpuDeviceKernel : public DeviceKernel {
 public:
  CpuDeviceKernel(std::unique_ptr<CpuModule> module, CpuKernel entry)
      : module_(std::move(module)), entry_(entry) {}
  CpuKernel entry() const { return entry_; }

 private:
  const std::unique_ptr<CpuModule> module_;  // null if linked into the program
  const CpuKernel entry_;
};

class CpuQueue : public DeviceQueue {
 public:
  CpuQueue(ThreadPool& pool, Arena scratch, int64_t stride)
      : pool_(pool), scratch_(std::move(scratch)), stride_(stride) {}

  absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch) override {
    if (launch.team != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a launch of teams of ", launch.team, " threads; on a CPU an item has one"));
    }
    const CpuKernel entry = static_cast<const CpuDeviceKernel&>(kernel).entry();
    if (launch.one_thread || launch.work < CpuDevice::kSharedWork) {
      Run(entry, launch, 0, 0, launch.grid);
      return absl::OkStatus();
    }
    pool_.ParallelFor(launch.grid, [&](int thread, int64_t begin, int64_t end) {
      Run(entry, launch, thread, begin, end);
    });
    return absl::OkStatus();
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
    // A pointer to no bytes may be null, which memcpy does not take.
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }

  absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    if (bytes > 0) std::memset(to, byte, bytes);
    return absl::OkStatus();
  }

  absl::Status Wait() override { return absl::OkStatus(); }

 private:
  void Run(CpuKernel entry, const LaunchArguments& launch, int thread, int64_t begin, int64_t end) {
    KernelError error;
    entry(launch.buffers.data(), launch.sizes.data(), begin, end,
          scratch_.data() + thread * stride_, &error);
    if (error.code == 0) return;
    MutexLock lock(mu_);
    // Keeps the error of the lowest item, so that the message does not depend on the threads'
    // timing.
    if (launch.error->code == 0 || error.item < launch.error->item) {
      *launch.error = error;
    }
  }

  ThreadPool& pool_;
  const Arena scratch_;
  const int64_t stride_;
  Mutex mu_;  // merges the error records of one launch
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuDevice>> CpuDevice::Create(const ThreadPoolOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(options));
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(pool)));
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> CpuDevice::Allocate(MemoryKind kind, int64_t bytes) {
  ASSIGN_OR_RETURN(Arena arena, Arena::Reserve(bytes));
  return std::make_unique<CpuMemory>(std::move(arena));
}

absl::StatusOr<std::unique_ptr<DeviceKernel>> CpuDevice::LoadKernel(absl::string_view object) {
  ASSIGN_OR_RETURN(std::unique_ptr<CpuModule> module, CpuModule::Load(object));
  absl::StatusOr<void*> symbol = module->Symbol(kCpuKernelSymbol);
  if (!symbol.ok()) {
    return absl::InvalidArgumentError(symbol.status().message());
  }
  return std::make_unique<CpuDeviceKernel>(std::move(module), reinterpret_cast<CpuKernel>(*symbol));
}

int64_t CpuDevice::ScratchBytes(int64_t per_item) const {
  const int64_t threads = pool_->threads();
  const int64_t strides = per_item / kScratchAlignment + (per_item % kScratchAlignment != 0);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (strides > kMost / kScratchAlignment / threads) return kMost;
  return strides * kScratchAlignment * threads;
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> CpuDevice::NewQueue(int64_t scratch_bytes) {
  // Refuses the largest int64_t, too.
  ASSIGN_OR_RETURN(Arena scratch, Arena::Reserve(ScratchBytes(scratch_bytes)));
  const int64_t stride = scratch.bytes() / pool_->threads();
  return std::make_unique<CpuQueue>(*pool_, std::move(scratch), stride);
}

std::unique_ptr<DeviceKernel> CpuDevice::WrapKernel(CpuKernel entry) {
  return std::make_unique<CpuDeviceKernel>(nullptr, entry);
}

}  // namespace athanor
