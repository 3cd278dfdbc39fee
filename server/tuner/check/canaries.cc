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

char* Address(const ArgumentWords& arguments, int i) {
  return reinterpret_cast<char*>(arguments.address(i));
}

// Sorts the arguments into regions, and returns the bytes of all copies with gaps around them.
int64_t Spread(const ArgumentWords& arguments, std::vector<Region>* regions) {
  for (int i = 0; i < arguments.buffers; ++i) {
    if (arguments.bytes(i) <= 0) continue;
    regions->push_back({Address(arguments, i), arguments.bytes(i)});
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

// Has a recording, with arguments of its own, for each launch.
struct CanaryRecording : DeviceRecording {
  struct Step {
    RecordedLaunch launch;
    std::unique_ptr<DeviceMemory> arguments;
    std::unique_ptr<DeviceRecording> recording;
    std::vector<int64_t> words;  // on the host

    int64_t bytes() const { return static_cast<int64_t>(words.size() * sizeof(int64_t)); }
  };
  mutable std::vector<Step> steps;
};

class CanaryQueue : public DeviceQueue {
 public:
  CanaryQueue(Device* device, std::unique_ptr<DeviceQueue> queue)
      : device_(*device), queue_(std::move(queue)) {}

  absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
      absl::Span<const RecordedLaunch> launches) override;
  absl::Status Replay(const DeviceRecording& recording) override {
    for (CanaryRecording::Step& step : static_cast<const CanaryRecording&>(recording).steps) {
      RETURN_IF_ERROR(Run(step));
    }
    return absl::OkStatus();
  }
  Workspace workspace() const override { return queue_->workspace(); }
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
  absl::Status Run(CanaryRecording::Step& step);
  // Queues fills of the gaps, copies of the arguments, and the launch on these.
  absl::Status RunOnCopies(CanaryRecording::Step& step, const std::vector<Region>& regions,
                           const std::vector<Gap>& gaps);
  // Reads the gaps.
  absl::Status Inspect(const std::vector<void*>& arguments, const std::vector<Region>& regions,
                       const std::vector<Gap>& gaps);

  Device& device_;
  std::unique_ptr<DeviceMemory> memory_;
  const std::unique_ptr<DeviceQueue> queue_;  // dies before what it works on
};

absl::StatusOr<std::unique_ptr<DeviceRecording>> CanaryQueue::Record(
    absl::Span<const RecordedLaunch> launches) {
  auto recording = std::make_unique<CanaryRecording>();
  for (const RecordedLaunch& launch : launches) {
    CanaryRecording::Step& step = recording->steps.emplace_back();
    step.launch = launch;
    step.words.resize(ArgumentWords{nullptr, launch.buffers, launch.sizes}.count());
    ASSIGN_OR_RETURN(step.arguments, device_.Allocate(MemoryKind::kScratch, step.bytes()));
    RecordedLaunch apart = launch;
    apart.arguments = step.arguments->data();
    ASSIGN_OR_RETURN(step.recording, queue_->Record({apart}));
  }
  return recording;
}

absl::StatusOr<bool> CanaryQueue::Reserve(int64_t bytes) {
  if (memory_ != nullptr && memory_->bytes() >= bytes) return true;
  if (bytes > CanaryDevice::kMostBytes) return false;
  RETURN_IF_ERROR(queue_->Wait());
  memory_.reset();
  absl::StatusOr<std::unique_ptr<DeviceMemory>> memory =
      device_.Allocate(MemoryKind::kScratch, bytes);
  if (absl::IsResourceExhausted(memory.status())) return false;
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  return true;
}

absl::Status CanaryQueue::Run(CanaryRecording::Step& step) {
  // A library call's buffers were recorded with it.
  if (step.launch.call != nullptr) return queue_->Replay(*step.recording);
  RETURN_IF_ERROR(
      queue_->Copy(step.words.data(), step.launch.arguments, step.bytes(), CopyKind::kToHost));
  RETURN_IF_ERROR(queue_->Wait());
  const ArgumentWords arguments = {step.words.data(), step.launch.buffers, step.launch.sizes};
  std::vector<Region> regions;
  const int64_t bytes = Spread(arguments, &regions);
  ASSIGN_OR_RETURN(const bool spread, Reserve(bytes));
  if (!spread) regions.clear();
  std::vector<void*> buffers;  // as the launch has them
  for (int i = 0; i < arguments.buffers; ++i) buffers.push_back(Address(arguments, i));
  const std::vector<Gap> gaps = spread ? GapsOf(regions, bytes) : std::vector<Gap>();
  absl::Status status = RunOnCopies(step, regions, gaps);
  if (status.ok()) status = Inspect(buffers, regions, gaps);
  // The queue uses the words until then.
  absl::Status waited = queue_->Wait();
  return status.ok() ? waited : status;
}

absl::Status CanaryQueue::RunOnCopies(CanaryRecording::Step& step,
                                      const std::vector<Region>& regions,
                                      const std::vector<Gap>& gaps) {
  for (size_t i = 0; i < gaps.size(); ++i) {
    RETURN_IF_ERROR(queue_->Fill(At(gaps[i].offset), Canary(i), gaps[i].bytes));
  }
  const ArgumentWords arguments = {step.words.data(), step.launch.buffers, step.launch.sizes};
  std::vector<char*> copies;
  for (int i = 0; i < arguments.buffers; ++i) copies.push_back(Address(arguments, i));
  for (const Region& region : regions) {
    RETURN_IF_ERROR(
        queue_->Copy(At(region.offset), region.from, region.bytes, CopyKind::kOnDevice));
    for (int i = 0; i < arguments.buffers; ++i) {
      if (arguments.bytes(i) <= 0 || !region.Has(Address(arguments, i))) continue;
      copies[i] = At(region.offset + (Address(arguments, i) - region.from));
    }
  }
  for (int i = 0; i < arguments.buffers; ++i) {
    arguments.address(i) = reinterpret_cast<int64_t>(copies[i]);
  }
  RETURN_IF_ERROR(
      queue_->Copy(step.arguments->data(), step.words.data(), step.bytes(), CopyKind::kToDevice));
  RETURN_IF_ERROR(queue_->Replay(*step.recording));
  for (const Region& region : regions) {
    RETURN_IF_ERROR(
        queue_->Copy(region.from, At(region.offset), region.bytes, CopyKind::kOnDevice));
  }
  return absl::OkStatus();
}

absl::Status CanaryQueue::Inspect(const std::vector<void*>& arguments,
                                  const std::vector<Region>& regions,
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
    if (regions.empty()) return absl::DataLossError("the kernel writes to no argument");
    // The gap lies behind region i - 1 and before region i; the nearer one was left.
    const bool behind = i > 0 && (i == regions.size() || at < found[i].size() / 2);
    const Region& left = regions[behind ? i - 1 : i];
    const auto argument = absl::c_find_if(arguments, [&](void* b) { return left.Has(b); });
    // The first byte behind is 1 byte behind, as the last before is 1 byte before.
    const size_t distance = behind ? at + 1 : found[i].size() - at;
    return absl::DataLossError(
        absl::StrCat("the kernel writes ", distance, distance == 1 ? " byte " : " bytes ",
                     behind ? "behind" : "before", " argument ", argument - arguments.begin(),
                     ", which has ", left.bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceQueue>> CanaryDevice::NewQueue(int64_t scratch_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_.NewQueue(scratch_bytes));
  return std::make_unique<CanaryQueue>(&device_, std::move(queue));
}

}  // namespace athanor
