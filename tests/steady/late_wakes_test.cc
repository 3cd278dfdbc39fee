// Runs under `late_wakes`, which starts it and sometimes pauses a thread after it wakes another:
// the woken thread sees that the other has not yet done its next step.
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#include "deploy/bazel/libs/mutex.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr int kThreads = 100;  // each may be late
constexpr int kRounds = 20;

// Returns whether in any round `wait` returned before the statement after `wake` had run. Other
// threads call `wake`.
template <typename Wake, typename Wait>
bool SeenLate(Wake wake, Wait wait) {
  bool late = false;
  for (int thread = 0; thread < kThreads && !late; ++thread) {
    std::atomic<int> turn = 0, done = 0;
    std::thread waker([&] {
      for (int round = 1; round <= kRounds; ++round) {
        while (turn < round) std::this_thread::yield();
        wake();
        done = round;
      }
    });
    for (int round = 1; round <= kRounds; ++round) {
      turn = round;
      wait();
      late |= done < round;
      while (done < round) std::this_thread::yield();
    }
    waker.join();
  }
  return late;
}

TEST(LateWakesTest, ItIsLoaded) {
  const char* loaded = std::getenv("LD_PRELOAD");
  ASSERT_NE(loaded, nullptr) << "run it with late_wakes";
  EXPECT_NE(std::string(loaded).find("late_wakes.so"), std::string::npos);
}

TEST(LateWakesTest, AConditionIsNotified) {
  Mutex mu;
  CondVar cv;
  bool ready = false;
  EXPECT_TRUE(SeenLate(
      [&] {
        MutexLock lock(mu);
        ready = true;
        cv.NotifyAll();
      },
      [&] {
        MutexLock lock(mu);
        while (!ready) cv.Wait(lock);
        ready = false;
      }));
}

TEST(LateWakesTest, ALockIsGivenBack) {
  Mutex mu;
  bool ready = false;
  EXPECT_TRUE(SeenLate(
      [&] {
        MutexLock lock(mu);
        ready = true;
      },
      [&] {
        for (bool seen = false; !seen;) {
          std::this_thread::yield();
          MutexLock lock(mu);
          seen = std::exchange(ready, false);
        }
      }));
}

TEST(LateWakesTest, AFutexIsWoken) {
  std::atomic<int> ready = 0;
  EXPECT_TRUE(SeenLate(
      [&] {
        ready = 1;
        ready.notify_all();
      },
      [&] {
        ready.wait(0);
        ready = 0;
      }));
}

TEST(LateWakesTest, BytesAreSent) {
  int pair[2], event = eventfd(0, 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  ASSERT_GE(event, 0);
  char byte = 'x';
  uint64_t count = 1;
  const auto read_byte = [&] { EXPECT_EQ(read(pair[1], &byte, 1), 1); };
  const auto read_event = [&] { EXPECT_EQ(read(event, &count, sizeof(count)), 8); };
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  EXPECT_TRUE(SeenLate([&] { (void)!write(pair[0], &byte, 1); }, read_byte));
  EXPECT_TRUE(SeenLate([&] { (void)!send(pair[0], &byte, 1, 0); }, read_byte));
  EXPECT_TRUE(SeenLate([&] { (void)!sendmsg(pair[0], &message, 0); }, read_byte));
  EXPECT_TRUE(SeenLate([&] { (void)!write(event, &count, sizeof(count)); }, read_event));
  EXPECT_TRUE(SeenLate([&] { eventfd_write(event, 1); }, read_event));
  for (const int fd : {pair[0], pair[1], event}) close(fd);
}

}  // namespace
}  // namespace athanor
