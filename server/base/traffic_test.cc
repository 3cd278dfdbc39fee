#include "server/base/traffic.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(TrafficTest, CountsWhatRunsAndWhatStarted) {
  std::unique_ptr<Traffic> traffic = Traffic::Create().value();
  TrafficReader reader = TrafficReader::Open(traffic->fd()).value();
  EXPECT_EQ(reader.Read(), (TrafficState{0, 0}));
  {
    Traffic::Request one(traffic.get());
    EXPECT_EQ(reader.Read(), (TrafficState{1, 1}));
    Traffic::Request two(traffic.get());
    EXPECT_EQ(reader.Read(), (TrafficState{2, 2}));
    EXPECT_EQ(traffic->Read(), reader.Read());
  }
  EXPECT_EQ(reader.Read(), (TrafficState{2, 0}));
}

TEST(TrafficTest, ARequestThatThrowsIsNotCountedForever) {
  std::unique_ptr<Traffic> traffic = Traffic::Create().value();
  try {
    Traffic::Request request(traffic.get());
    throw std::runtime_error("out of memory, say");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(traffic->Read(), (TrafficState{1, 0}));
}

TEST(TrafficTest, WithoutAPageNothingIsCounted) {
  {
    Traffic::Request request(nullptr);
  }
  EXPECT_EQ(TrafficReader().Read(), TrafficState{});
}

TEST(TrafficTest, ManyThreadsLoseNothing) {
  constexpr int kThreads = 8, kRequests = 20'000;
  std::unique_ptr<Traffic> traffic = Traffic::Create().value();
  TrafficReader reader = TrafficReader::Open(traffic->fd()).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRequests; ++i) Traffic::Request request(traffic.get());
    });
  }
  uint64_t last = 0;
  do {
    const TrafficState now = reader.Read();
    ASSERT_GE(now.started, last);
    ASSERT_LE(now.running, kThreads);
    last = now.started;
  } while (last < uint64_t{kThreads} * kRequests);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reader.Read(), (TrafficState{uint64_t{kThreads} * kRequests, 0}));
}

TEST(TrafficTest, SeveralProcessesSeeOnePage) {
  std::unique_ptr<Traffic> traffic = Traffic::Create().value();
  TrafficReader reader = TrafficReader::Open(traffic->fd()).value();
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      // Reads only after the request below has begun.
      char go;
      while (read(done[0], &go, 1) < 0) {
      }
      _exit(reader.Read() == TrafficState{1, 1} ? 0 : 1);
    }
    children.push_back(pid);
  }
  Traffic::Request request(traffic.get());
  ASSERT_EQ(write(done[1], "123", 3), 3);
  for (pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  close(done[0]);
  close(done[1]);
}

TEST(TrafficTest, ChildrenCannotWriteThePage) {
  std::unique_ptr<Traffic> traffic = Traffic::Create().value();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, traffic->fd(), 0), MAP_FAILED);
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, traffic->fd(), 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_NE(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
  munmap(page, 4096);
  EXPECT_LT(write(traffic->fd(), "x", 1), 0);
  EXPECT_NE(ftruncate(traffic->fd(), 0), 0);
}

TEST(TrafficTest, AnotherFileIsRefused) {
  EXPECT_EQ(TrafficReader::Open(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const int fd = memfd_create("short", MFD_CLOEXEC);
  EXPECT_EQ(TrafficReader::Open(fd).status().code(), absl::StatusCode::kInvalidArgument);
  close(fd);
}

}  // namespace
}  // namespace athanor
