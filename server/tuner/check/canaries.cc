#include "server/tuner/check/canaries.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Fills gap `i`: in each float type a value that is far from those of a check, or none. Gaps
// differ, so that a kernel that copies too much does not copy one gap into another unseen.
constexpr uint8_t Canary(size_t i) { return static_cast<uint8_t>(0xFE - i % 16); }
// Bytes between two arguments, and what their alignment is kept by.
constexpr int64_t kGap = 1024, kAlignment = 256;

// Arguments that lie together, and where their copy lies.
struct Region {
  char* from = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the memory of copies

  bool Has(const void* address) const { return address >= from && address < from + bytes; }
};

// Sorts the arguments into regions, and returns the bytes of all copies with gaps around them.
int64_t Spread(const LaunchArguments& launch, std::vector<Region>* regions) {
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    if (launch.bytes[i] <= 0) continue;
    regions->push_back({static_cast<char*>(launch.buffers[i]), launch.bytes[i]});
  }
  absl::c_sort(*regions, [](const Region& a, const Region& b) { return a.from < b.from; });
  size_t last = 0;
  for (size_t i = 1; i < regions->size(); ++i) {
    Region &before = (*regions)[last], &next = (*regions)[i];
    if (next.from < before.from + before.bytes) {
      before.bytes = std::max(before.bytes, next.from + next.bytes - before.from);
    } else {
      (*regions)[++last] = next;
    }
  }
  if (!regions->empty()) regions->resize(last + 1);
  int64_t end = 0;
  for (Region& region : *regions) {
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(region.from));
    const int64_t first = (end + kGap + kAlignment - 1) / kAlignment * kAlignment;
    region.offset = first + address % kAlignment;
    end = region.offset + region.bytes;
  }
  return end + kGap;
}

struct Gap {
  int64_t offset = 0, bytes = 0;
};

// The gaps between copies, and before and behind them all.
std::vector<Gap> GapsOf(const std::vector<Region>& regions, int64_t bytes) {
  std::vector<Gap> gaps;
  int64_t begin = 0;
  for (const Region& region : regions) {
    gaps.push_back({begin, region.offset - begin});
    begin = region.offset + region.bytes;
  }
  gaps.push_back({begin, bytes - begin});
  return gaps;
}

class CanaryQueue : public DeviceQueue {
 public:
  CanaryQueue(Device* device, std::unique_ptr<DeviceQueue> queue)
      : device_(*device), queue_(std::move(queue)) {}

  absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
    return queue_->Copy(to, from, bytes, kind);
  }
  absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
    return queue_->Fill(to, byte, bytes);
  }
  absl::Status Wait() override { return queue_->Wait(); }

 private:
  char* At(int64_t offset) const { return static_cast<char*>(memory_->data()) + offset; }
  // Reports whether there is memory for so many bytes of copies.
  absl::StatusOr<bool> Reserve(int64_t bytes);
  absl::Status RunOnCopies(const DeviceKernel& kernel, const LaunchArguments& launch,
                           const std::vector<Region>& regions, int64_t bytes);
  // Reads the gaps.
  absl::Status Inspect(const LaunchArguments& launch, const std::vector<Region>& regions,
                       const std::vector<Gap>& gaps);

  Device& device_;
  std::unique_ptr<DeviceMemory> memory_;
  const std::unique_ptr<DeviceQueue> queue_;  // dies before what it works on
};

absl::StatusOr<bool> CanaryQueue::Reserve(int64_t bytes) {
  if (memory_ != nullptr && memory_->bytes() >= bytes) return true;
  if (bytes > CanaryDevice::kMostBytes) return false;
  RETURN_IF_ERROR(queue_->Wait());
  memory_.reset();
  absl::StatusOr<std::unique_ptr<DeviceMemory>> memory =
      device_.Allocate(MemoryKind::kArena, bytes);
  if (absl::IsResourceExhausted(memory.status())) return false;
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  return true;
}

absl::Status CanaryQueue::Launch(const DeviceKernel& kernel, const LaunchArguments& launch) {
  std::vector<Region> regions;
  const int64_t bytes = Spread(launch, &regions);
  if (regions.empty()) return queue_->Launch(kernel, launch);
  ASSIGN_OR_RETURN(const bool spread, Reserve(bytes));
  return spread ? RunOnCopies(kernel, launch, regions, bytes) : queue_->Launch(kernel, launch);
}

absl::Status CanaryQueue::RunOnCopies(const DeviceKernel& kernel, const LaunchArguments& launch,
                                      const std::vector<Region>& regions, int64_t bytes) {
  const std::vector<Gap> gaps = GapsOf(regions, bytes);
  for (size_t i = 0; i < gaps.size(); ++i) {
    RETURN_IF_ERROR(queue_->Fill(At(gaps[i].offset), Canary(i), gaps[i].bytes));
  }
  std::vector<void*> buffers(launch.buffers.begin(), launch.buffers.end());
  for (const Region& region : regions) {
    RETURN_IF_ERROR(
        queue_->Copy(At(region.offset), region.from, region.bytes, CopyKind::kOnDevice));
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (launch.bytes[i] <= 0 || !region.Has(launch.buffers[i])) continue;
      buffers[i] = At(region.offset + (static_cast<char*>(launch.buffers[i]) - region.from));
    }
  }
  LaunchArguments copies = launch;
  copies.buffers = buffers;
  absl::Status status = queue_->Launch(kernel, copies);
  for (const Region& region : regions) {
    if (!status.ok()) break;
    status = queue_->Copy(region.from, At(region.offset), region.bytes, CopyKind::kOnDevice);
  }
  if (status.ok()) status = Inspect(launch, regions, gaps);
  // What is queued uses the buffers.
  absl::Status waited = queue_->Wait();
  return status.ok() ? waited : status;
}

absl::Status CanaryQueue::Inspect(const LaunchArguments& launch, const std::vector<Region>& regions,
                                  const std::vector<Gap>& gaps) {
  std::vector<std::string> found(gaps.size());
  for (size_t i = 0; i < gaps.size(); ++i) {
    found[i].resize(gaps[i].bytes);
    RETURN_IF_ERROR(
        queue_->Copy(found[i].data(), At(gaps[i].offset), gaps[i].bytes, CopyKind::kToHost));
  }
  RETURN_IF_ERROR(queue_->Wait());
  for (size_t i = 0; i < gaps.size(); ++i) {
    const size_t at = found[i].find_first_not_of(static_cast<char>(Canary(i)));
    if (at == std::string::npos) continue;
    // The gap lies behind region i - 1 and before region i; the nearer one was left.
    const bool behind = i > 0 && (i == regions.size() || at < found[i].size() / 2);
    const Region& left = regions[behind ? i - 1 : i];
    const auto argument = absl::c_find_if(launch.buffers, [&](void* b) { return left.Has(b); });
    const size_t distance = behind ? at : found[i].size() - at;
    return absl::DataLossError(absl::StrCat(
        "the kernel writes ", distance, " bytes ", behind ? "behind" : "before", " argument ",
        argument - launch.buffers.begin(), ", which has ", left.bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceQueue>> CanaryDevice::NewQueue(int64_t scratch_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_.NewQueue(scratch_bytes));
  return std::make_unique<CanaryQueue>(&device_, std::move(queue));
}

}  // namespace athanor
