#include "deploy/bazel/libs/mutex.h"

#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

class Queue {
 public:
  void Push(int value) {
    MutexLock lock(mu_);
    items_.push_back(value);
    cv_.NotifyOne();
  }

  int Pop() {
    MutexLock lock(mu_);
    while (items_.empty()) cv_.Wait(lock);
    const int value = items_.front();
    items_.pop_front();
    return value;
  }

 private:
  Mutex mu_;
  CondVar cv_;
  std::deque<int> items_ ABSL_GUARDED_BY(mu_);
};

TEST(MutexTest, QueueKeepsOrderBetweenThreads) {
  Queue queue;
  std::thread producer([&queue] {
    for (int i = 0; i < 1000; ++i) queue.Push(i);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(queue.Pop(), i);
  producer.join();
}

TEST(MutexTest, ExcludesOtherThreads) {
  Mutex mu;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        MutexLock lock(mu);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

// Reports whether another thread can take `mu` now.
bool Free(Mutex& mu) {
  bool taken = false;
  std::thread([&] {
    if (mu.TryLock()) {
      taken = true;
      mu.Unlock();
    }
  }).join();
  return taken;
}

TEST(MutexTest, LockMayBeReleasedAndTakenAgain) {
  Mutex mu;
  MutexLock lock(mu);
  EXPECT_FALSE(Free(mu));
  lock.Unlock();
  EXPECT_TRUE(Free(mu));
  lock.Lock();
  EXPECT_FALSE(Free(mu));
}

TEST(CondVarTest, WaitEndsAtItsDeadlineWithTheLockHeld) {
  Mutex mu;
  CondVar cv;
  MutexLock lock(mu);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (cv.WaitUntil(lock, deadline)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
  EXPECT_FALSE(Free(mu));
}

}  // namespace
}  // namespace athanor
