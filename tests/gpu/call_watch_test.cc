#include "tests/gpu/call_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(CallWatchTest, CountsCallsOfThisThreadAndThoseItStarts) {
  // The watch is never destroyed: its filter is final.
  CallWatch* const watch = CallWatch::Start().value().release();
  watch->Take();
  EXPECT_EQ(watch->Take().count(SYS_getppid), 0);
  for (int i = 0; i < 7; ++i) syscall(SYS_getppid);
  EXPECT_EQ(watch->Take()[SYS_getppid], 7);
  std::thread([] {
    for (int i = 0; i < 5; ++i) EXPECT_GT(syscall(SYS_getppid), 0);
  }).join();
  EXPECT_EQ(watch->Take()[SYS_getppid], 5);
  EXPECT_EQ(watch->Take().count(SYS_getppid), 0);
}

}  // namespace
}  // namespace athanor
