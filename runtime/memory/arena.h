// Address space reserved at its maximum size and committed page by page on use: the memory that an
// execution context computes in.
//
//   absl::StatusOr<Arena> arena = Arena::Reserve(1 << 30);
//   char* base = arena->data();  // touching a page commits it
#ifndef ATHANOR_RUNTIME_MEMORY_ARENA_H_
#define ATHANOR_RUNTIME_MEMORY_ARENA_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace athanor {

// Movable, not copyable; unmapped on destruction. Not thread-safe, but several threads may use
// disjoint ranges of its memory.
class Arena {
 public:
  // Returns page-aligned memory that reads as zero until it is written. Large arenas are aligned to
  // huge pages and ask for them. RESOURCE_EXHAUSTED if the address space is used up. REQUIRES:
  // bytes >= 0.
  static absl::StatusOr<Arena> Reserve(int64_t bytes);

  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;
  ~Arena() { Unmap(); }

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Bytes of a page: the least that touching a byte commits.
  int64_t granularity() const { return granularity_; }

  // Gives all pages back to the system; everything reads as zero again.
  void Decommit();
  // Does the same for the system's pages that lie entirely in [offset, offset + bytes).
  void Decommit(int64_t offset, int64_t bytes);

 private:
  Arena() = default;
  void Unmap();

  char* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t granularity_ = 1;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_ARENA_H_
