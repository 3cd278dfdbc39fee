// A tensor's worth of address space whose contents repeat, so that 4 GiB cost a few MB of memory.
//
//   RepeatedBytes table = RepeatedBytes::Create(bytes, {row_bytes, 4}, drawn).value();
//   table.view()[i] == drawn[i % table.period_bytes() % drawn.size()]
//
// A memory file of a prime number of pages is mapped again and again. No stride is a multiple of
// the period, and neither are 2^31 and 2^32 elements: a wrong index, be it one row off or wrapped,
// lands on other values. Like GuardedBytes it ends where a page that cannot be touched begins, and
// writing to it is a SIGSEGV; what a forked process does to it nonetheless, its parent never sees.
#ifndef ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_
#define ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

// Read by any number of threads; unmapped on destruction.
class RepeatedBytes {
 public:
  // `strides`: of the tensor's axes, in bytes. `drawn` are its first elements, repeated within the
  // period; where they are all of them, nothing is repeated. RESOURCE_EXHAUSTED: no memory, address
  // space or mappings (their number is limited; one tensor of 2^40 bytes is within it).
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
  size_t reserved_;  // address space, the guard page with it
  size_t bytes_;
  size_t period_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_REPEATED_BYTES_H_
