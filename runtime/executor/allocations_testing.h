// Counts what a program allocates by operator new, which it replaces: for one source file of a test
// that has a program of its own.
//
//   const int64_t before = allocations;  ...;  EXPECT_EQ(allocations - before, 0);
#ifndef ATHANOR_RUNTIME_EXECUTOR_ALLOCATIONS_TESTING_H_
#define ATHANOR_RUNTIME_EXECUTOR_ALLOCATIONS_TESTING_H_

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace athanor {
inline std::atomic<int64_t> allocations{0};
}  // namespace athanor

void* operator new(size_t bytes) {
  ++athanor::allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

#endif  // ATHANOR_RUNTIME_EXECUTOR_ALLOCATIONS_TESTING_H_
