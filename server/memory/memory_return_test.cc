#include "server/memory/memory_return.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

void AwaitTrims(const MemoryReturn& memory, int64_t trims) {
  while (memory.trims() < trims) std::this_thread::sleep_for(milliseconds(1));
}

TEST(MemoryReturnTest, LittleIsNotWorthATrim) {
  int trims = 0;
  {
    MemoryReturn memory({.least_bytes = 100, .settle = milliseconds(0)}, [&] { ++trims; });
    for (int i = 0; i < 99; ++i) memory.Freed(1);
  }
  EXPECT_EQ(trims, 0);
}

// Also checks that memory freed during a trim counts for the next one.
TEST(MemoryReturnTest, DeletionsInARowAreOneTrim) {
  int trims = 0;
  {
    MemoryReturn* self = nullptr;
    MemoryReturn memory({.least_bytes = 100, .settle = milliseconds(0)}, [&] {
      if (++trims > 1) return;
      for (int i = 0; i < 300; ++i) self->Freed(1);
    });
    self = &memory;
    memory.Freed(100);
    AwaitTrims(memory, 2);
  }
  EXPECT_EQ(trims, 2);
}

TEST(MemoryReturnTest, FromManyThreadsAndEndsWithATrimOnItsWay) {
  MemoryReturn memory({.least_bytes = 10, .settle = milliseconds(1)}, [] {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) memory.Freed(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  AwaitTrims(memory, 1);
  memory.Freed(100);
}

}  // namespace
}  // namespace athanor
