#include "runtime/memory/committed_memory.h"

#include <algorithm>
#include <iterator>

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::Status CommittedMemory::Allocate(Device& device, int64_t bytes) {
  const bool later = device.CommitsLater(kind_, bytes);
  if (!later) RETURN_IF_ERROR(charge_.Raise(bytes));
  ASSIGN_OR_RETURN(memory_, device.Allocate(kind_, bytes));
  if (!later) return absl::OkStatus();
  const int64_t granule = memory_->granularity();
  granules_.resize((bytes + granule - 1) / granule);
  return absl::OkStatus();
}

void CommittedMemory::ForUncommitted(
    absl::FunctionRef<void(Range)> ranges,
    absl::FunctionRef<void(int64_t first, int64_t end)> use) const {
  const int64_t granule = memory_->granularity();
  // Ranges may overlap, as buffers do that share memory at different times. Sorted by offset, each
  // granule comes once.
  int64_t next = 0;  // granules below it were seen
  ranges([&](int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    const int64_t end = (offset + bytes + granule - 1) / granule;
    next = std::max(next, offset / granule);
    while (next < end) {
      const int64_t first = next++;
      if (granules_[first] == Granule::kCommitted) continue;
      while (next < end && granules_[next] != Granule::kCommitted) ++next;
      use(first, next);
    }
  });
}

absl::Status CommittedMemory::Use(absl::FunctionRef<void(Range)> ranges) {
  if (granules_.empty()) return absl::OkStatus();
  const int64_t granule = memory_->granularity();
  const auto begin = granules_.begin();
  int64_t wanted = 0, more = 0;
  ForUncommitted(ranges, [&](int64_t first, int64_t end) {
    wanted += end - first;
    more += std::count(begin + first, begin + end, Granule::kNone) * granule;
  });
  if (wanted == 0) return absl::OkStatus();
  RETURN_IF_ERROR(charge_.Raise(charge_.bytes() + more));
  absl::Status status;
  ForUncommitted(ranges, [&](int64_t first, int64_t end) {
    const int64_t bytes = std::min(end * granule, memory_->bytes()) - first * granule;
    if (status.ok()) status = memory_->Commit(first * granule, bytes);
  });
  ForUncommitted(ranges, [&](int64_t first, int64_t end) {
    if (status.ok()) {
      held_ += std::count(begin + first, begin + end, Granule::kNone);
      std::fill(begin + first, begin + end, Granule::kCommitted);
    } else {
      Decommit(first, end);
    }
  });
  if (!status.ok()) charge_.Lower(held_ * granule);
  return status;
}

void CommittedMemory::Decommit(int64_t first, int64_t end) {
  const int64_t granule = memory_->granularity();
  const auto decommit = [&](int64_t from, int64_t to) {
    return memory_->Decommit(from * granule,
                             std::min(to * granule, memory_->bytes()) - from * granule);
  };
  const auto begin = granules_.begin();
  held_ -= end - first - std::count(begin + first, begin + end, Granule::kNone);
  std::fill(begin + first, begin + end, Granule::kNone);
  if (decommit(first, end) == 0) return;
  // Asks one by one which those are.
  for (int64_t g = first; g < end; ++g) {
    if (decommit(g, g + 1) == 0) continue;
    granules_[g] = Granule::kStale;
    ++held_;
  }
}

void CommittedMemory::Release(int64_t first, int64_t end) {
  if (first == end) return;
  Decommit(first, end);
  charge_.Lower(held_ * granule());
}

}  // namespace athanor
