#include "runtime/far_device_testing.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// No x86-64 or ARM processor translates such an address of a process.
constexpr uintptr_t kFar = uintptr_t{1} << 54;

uintptr_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }
bool IsFar(const void* data) { return (AddressOf(data) & kFar) != 0; }

}  // namespace

void* FarDevice::Near(const void* data) { return reinterpret_cast<void*>(AddressOf(data) & ~kFar); }

bool FarDevice::Holds(const void* data, int64_t bytes) const {
  const uintptr_t address = AddressOf(data);
  MutexLock lock(mu_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const auto& [first, size] = *std::prev(after);
  const auto offset = static_cast<int64_t>(address - first);
  return offset <= size && bytes <= size - offset;
}

class FarDevice::Memory : public DeviceMemory {
 public:
  Memory(FarDevice* device, std::unique_ptr<DeviceMemory> near)
      : DeviceMemory(reinterpret_cast<void*>(AddressOf(near->data()) | kFar), near->bytes()),
        device_(*device),
        near_(std::move(near)) {
    MutexLock lock(device_.mu_);
    device_.blocks_.emplace(AddressOf(data()), bytes());
  }
  ~Memory() override {
    MutexLock lock(device_.mu_);
    device_.blocks_.erase(AddressOf(data()));
  }
  int64_t granularity() const override { return near_->granularity(); }
  void Decommit() override { near_->Decommit(); }
  void Decommit(int64_t offset, int64_t bytes) override { near_->Decommit(offset, bytes); }

 private:
  FarDevice& device_;
  const std::unique_ptr<DeviceMemory> near_;
};

class FarDevice::Queue : public DeviceQueue {
 public:
  Queue(FarDevice* device, std::unique_ptr<DeviceQueue> near)
      : device_(*device), near_(std::move(near)) {}
  ~Queue() override {
    if (calls_.empty()) return;
    std::fputs("FarDevice: a queue dies with calls that nobody waited for\n", stderr);
    std::abort();
  }

  absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch) override {
    if (launch.bytes.size() != launch.buffers.size()) {
      return absl::InternalError(absl::StrCat("launch of ", launch.buffers.size(), " buffers and ",
                                              launch.bytes.size(), " numbers of bytes"));
    }
    calls_.push_back({.kernel = &kernel, .launch = launch});
    return absl::OkStatus();
  }
  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
    RETURN_IF_ERROR(Check("copy to", to, bytes, kind != CopyKind::kToHost));
    RETURN_IF_ERROR(Check("copy from", from, bytes, kind != CopyKind::kToDevice));
    calls_.push_back({.to = to, .from = from, .bytes = bytes, .kind = kind});
    return absl::OkStatus();
  }
  absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    RETURN_IF_ERROR(Check("fill", to, bytes, /*far=*/true));
    calls_.push_back({.to = to, .bytes = bytes, .byte = byte});
    return absl::OkStatus();
  }
  absl::Status Wait() override {
    absl::Status status;
    for (const Call& call : calls_) {
      if (status.ok()) status = Run(call);
    }
    calls_.clear();
    return status;
  }

 private:
  // A launch has a kernel, a copy a source; the rest are fills.
  struct Call {
    const DeviceKernel* kernel = nullptr;
    LaunchArguments launch = {};
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
    CopyKind kind = CopyKind::kOnDevice;
    uint8_t byte = 0;
  };

  absl::Status Check(absl::string_view what, const void* data, int64_t bytes, bool far) const {
    if (bytes == 0 || (IsFar(data) == far && (!far || device_.Holds(data, bytes)))) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat(what, ": ", bytes, " bytes at ",
                                            absl::Hex(AddressOf(data)), " are not in ",
                                            far ? "a block of the device" : "host memory"));
  }

  absl::Status Run(const Call& call) {
    if (call.kernel == nullptr && call.bytes == 0) return absl::OkStatus();
    if (call.kernel == nullptr && call.from == nullptr) {
      return near_->Fill(Near(call.to), call.byte, call.bytes);
    }
    if (call.kernel == nullptr) {
      return near_->Copy(Near(call.to), Near(call.from), call.bytes, call.kind);
    }
    buffers_.clear();
    for (size_t i = 0; i < call.launch.buffers.size(); ++i) {
      const void* const data = call.launch.buffers[i];
      RETURN_IF_ERROR(Check("buffer of a launch", data, call.launch.bytes[i], /*far=*/true));
      buffers_.push_back(Near(data));
    }
    LaunchArguments launch = call.launch;
    launch.buffers = buffers_;
    RETURN_IF_ERROR(near_->Launch(*call.kernel, launch));
    return near_->Wait();
  }

  const FarDevice& device_;
  const std::unique_ptr<DeviceQueue> near_;
  std::vector<Call> calls_;  // since the last Wait()
  std::vector<void*> buffers_;
};

absl::StatusOr<std::unique_ptr<DeviceMemory>> FarDevice::Allocate(MemoryKind kind, int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> near, device_.Allocate(kind, bytes));
  return std::make_unique<Memory>(this, std::move(near));
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> FarDevice::NewQueue(int64_t scratch_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> near, device_.NewQueue(scratch_bytes));
  return std::make_unique<Queue>(this, std::move(near));
}

}  // namespace athanor
