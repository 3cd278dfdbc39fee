#include "runtime/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

CudaPointer AddressOf(const DeviceMemory& memory) {
  return reinterpret_cast<CudaPointer>(memory.data());
}

// Adds to an error the device, what was wanted and what is free.
absl::Status Refused(const CudaDevice& device, int64_t bytes, const absl::Status& status) {
  if (!device.loss().ok()) return status;
  std::string text =
      absl::StrCat("device ", device.full_name(), ": ", bytes, " bytes: ", status.message());
  if (const absl::StatusOr<int64_t> free = device.FreeBytes(); free.ok()) {
    absl::StrAppend(&text, "; ", *free, " of ", device.properties().memory_bytes, " are free");
  }
  return absl::Status(status.code(), text);
}

// The driver fills on its null stream, for which no stream of ours waits.
absl::Status FillWithZeros(const CudaDevice& device, CudaPointer to, int64_t bytes) {
  return device.Check(device.driver().FillBytes(to, 0, bytes, nullptr), "cuMemsetD8Async");
}
absl::Status WaitForFills(const CudaDevice& device) {
  return device.Check(device.driver().StreamSynchronize(nullptr), "cuStreamSynchronize");
}

class WholeMemory : public DeviceMemory {
 public:
  WholeMemory(const CudaDevice& device, CudaPointer pointer, int64_t bytes)
      : DeviceMemory(reinterpret_cast<void*>(pointer), bytes), device_(device) {}
  ~WholeMemory() override {
    // A lost device has no memory to give back.
    if (!device_.Enter().ok()) return;
    device_.Check(device_.driver().MemFree(AddressOf(*this)), "cuMemFree").IgnoreError();
  }

 private:
  const CudaDevice& device_;
};

// Has an allocation of its own for each granule, since the driver unmaps whole allocations only.
class ReservedMemory : public DeviceMemory {
 public:
  ReservedMemory(const CudaDevice& device, CudaPointer base, int64_t bytes, int64_t granules)
      : DeviceMemory(reinterpret_cast<void*>(base), bytes),
        device_(device),
        cuda_(device.driver()),
        granule_(device.properties().granule),
        granules_(granules) {}

  ~ReservedMemory() override {
    if (!device_.Enter().ok()) return;
    Decommit(0, bytes());
    device_
        .Check(cuda_.AddressFree(AddressOf(*this), granules_.size() * granule_), "cuMemAddressFree")
        .IgnoreError();
  }

  int64_t granularity() const override { return granule_; }

  absl::Status Commit(int64_t offset, int64_t bytes) override {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(device_.Enter());
    const int64_t first = offset / granule_, end = (offset + bytes - 1) / granule_ + 1;
    const int64_t missing =
        std::count(granules_.begin() + first, granules_.begin() + end, Granule::kNone);
    std::vector<Run> made;
    absl::Status status = Map(first, end, &made);
    if (status.ok()) status = Clear(made);
    // Fills must not meet unmapped memory.
    if (!made.empty()) {
      const absl::Status waited = WaitForFills(device_);
      if (status.ok()) status = waited;
    }
    for (const Run& run : made) {
      for (int64_t g = run.first; g < run.end; ++g) {
        granules_[g] = status.ok() ? Granule::kCommitted : Unmapped(g);
      }
    }
    return status.ok() ? status : Refused(device_, missing * granule_, status);
  }

  int64_t Decommit(int64_t offset, int64_t bytes) override {
    // A lost device has no memory to give back.
    if (!device_.Enter().ok()) return 0;
    const int64_t first = (offset + granule_ - 1) / granule_;
    // The last granule holds nothing behind the end, so it goes with what is before it.
    const int64_t end = offset + bytes == this->bytes() ? static_cast<int64_t>(granules_.size())
                                                        : (offset + bytes) / granule_;
    int64_t kept = 0;
    for (int64_t g = first; g < end; ++g) {
      if (granules_[g] != Granule::kNone) granules_[g] = Unmapped(g);
      if (granules_[g] != Granule::kNone) kept += granule_;
    }
    return kept;
  }

 private:
  // A granule without memory; one that is committed; one that could not be unmapped, which has what
  // was left there.
  enum class Granule : uint8_t { kNone, kCommitted, kStale };
  struct Run {
    int64_t first, end;  // granules
  };

  CudaPointer At(int64_t granule) const { return AddressOf(*this) + granule * granule_; }

  // Maps those of the granules [first, end) that have no memory; `made` receives all that were not
  // committed, also if it fails.
  absl::Status Map(int64_t first, int64_t end, std::vector<Run>* made) {
    for (int64_t g = first; g < end; ++g) {
      if (granules_[g] == Granule::kCommitted) continue;
      absl::Status released;
      if (granules_[g] == Granule::kNone) RETURN_IF_ERROR(MapOne(g, &released));
      if (made->empty() || made->back().end != g) made->push_back({g, g});
      ++made->back().end;
      RETURN_IF_ERROR(released);
    }
    return absl::OkStatus();
  }

  absl::Status MapOne(int64_t granule, absl::Status* released) {
    const CudaAllocationProperties properties = {.location = {.id = device_.handle()}};
    CudaAllocation allocation = 0;
    RETURN_IF_ERROR(
        device_.Check(cuda_.MemCreate(&allocation, granule_, &properties, 0), "cuMemCreate"));
    const absl::Status mapped =
        device_.Check(cuda_.MemMap(At(granule), granule_, 0, allocation, 0), "cuMemMap");
    // From here on the mapping alone holds the allocation.
    *released = device_.Check(cuda_.MemRelease(allocation), "cuMemRelease");
    return mapped;
  }

  // Makes new granules accessible and queues their fills: the driver gives what others left there.
  absl::Status Clear(const std::vector<Run>& made) {
    const CudaAccess access = {.location = {.id = device_.handle()}};
    for (const Run& run : made) {
      const int64_t bytes = (run.end - run.first) * granule_;
      RETURN_IF_ERROR(
          device_.Check(cuda_.MemSetAccess(At(run.first), bytes, &access, 1), "cuMemSetAccess"));
      RETURN_IF_ERROR(FillWithZeros(device_, At(run.first), bytes));
    }
    return absl::OkStatus();
  }

  // Unmaps a granule, and returns what it is then.
  Granule Unmapped(int64_t granule) {
    const absl::Status status = device_.Check(cuda_.MemUnmap(At(granule), granule_), "cuMemUnmap");
    return status.ok() ? Granule::kNone : Granule::kStale;
  }

  const CudaDevice& device_;
  const CudaDriver& cuda_;
  const int64_t granule_;
  std::vector<Granule> granules_;
};

// Memory of the host that the GPU copies from and to by itself, while the host goes on.
class PinnedMemory : public DeviceMemory {
 public:
  PinnedMemory(const CudaDevice& device, void* data, int64_t bytes)
      : DeviceMemory(data, bytes), device_(device) {}
  ~PinnedMemory() override {
    // The host's memory is there after a loss, too. If a lost device's driver refuses, it stays
    // until the process ends.
    device_.Enter().IgnoreError();
    device_.driver().MemFreeHost(data());
  }

 private:
  const CudaDevice& device_;
};

absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocatePinned(const CudaDevice& device,
                                                             int64_t bytes) {
  void* data = nullptr;
  const size_t taken = std::max<int64_t>(bytes, 1);
  if (absl::Status s = device.Check(device.driver().MemHostAlloc(&data, taken, kCudaHostPortable),
                                    "cuMemHostAlloc");
      !s.ok()) {
    if (!device.loss().ok()) return s;
    return absl::Status(s.code(), absl::StrCat("device ", device.full_name(), ": ", bytes,
                                               " bytes of the host: ", s.message()));
  }
  std::memset(data, 0, taken);
  return std::make_unique<PinnedMemory>(device, data, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateWhole(const CudaDevice& device,
                                                            int64_t bytes) {
  CudaPointer pointer = 0;
  const int64_t taken = std::max<int64_t>(bytes, 1);
  if (absl::Status s = device.Check(device.driver().MemAlloc(&pointer, taken), "cuMemAlloc");
      !s.ok()) {
    return Refused(device, bytes, s);
  }
  auto memory = std::make_unique<WholeMemory>(device, pointer, bytes);
  RETURN_IF_ERROR(FillWithZeros(device, pointer, taken));
  RETURN_IF_ERROR(WaitForFills(device));
  return memory;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> Reserve(const CudaDevice& device, int64_t bytes) {
  const int64_t granule = device.properties().granule, granules = (bytes - 1) / granule + 1;
  int64_t reserved = 0;
  CudaPointer base = 0;
  const absl::Status status =
      __builtin_mul_overflow(granules, granule, &reserved)
          ? absl::ResourceExhaustedError("more than the address space")
          : device.Check(device.driver().AddressReserve(&base, reserved, 0, 0, 0),
                         "cuMemAddressReserve");
  if (!status.ok()) return Refused(device, bytes, status);
  return std::make_unique<ReservedMemory>(device, base, bytes, granules);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateCudaMemory(const CudaDevice& device,
                                                                 MemoryKind kind, int64_t bytes) {
  RETURN_IF_ERROR(device.Enter());
  if (kind == MemoryKind::kStaging) return AllocatePinned(device, bytes);
  return device.CommitsLater(kind, bytes) ? Reserve(device, bytes) : AllocateWhole(device, bytes);
}

}  // namespace athanor
