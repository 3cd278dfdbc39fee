#include "runtime/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace athanor {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// Below this size, rounding up to huge pages wastes more than it gains.
constexpr int64_t kHugeArena = 4 * kHugePage;

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

}  // namespace

absl::StatusOr<Arena> Arena::Reserve(int64_t bytes) {
  const bool huge = bytes >= kHugeArena;
  const int64_t page = huge ? kHugePage : PageBytes();
  const auto exhausted = [&](absl::string_view why) {
    return absl::ResourceExhaustedError(absl::StrCat("arena of ", bytes, " bytes: ", why));
  };
  if (bytes > std::numeric_limits<int64_t>::max() - 2 * page) {
    return exhausted("more than the address space");
  }
  const int64_t rounded = std::max(page, (bytes + page - 1) / page * page);
  // A further page leaves room to begin at a multiple of its size, as huge pages must.
  const int64_t mapped = huge ? rounded + page : rounded;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return exhausted(std::strerror(errno));

  Arena arena;
  arena.mapping_ = static_cast<char*>(mapping);
  arena.mapped_bytes_ = mapped;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  arena.data_ = arena.mapping_ + (page - address % page) % page;
  arena.bytes_ = bytes;
  arena.granularity_ = page;
  // Advice only: a system without huge pages keeps small ones.
  if (huge) madvise(arena.data_, rounded, MADV_HUGEPAGE);
  return arena;
}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  granularity_ = other.granularity_;
  return *this;
}

void Arena::Unmap() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

void Arena::Decommit() { madvise(mapping_, mapped_bytes_, MADV_DONTNEED); }

void Arena::Decommit(int64_t offset, int64_t bytes) {
  const int64_t page = PageBytes();
  const int64_t first = (offset + page - 1) / page * page;
  // The last page holds nothing behind the end, so it goes with what is before it.
  const int64_t end =
      offset + bytes == bytes_ ? (bytes_ + page - 1) / page * page : (offset + bytes) / page * page;
  if (end > first) madvise(data_ + first, end - first, MADV_DONTNEED);
}

}  // namespace athanor
