#include "server/tuner/measure/walked_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/program/program.h"
#include "server/tuner/sandbox/sandbox.h"

namespace athanor {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
#ifndef MADV_COLLAPSE
constexpr int kCollapse = 25;  // in Linux's ABI, newer than these headers
#else
constexpr int kCollapse = MADV_COLLAPSE;
#endif

absl::Status Exhausted(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("addresses for ", bytes, " bytes of weights: ", std::strerror(errno)));
}

size_t Aligned(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Reserves `bytes` of aligned addresses, without memory.
char* Reserve(size_t bytes) {
  WidenAddressSpace(static_cast<int64_t>(bytes));
  const size_t wide = bytes + kHugePage;
  void* base = mmap(nullptr, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    WidenAddressSpace(-static_cast<int64_t>(bytes));
    return nullptr;
  }
  char* aligned = static_cast<char*>(base);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  aligned += before;
  if (before > 0) munmap(base, before);
  munmap(aligned + bytes, kHugePage - before);
  return aligned;
}

class WalkedRange : public DeviceMemory {
 public:
  WalkedRange(void* data, int64_t bytes) : DeviceMemory(data, bytes) {}
};

}  // namespace

absl::StatusOr<std::unique_ptr<WalkedMemory>> WalkedMemory::Create(absl::string_view contents) {
  char* pages = Reserve(kBytes);
  if (pages == nullptr) return Exhausted(kBytes);
  // Shared memory, so that it can be mapped again; not a file, whose size would be limited.
  if (mmap(pages, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return Exhausted(kBytes);
  }
  std::unique_ptr<WalkedMemory> memory(new WalkedMemory(pages));
  for (size_t done = 0; done < kBytes && !contents.empty();) {
    const size_t n = std::min(contents.size(), kBytes - done);
    std::memcpy(pages + done, contents.data(), n);
    done += n;
  }
  madvise(pages, kBytes, kCollapse);  // an older system keeps small pages
  return memory;
}

WalkedMemory::~WalkedMemory() {
  ranges_.push_back({pages_, kBytes});
  for (const Range& range : ranges_) {
    munmap(range.base, range.bytes);
    WidenAddressSpace(-static_cast<int64_t>(range.bytes));
  }
}

absl::StatusOr<char*> WalkedMemory::Map(size_t bytes) {
  const size_t used = std::max(Aligned(bytes), kHugePage);
  char* base = Reserve(used);
  if (base == nullptr) return Exhausted(bytes);
  ranges_.push_back({base, used});
  for (size_t done = 0; done < used;) {
    const size_t n = std::min(kBytes - next_, used - done);
    // With an old size of 0, mremap(2) makes another mapping of the same pages.
    if (mremap(pages_ + next_, 0, n, MREMAP_MAYMOVE | MREMAP_FIXED, base + done) == MAP_FAILED) {
      return Exhausted(bytes);
    }
    done += n;
    next_ = (next_ + n) % kBytes;
  }
  return base;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> WalkedDevice::Allocate(MemoryKind kind,
                                                                     int64_t bytes) {
  if (kind != MemoryKind::kPrepared) return device_.Allocate(kind, bytes);
  ASSIGN_OR_RETURN(char* range, memory_.Map(static_cast<size_t>(bytes)));
  return std::make_unique<WalkedRange>(range, bytes);
}

std::optional<std::string> WalkedDType(const std::vector<const v1::Plan*>& plans) {
  std::string common;
  for (const v1::Plan* plan : plans) {
    const absl::StatusOr<Program> program = BuildProgram(*plan);
    if (!program.ok()) return std::nullopt;
    for (const Program::Fixed& fixed : program->fixed) {
      if (fixed.bytes < PreparedPool::kLargeBlock) continue;
      const std::string& dtype = program->buffers[fixed.buffer].dtype;
      const bool is_float = dtype == "f16" || dtype == "bf16" || dtype == "f32" || dtype == "f64";
      if (!is_float || (!common.empty() && dtype != common)) return std::nullopt;
      common = dtype;
    }
  }
  return common;
}

}  // namespace athanor
