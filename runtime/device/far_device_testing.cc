#include "runtime/device/far_device_testing.h"

#include <algorithm>
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

class FarDevice::Memory : public DeviceMemory {
 public:
  Memory(FarDevice* device, MemoryKind kind, std::unique_ptr<DeviceMemory> near)
      : DeviceMemory(reinterpret_cast<void*>(AddressOf(near->data()) | kFar), near->bytes()),
        device_(*device),
        near_(std::move(near)),
        granule_(kind == MemoryKind::kScratch ? 0 : near_->granularity()) {
    if (granule_ > 0) committed_.resize((bytes() + granule_ - 1) / granule_);
    MutexLock lock(device_.mu_);
    device_.blocks_.emplace(AddressOf(data()), this);
  }
  ~Memory() override {
    MutexLock lock(device_.mu_);
    device_.blocks_.erase(AddressOf(data()));
  }
  int64_t granularity() const override { return granule_; }
  absl::Status Commit(int64_t offset, int64_t bytes) override {
    if (granule_ == 0 || bytes == 0) return absl::OkStatus();
    MutexLock lock(device_.mu_);
    Set(offset / granule_, EndOf(offset + bytes), true);
    return absl::OkStatus();
  }
  int64_t Decommit(int64_t offset, int64_t bytes) override {
    const int64_t kept = near_->Decommit(offset, bytes);
    if (granule_ == 0) return kept;
    MutexLock lock(device_.mu_);
    Set(EndOf(offset),
        offset + bytes == this->bytes() ? committed_.size() : (offset + bytes) / granule_, false);
    return kept;
  }

  // REQUIRES: the device's lock is held
  bool IsCommitted(int64_t offset, int64_t bytes) const {
    if (granule_ == 0 || bytes == 0) return true;
    const auto begin = committed_.begin();
    return std::find(begin + offset / granule_, begin + EndOf(offset + bytes), false) ==
           begin + EndOf(offset + bytes);
  }

 private:
  int64_t EndOf(int64_t offset) const { return (offset + granule_ - 1) / granule_; }
  void Set(int64_t first, int64_t end, bool committed) {
    for (; first < end; ++first) committed_[first] = committed;
  }

  FarDevice& device_;
  const std::unique_ptr<DeviceMemory> near_;
  const int64_t granule_;
  std::vector<bool> committed_;  // by granule, under the device's lock
};

bool FarDevice::Holds(const void* data, int64_t bytes) const {
  const uintptr_t address = AddressOf(data);
  MutexLock lock(mu_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  const auto& [first, block] = *std::prev(after);
  const auto offset = static_cast<int64_t>(address - first);
  return offset <= block->bytes() && bytes <= block->bytes() - offset &&
         block->IsCommitted(offset, bytes);
}

class FarDevice::Queue : public DeviceQueue {
 public:
  Queue(FarDevice* device, std::unique_ptr<DeviceQueue> near)
      : device_(*device), near_(std::move(near)) {}
  ~Queue() override {
    if (calls_.empty()) return;
    std::fputs("FarDevice: a queue dies with calls that nobody waited for\n", stderr);
    std::abort();
  }

  absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
      absl::Span<const RecordedLaunch> launches) override {
    for (const RecordedLaunch& launch : launches) {
      const ArgumentWords words = {nullptr, launch.buffers, launch.sizes};
      RETURN_IF_ERROR(
          Check("arguments", launch.arguments, words.count() * sizeof(int64_t), /*far=*/true));
    }
    return std::make_unique<Recording>(launches);
  }
  absl::Status Replay(const DeviceRecording& recording) override {
    calls_.push_back({.recording = static_cast<const Recording*>(&recording)});
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
  struct Recording : DeviceRecording {
    explicit Recording(absl::Span<const RecordedLaunch> from)
        : launches(from.begin(), from.end()) {}
    const std::vector<RecordedLaunch> launches;
  };
  // A copy has a source; what has no recording either is a fill.
  struct Call {
    const Recording* recording = nullptr;
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
    return absl::InternalError(
        absl::StrCat(what, ": ", bytes, " bytes at ", absl::Hex(AddressOf(data)), " are not in ",
                     far ? "a block of the device, committed" : "host memory"));
  }

  absl::Status Run(const Call& call) {
    if (call.recording != nullptr) {
      for (const RecordedLaunch& launch : call.recording->launches) RETURN_IF_ERROR(Run(launch));
      return absl::OkStatus();
    }
    if (call.bytes == 0) return absl::OkStatus();
    if (call.from == nullptr) return near_->Fill(Near(call.to), call.byte, call.bytes);
    return near_->Copy(Near(call.to), Near(call.from), call.bytes, call.kind);
  }

  absl::Status Run(const RecordedLaunch& launch) {
    const ArgumentWords words = {static_cast<int64_t*>(Near(launch.arguments)), launch.buffers,
                                 launch.sizes};
    if (words.items() < 0 || words.items() > launch.most_items) {
      return absl::InternalError(
          absl::StrCat(words.items(), " items; a launch was recorded of ", launch.most_items));
    }
    if (words.items() == 0) return absl::OkStatus();
    const auto pointer = [](int64_t address) { return reinterpret_cast<void*>(address); };
    buffers_.clear();
    bytes_.clear();
    for (int i = 0; i < launch.buffers; ++i) {
      void* const data = pointer(words.address(i));
      RETURN_IF_ERROR(Check("buffer of a launch", data, words.bytes(i), /*far=*/true));
      buffers_.push_back(Near(data));
      bytes_.push_back(words.bytes(i));
    }
    RETURN_IF_ERROR(Check("error slot", pointer(words.error()), sizeof(ErrorSlot), /*far=*/true));
    auto* const slot = static_cast<ErrorSlot*>(Near(pointer(words.error())));
    if (slot->error.code != 0) return absl::InternalError("an error slot was not cleared");
    RETURN_IF_ERROR(near_->Launch(*launch.kernel, {.buffers = buffers_,
                                                   .bytes = bytes_,
                                                   .sizes = {&words.size(0), size_t(words.sizes)},
                                                   .grid = words.items(),
                                                   .team = launch.team,
                                                   .one_thread = launch.one_thread,
                                                   .error = &slot->error}));
    return near_->Wait();
  }

  const FarDevice& device_;
  const std::unique_ptr<DeviceQueue> near_;
  std::vector<Call> calls_;     // since the last Wait()
  std::vector<void*> buffers_;  // of the launch that runs
  std::vector<int64_t> bytes_;
};

absl::StatusOr<std::unique_ptr<DeviceMemory>> FarDevice::Allocate(MemoryKind kind, int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> near, device_.Allocate(kind, bytes));
  if (kind == MemoryKind::kStaging) return near;
  return std::make_unique<Memory>(this, kind, std::move(near));
}

absl::StatusOr<std::unique_ptr<DeviceQueue>> FarDevice::NewQueue(int64_t scratch_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> near, device_.NewQueue(scratch_bytes));
  return std::make_unique<Queue>(this, std::move(near));
}

}  // namespace athanor
