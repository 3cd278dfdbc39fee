// The keeper with jobs that a test does in the forked process.
#include "server/tuner/worker/keeper.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_channel.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using std::chrono::milliseconds;
using Drawn = absl::FunctionRef<void()>;

void Sleep(int64_t ms) { std::this_thread::sleep_for(milliseconds(ms)); }

// Touches so many MiB, which stay.
void Hold(int64_t mib) {
  static auto* const held = new std::vector<std::string>;
  held->emplace_back(mib << 20, 'x');
}

// Writes a reply into each pipe of this process that can be written.
void Forge(const internal::WorkerReply& reply) {
  const std::string message = reply.SerializeAsString();
  const auto size = static_cast<uint32_t>(message.size());
  std::string frame(reinterpret_cast<const char*>(&size), sizeof(size));
  frame += message;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat info{};
    if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) continue;
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY) continue;
    EXPECT_EQ(write(fd, frame.data(), frame.size()), static_cast<ssize_t>(frame.size()));
  }
}

internal::WorkerReply Reply(const std::string& message = "") {
  internal::WorkerReply reply;
  reply.set_message(message);
  return reply;
}

class KeeperTest : public ::testing::Test {
 protected:
  void Keep(std::function<absl::Status()> begin,
            std::function<internal::WorkerReply(const internal::WorkerJob&, Drawn)> serve) {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    keeper_ = std::thread([this, begin = std::move(begin), serve = std::move(serve)] {
      EXPECT_EQ(KeepWorker({.socket = ends_[1], .begin = begin, .serve = serve}), 0);
    });
  }
  ~KeeperTest() override {
    shutdown(ends_[0], SHUT_RDWR);
    keeper_.join();
    for (const int end : ends_) close(end);
  }
  internal::WorkerReply Do(const std::string& what, int64_t timeout_ms = 5000,
                           int64_t memory_bytes = int64_t{1} << 30) {
    internal::WorkerJob job;
    job.set_what(what);
    job.set_timeout_ms(timeout_ms);
    job.set_memory_bytes(memory_bytes);
    job.set_number(++number_);
    EXPECT_TRUE(WriteFrame(ends_[0], job, {}).ok());
    internal::WorkerReply reply;
    EXPECT_TRUE(reply.ParseFromString(ReadFrame(ends_[0], kMaxTunerFrame, {}).value()));
    EXPECT_EQ(reply.number(), number_);
    return reply;
  }
  static Code CodeOf(const internal::WorkerReply& reply) { return static_cast<Code>(reply.code()); }

  int ends_[2] = {-1, -1};
  std::thread keeper_;
  uint64_t number_ = uint64_t{1} << 63;
};

const auto kBegins = [] { return absl::OkStatus(); };

TEST_F(KeeperTest, TimeOfDrawingIsNotTheKernels) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    if (absl::StrContains(job.what(), "draws long")) Sleep(1500);
    if (absl::StrContains(job.what(), "draws")) Sleep(700);
    drawn();
    if (absl::StrContains(job.what(), "runs long")) Sleep(2500);
    if (absl::StrContains(job.what(), "runs")) Sleep(1500);
    return Reply(absl::StrCat(getpid()));
  });
  const internal::WorkerReply both = Do("a kernel that draws and runs", 2000);
  EXPECT_EQ(CodeOf(both), Code::kOk) << both.message();
  const internal::WorkerReply late = Do("a kernel that runs long", 2000);
  EXPECT_EQ(CodeOf(late), Code::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "a kernel that runs long still ran after 2000 ms");
  // Says nothing of the kernel. Together they may take half as long again as the kernel alone.
  const internal::WorkerReply never = Do("a kernel that draws long", 2000);
  EXPECT_EQ(CodeOf(never), Code::kUnavailable);
  EXPECT_EQ(never.message(),
            "drawing the inputs of a kernel that draws long still ran after 1000 ms");
  EXPECT_EQ(CodeOf(Do("a kernel", 2000)), Code::kOk);
}

TEST_F(KeeperTest, MemoryOfDrawingIsNotTheKernels) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    if (absl::StrContains(job.what(), "draws much")) Hold(400);
    Hold(96);
    Sleep(200);
    drawn();
    if (absl::StrContains(job.what(), "takes much")) Hold(400);
    Hold(96);
    Sleep(200);
    return Reply();
  });
  constexpr int64_t kLimit = int64_t{160} << 20;
  const internal::WorkerReply both = Do("a kernel", 5000, kLimit);
  EXPECT_EQ(CodeOf(both), Code::kOk) << both.message();
  const internal::WorkerReply much = Do("a kernel that takes much", 5000, kLimit);
  EXPECT_EQ(CodeOf(much), Code::kResourceExhausted);
  EXPECT_THAT(much.message(), HasSubstr("a kernel that takes much needs more than the 167772160"));
  const internal::WorkerReply drawn = Do("a kernel that draws much", 5000, kLimit);
  EXPECT_EQ(CodeOf(drawn), Code::kUnavailable);
}

TEST_F(KeeperTest, AContextThatIsNotMadeIsNoVerdict) {
  Keep(
      [] {
        // In each process anew.
        return absl::ResourceExhaustedError("no room for a context");
      },
      [](const internal::WorkerJob&, Drawn) { return Reply(); });
  for (int i = 0; i < 2; ++i) {
    const internal::WorkerReply reply = Do("a kernel");
    EXPECT_EQ(CodeOf(reply), Code::kUnavailable);
    EXPECT_EQ(reply.message(), "no room for a context");
  }
}

TEST_F(KeeperTest, AContextThatTakesTooLongOrEndsItsProcessIsNoVerdict) {
  Keep([]() -> absl::Status { _exit(7); },
       [](const internal::WorkerJob&, Drawn) { return Reply(); });
  const internal::WorkerReply reply = Do("a kernel");
  EXPECT_EQ(CodeOf(reply), Code::kUnavailable);
  EXPECT_THAT(reply.message(), HasSubstr("a device worker that begins ended its process"));
}

TEST_F(KeeperTest, AGpuThatDoesNotServeIsNamed) {
  Keep([] { return absl::FailedPreconditionError("cuda:7: there is no such GPU"); },
       [](const internal::WorkerJob&, Drawn) { return Reply(); });
  const internal::WorkerReply reply = Do("a kernel");
  EXPECT_EQ(CodeOf(reply), Code::kFailedPrecondition);
  EXPECT_EQ(reply.message(), "cuda:7: there is no such GPU");
}

TEST_F(KeeperTest, AForgedReplyCostsTheProcess) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    internal::WorkerReply forged = Reply("forged");
    // Forges the number of the job before, of the next, of none.
    if (absl::StrContains(job.what(), "before")) forged.set_number(job.number() - 1);
    if (absl::StrContains(job.what(), "next")) forged.set_number(job.number() + 1);
    drawn();
    if (absl::StrContains(job.what(), "forges")) Forge(forged);
    return Reply(absl::StrCat(getpid()));
  });
  std::string process = Do("a kernel").message();
  EXPECT_EQ(Do("a kernel").message(), process);
  for (const char* which : {"before", "next", "none"}) {
    const internal::WorkerReply reply = Do(absl::StrCat("a kernel that forges ", which));
    EXPECT_EQ(CodeOf(reply), Code::kInternal);
    EXPECT_THAT(reply.message(), HasSubstr("the device worker's reply is to another job"));
    const internal::WorkerReply next = Do("a kernel");
    EXPECT_EQ(CodeOf(next), Code::kOk) << next.message();
    EXPECT_NE(next.message(), process);
    process = next.message();
  }
}

TEST_F(KeeperTest, WordsBetweenJobsCostTheProcessAndNoJob) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    drawn();
    if (absl::StrContains(job.what(), "speaks later")) {
      std::thread([] {
        Sleep(100);
        Forge(Reply("forged"));
      }).detach();
    }
    return Reply(absl::StrCat(getpid()));
  });
  const std::string process = Do("a kernel that speaks later").message();
  Sleep(600);
  const internal::WorkerReply next = Do("a kernel");
  EXPECT_EQ(CodeOf(next), Code::kOk) << next.message();
  EXPECT_NE(next.message(), process);
}

TEST_F(KeeperTest, WhatHasNotBegunToRunDoesNotSucceed) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    if (!absl::StrContains(job.what(), "never")) drawn();
    internal::WorkerReply reply = Reply(absl::StrCat(getpid()));
    if (absl::StrContains(job.what(), "fails")) reply.set_code(static_cast<int>(Code::kNotFound));
    return reply;
  });
  const std::string process = Do("a kernel").message();
  // An error before it is told as it is.
  const internal::WorkerReply fails = Do("a kernel that never runs and fails");
  EXPECT_EQ(CodeOf(fails), Code::kNotFound);
  EXPECT_EQ(fails.message(), process);
  const internal::WorkerReply never = Do("a kernel that never runs");
  EXPECT_EQ(CodeOf(never), Code::kUnavailable);
  EXPECT_EQ(never.message(), "a kernel that never runs: it ended before it began to run");
  const internal::WorkerReply next = Do("a kernel");
  EXPECT_EQ(CodeOf(next), Code::kOk) << next.message();
  EXPECT_NE(next.message(), process);
}

TEST_F(KeeperTest, AJobBeginsToRunOnce) {
  Keep(kBegins, [](const internal::WorkerJob& job, Drawn drawn) {
    drawn();
    if (absl::StrContains(job.what(), "twice")) drawn();
    return Reply();
  });
  EXPECT_EQ(CodeOf(Do("a kernel that runs twice")), Code::kInternal);
  EXPECT_EQ(CodeOf(Do("a kernel")), Code::kOk);
}

}  // namespace
}  // namespace athanor
