// Memory of a tensor in which a read or write beside it is found.
#ifndef ATHANOR_TESTS_CONFORMANCE_GUARDED_H_
#define ATHANOR_TESTS_CONFORMANCE_GUARDED_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "compiler/ir/value/tensor.h"

namespace athanor {

// Holds a tensor's bytes at an odd address, at most one byte before a page that may not be touched,
// and after a page filled with a pattern.
class Guarded {
 public:
  static constexpr char kPattern = 0x5a;

  explicit Guarded(const Tensor& t)
      : size_(t.bytes.size()), mapped_((size_ + 1 + kPage - 1) / kPage * kPage + 2 * kPage) {
    void* memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    memory_ = static_cast<char*>(memory);
    std::memset(memory_, kPattern, mapped_);
    char* end = memory_ + mapped_ - kPage;
    if (mprotect(end, kPage, PROT_NONE) != 0) std::abort();
    data_ = end - size_;
    if (reinterpret_cast<uintptr_t>(data_) % 2 == 0) --data_;
    std::memcpy(data_, t.bytes.data(), size_);
  }
  ~Guarded() { munmap(memory_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* data() const { return data_; }
  bool Intact() const {
    auto intact = [](char c) { return c == kPattern; };
    return std::all_of(memory_, data_, intact) &&
           std::all_of(data_ + size_, memory_ + mapped_ - kPage, intact);
  }

 private:
  static constexpr size_t kPage = 4096;

  size_t size_, mapped_;
  char* memory_;
  char* data_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_CONFORMANCE_GUARDED_H_
