// Address space for a tensor whose contents repeat, so that 4 GiB cost a few MB of memory.
//
//   RepeatedBytes table = RepeatedBytes::Create(bytes, {row_bytes, 4}, drawn).value();
//   table.view()[i] == drawn[i % table.period_bytes() % drawn.size()]
//
// Maps a memory file of a prime number of pages again and again. Neither a stride nor 2^31 or 2^32
// elements are a multiple of the period: a wrong index, be it one row off or wrapped, reads other
// values. Like GuardedBytes it ends at an inaccessible page, and writing to it raises SIGSEGV. If a
// forked process writes to it nonetheless, its parent does not see that.
#ifndef ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_
#define ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

// Readable by any number of threads; unmapped on destruction.
class RepeatedBytes {
 public:
  // `strides` are those of the tensor's axes, in bytes. `drawn` are its first elements, repeated
  // within the period; if they are the whole tensor, nothing is repeated. Returns
  // RESOURCE_EXHAUSTED if memory, address space or mappings run out (the number of mappings is
  // limited, but suffices for a tensor of 2^40 bytes).
  static absl::StatusOr<RepeatedBytes> Create(size_t bytes, absl::Span<const int64_t> strides,
                                              absl::string_view drawn);
  RepeatedBytes(RepeatedBytes&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        reserved_(other.reserved_),
        bytes_(other.bytes_),
        period_(other.period_) {}
  RepeatedBytes& operator=(RepeatedBytes&&) = delete;
  ~RepeatedBytes();

  absl::string_view view() const { return {base_ + reserved_ - GuardBytes() - bytes_, bytes_}; }
  size_t period_bytes() const { return period_; }

 private:
  RepeatedBytes(char* base, size_t reserved, size_t bytes, size_t period)
      : base_(base), reserved_(reserved), bytes_(bytes), period_(period) {}
  static size_t GuardBytes();
  static absl::Status Map(char* base, size_t used, size_t period, size_t offset,
                          absl::string_view drawn);

  char* base_;
  size_t reserved_;  // address space, including the guard page
  size_t bytes_;
  size_t period_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_
