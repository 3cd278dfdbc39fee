#include "server/child/tuner_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_channel.h"
#include "server/child/tuner_process_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST_F(TunerProcessTest, DescribesThisMachine) {
  absl::StatusOr<internal::TargetReply> reply = tuner_->Target();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->compiler_version(), HasSubstr("clang 19"));
  EXPECT_EQ(reply->target().device(), "cpu");
  EXPECT_FALSE(reply->target().cpu().empty());
  EXPECT_GE(reply->target().features_size(), 1);
  EXPECT_GE(reply->target().vector_bytes(), 16);
  EXPECT_GE(reply->target().vector_registers(), 16);
  EXPECT_GE(reply->target().l1_bytes(), 8 << 10);
  EXPECT_GE(reply->target().l2_bytes(), reply->target().l1_bytes());
  EXPECT_EQ(reply->target().threads(), 0);
}

TEST_F(TunerProcessTest, CompilesAndChecksManyTimesInOneChild) {
  for (int i = 0; i < 10; ++i) {
    const std::string source = Kernel(absl::StrCat("(void)", i, ";"));
    EXPECT_TRUE(CompileAndCheck(source).ok()) << CompileAndCheck(source);
  }
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(TunerProcessTest, ChildKilledBetweenCallsIsReplaced) {
  const pid_t first = tuner_->pid();
  kill(first, SIGKILL);
  const absl::Status lost = CompileAndCheck(Kernel(""));
  EXPECT_EQ(lost.code(), Code::kUnavailable) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("SIGKILL"));
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
  EXPECT_NE(tuner_->pid(), first);
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, AnIdleChildThatEndsIsNoZombie) {
  const pid_t first = tuner_->pid();
  kill(first, SIGKILL);
  // As long as it takes: a test that waits for ever has failed. A zombie is not gone.
  while (kill(first, 0) == 0) std::this_thread::yield();
  EXPECT_EQ(CompileAndCheck(Kernel("")).code(), Code::kUnavailable);
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
  EXPECT_EQ(tuner_->starts(), 2);
}

TEST_F(TunerProcessTest, TheChildSaysWhichWallsStand) {
  EXPECT_THAT(tuner_->walls(), HasSubstr("system calls of a list"));
}

TEST_F(TunerProcessTest, InterruptEndsTheRunningCallAndThoseAfterIt) {
  std::thread interrupter([this] {
    std::this_thread::sleep_for(milliseconds(500));
    tuner_->Interrupt();
  });
  const absl::Status status = CompileAndCheck(Kernel("for (;;) *(volatile float*)y = 1;"));
  interrupter.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
  EXPECT_EQ(CompileAndCheck(Kernel("")).code(), Code::kCancelled);
  tuner_->ClearInterrupt();
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
}

TEST_F(TunerProcessTest, AnInterruptBetweenTwoCallsIsNotLost) {
  ASSERT_TRUE(CompileAndCheck(Kernel("")).ok());
  const pid_t child = tuner_->pid();
  tuner_->Interrupt();
  EXPECT_EQ(CompileAndCheck(Kernel("")).code(), Code::kCancelled);
  EXPECT_EQ(tuner_->pid(), child);  // nothing was sent that it would have to die for
  tuner_->ClearInterrupt();
  EXPECT_TRUE(CompileAndCheck(Kernel("")).ok());
}

TEST_F(TunerProcessTest, BadRequestsAreRefusedByName) {
  const std::string object = tuner_->Compile(Kernel(""), target_).value();
  internal::CheckRequest request = DoublingCheck(object);
  request.clear_objects();
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("0 objects for 1 kernels"));
  request = DoublingCheck(object);
  request.mutable_sizes(0)->clear_values();
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("0 sizes for 1 dims"));
  request = DoublingCheck(object);
  request.set_graph_text("no graph");
  EXPECT_EQ(tuner_->Check(request).code(), Code::kInvalidArgument);
  request = DoublingCheck(object);
  request.mutable_plan()->mutable_outputs(0)->set_name("z");
  EXPECT_THAT(std::string(tuner_->Check(request).message()), HasSubstr("output \"z\""));
  request = DoublingCheck("no object");
  EXPECT_EQ(tuner_->Check(request).code(), Code::kInvalidArgument);
  v1::Target unknown = target_;
  unknown.set_cpu("pentium-99");
  EXPECT_THAT(std::string(tuner_->Compile(Kernel(""), unknown).status().message()),
              HasSubstr("pentium-99"));
  EXPECT_EQ(tuner_->starts(), 1);
}

// Returns what a request comes to whose child is this shell script.
absl::Status AskAScript(const std::string& script) {
  const std::string path = ::testing::TempDir() + "/script";
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  chmod(path.c_str(), 0700);
  TunerOptions options;
  options.binary = path;
  auto tuner = TunerProcess::Start(options);
  EXPECT_TRUE(tuner.ok()) << tuner.status();
  return tuner.ok() ? (*tuner)->Target().status() : tuner.status();
}

// The keeper of a device worker writes to the same file, and may be the first.
TEST(TunerProcessStartTest, WallsAreFoundBehindAnothersWords) {
  const std::string path = ::testing::TempDir() + "/script";
  std::ofstream(path) << "#!/bin/sh\necho 'no driver' >&2\necho 'confined: all' >&2\n"
                      << "echo 'the end' >&2\nexit 3\n";
  chmod(path.c_str(), 0700);
  TunerOptions options;
  options.binary = path;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  const absl::Status status = (*tuner)->Target().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("exit status 3: no driver\nthe end"));
  EXPECT_EQ((*tuner)->walls(), "all");
}

TEST(TunerProcessStartTest, OnlyBackgroundWorkWaitsForWhoMeasures) {
  MeasuringTurns turns;
  TunerOptions options = TestOptions();
  options.turns = &turns;
  absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  const MeasuringTurns::Turn measures =
      turns.Take(MeasuringTurns::Kind::kMeasures, [] { return false; });
  EXPECT_TRUE((*tuner)->Target().ok());
  const TunerProcess::Background background(tuner->get());
  std::thread interrupter([&] { (*tuner)->Interrupt(); });
  EXPECT_EQ((*tuner)->Target().status().code(), Code::kCancelled);
  interrupter.join();
  EXPECT_EQ((*tuner)->starts(), 1);
}

// Whoever measures, and whatever a child does: the time of a search is up.
TEST(TunerProcessStartTest, BackgroundWorkEndsWithItsTime) {
  const std::string path = testing::TempDir() + "/silent-tuner";
  std::ofstream(path) << "#!/bin/sh\nexec sleep 1000\n";
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  MeasuringTurns turns;
  TunerOptions options;
  options.binary = path;
  options.turns = &turns;
  auto tuner = TunerProcess::Create(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  const auto soon = std::chrono::steady_clock::now() + milliseconds(20);
  const TunerProcess::Background background(tuner->get(), soon);
  {
    const auto measures = turns.Take(MeasuringTurns::Kind::kMeasures, [] { return false; });
    const absl::Status waited = (*tuner)->Measure({}).status();
    EXPECT_EQ(waited.code(), absl::StatusCode::kAborted) << waited;
    EXPECT_THAT(std::string(waited.message()), HasSubstr("the search's time is up"));
  }
  EXPECT_EQ((*tuner)->Measure({}).status().code(), absl::StatusCode::kAborted) << "not begun";
  EXPECT_EQ((*tuner)->starts(), 0);
  const TunerProcess::Background later(tuner->get(),
                                       std::chrono::steady_clock::now() + milliseconds(200));
  EXPECT_EQ((*tuner)->Target().status().code(), absl::StatusCode::kAborted) << "cut short";
  EXPECT_EQ((*tuner)->starts(), 1);
  EXPECT_EQ((*tuner)->pid(), -1);
}

TEST(TunerProcessStartTest, MissingBinaryIsNamed) {
  TunerOptions options;
  options.binary = "/nowhere/athanor-tuner";
  absl::StatusOr<std::unique_ptr<TunerProcess>> tuner = TunerProcess::Start(options);
  EXPECT_EQ(tuner.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(tuner.status().message()), HasSubstr("/nowhere/athanor-tuner"));
}

// A child that answers nonsense: a shell script in its place.
TEST(TunerProcessStartTest, NonsenseFromTheChild) {
  const struct {
    const char* script;
    const char* message;
  } rows[] = {
      {"printf '\\377\\377\\377\\377' >&3; sleep 9", "a frame of 4294967295 bytes"},
      {"printf '\\003\\0\\0\\0\\377\\377\\377' >&3; sleep 9", "does not parse"},
      {"printf '\\0\\0\\0\\0' >&3; sleep 9", "without a value"},
      {"printf '\\002\\0\\0\\0\\010\\143' >&3; sleep 9", "code 99"},
      {"exit 3", "exit status 3"},
      {"echo last words >&2; exit 1", "last words"},
      {"printf '\\377\\0\\0\\0half' >&3", "exit status 0"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.script);
    const absl::Status status = AskAScript(row.script);
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

// A crash is what the child did with the request; being killed says nothing about that.
TEST(TunerProcessStartTest, AKilledChildIsNoVerdict) {
  const struct {
    const char* signal;
    Code code;
  } rows[] = {{"KILL", Code::kUnavailable}, {"TERM", Code::kUnavailable},
              {"HUP", Code::kUnavailable},  {"SEGV", Code::kInternal},
              {"ABRT", Code::kInternal},    {"BUS", Code::kInternal},
              {"XFSZ", Code::kInternal}};
  for (const auto& row : rows) {
    const absl::Status status =
        AskAScript(absl::StrCat("ulimit -c 0\nkill -", row.signal, " $$\nsleep 9"));
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("SIG", row.signal)));
  }
}

TEST(TunerProcessStartTest, LimitsThatAreNoneAreRefused) {
  const std::string path = ::testing::TempDir() + "/no_limits";
  std::ofstream(path) << "#!/bin/sh\nprintf '\\002\\0\\0\\0\\112\\0' >&3; sleep 9\n";
  chmod(path.c_str(), 0700);
  TunerOptions options;
  options.binary = path;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  const absl::Status status = (*tuner)->Machine({}, 1).status();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a limit of 0 per second"));
}

// The CPU computes every dtype there is, so a script says it.
TEST(TunerProcessStartTest, WhatThePipelineRefusesComesThroughAsItIs) {
  const std::string path = ::testing::TempDir() + "/script";
  std::ofstream(path) << "#!/bin/sh\nprintf "
                         "'\\023\\0\\0\\0\\010\\014\\022\\017x (Sin): no f64' >&3; sleep 9\n";
  chmod(path.c_str(), 0700);
  TunerOptions options;
  options.binary = path;
  auto tuner = TunerProcess::Start(options);
  ASSERT_TRUE(tuner.ok()) << tuner.status();
  EXPECT_EQ((*tuner)->Lower(Chain(3), v1::Target()).status(),
            absl::UnimplementedError("x (Sin): no f64"));
  EXPECT_GE((*tuner)->pid(), 0);
}

TEST(TunerProcessStartTest, NonsenseInsteadOfAPlan) {
  // A description of a machine, no plan, and a check of a kernel that the plan lacks.
  for (const char* reply : {"\\002\\0\\0\\0\\052\\0", "\\002\\0\\0\\0\\062\\0",
                            "\\010\\0\\0\\0\\062\\006\\012\\0\\022\\002\\010\\005"}) {
    SCOPED_TRACE(reply);
    const std::string path = ::testing::TempDir() + "/script";
    std::ofstream(path) << "#!/bin/sh\nprintf '" << reply << "' >&3; sleep 9\n";
    chmod(path.c_str(), 0700);
    TunerOptions options;
    options.binary = path;
    auto tuner = TunerProcess::Start(options);
    ASSERT_TRUE(tuner.ok()) << tuner.status();
    const absl::Status status = (*tuner)->Lower(Chain(3), v1::Target()).status();
    EXPECT_EQ(status.code(), Code::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its plan and checks do not fit"));
  }
}

TEST(TunerProcessStartTest, DiesWithItsOwner) {
  pid_t pid;
  {
    auto tuner = TunerProcess::Start(TestOptions());
    ASSERT_TRUE(tuner.ok());
    pid = (*tuner)->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(TunerChannelTest, FramesAndDeadlines) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  internal::TunerRequest request;
  request.mutable_compile()->set_source("int x;");
  ASSERT_TRUE(WriteFrame(ends[0], request, {}).ok());
  internal::TunerRequest back;
  ASSERT_TRUE(back.ParseFromString(ReadFrame(ends[1], 100, {}).value()));
  EXPECT_EQ(back.compile().source(), "int x;");
  const auto soon = std::chrono::steady_clock::now() + milliseconds(50);
  EXPECT_EQ(ReadFrame(ends[1], 100, {.deadline = soon}).status().code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(WriteFrame(ends[0], request, {}).ok());
  EXPECT_EQ(ReadFrame(ends[1], 3, {}).status().code(), Code::kDataLoss);
  // More than the socket holds, and nobody reads.
  request.mutable_compile()->set_source(std::string(8 << 20, 'x'));
  EXPECT_EQ(WriteFrame(ends[0], request,
                       {.deadline = std::chrono::steady_clock::now() + milliseconds(50)})
                .code(),
            Code::kDeadlineExceeded);
  close(ends[1]);
  EXPECT_EQ(WriteFrame(ends[0], request, {}).code(), Code::kUnavailable);
  EXPECT_EQ(ReadFrame(ends[0], 100, {}).status().code(), Code::kUnavailable);
  close(ends[0]);
}

}  // namespace
}  // namespace athanor
