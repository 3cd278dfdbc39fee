// Runs loads against a server in this process. Checks counts and orders, never times: a slow
// machine makes calls late, and the records say so.
#include "clients/bench/load/load.h"

#include <algorithm>
#include <thread>

#include "clients/bench/load/fake_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::HasSubstr;

void ExpectOrdered(const LoadResult& result) {
  int64_t before = 0;
  for (const CallRecord& record : result.calls) {
    EXPECT_GE(record.due_ns, before);
    EXPECT_GE(record.sent_ns, record.due_ns);
    EXPECT_GT(record.done_ns, record.sent_ns);
    before = record.due_ns;
  }
}

int64_t Answered(const LoadResult& result) {
  return std::count_if(result.calls.begin(), result.calls.end(),
                       [](const CallRecord& record) { return record.answered(); });
}

LoadOptions Open(const FakeServer& server, double rate, double seconds) {
  LoadOptions options = LoadOf(server);
  options.arrival = Arrival::kFixed;
  options.phases = {{seconds, rate, rate}};
  return options;
}

TEST(LoadTest, AClosedLoopHasAsManyCallsOutAsCallers) {
  FakeServer server;
  server.service().delay_us = 2000;
  LoadOptions options = LoadOf(server);
  options.phases = {{.seconds = 0.5, .concurrency = 4}};
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(server.service().most_running, 4);
  EXPECT_EQ(result->most_outstanding, 4);
  EXPECT_EQ(static_cast<int64_t>(result->calls.size()), server.service().calls);
  EXPECT_GE(result->calls.size(), 8u);
  EXPECT_EQ(Answered(*result), server.service().calls);
  for (const CallRecord& record : result->calls) {
    EXPECT_EQ(record.queue_us, 20);
    EXPECT_EQ(record.exec_us, 100);
    EXPECT_EQ(record.batch_us, -1);
    EXPECT_EQ(result->plan_ids.at(record.plan), "p-1");
  }
  ExpectOrdered(*result);
  EXPECT_FALSE(result->full);
}

TEST(LoadTest, AnOpenLoopSendsWhatIsDueWhateverTheAnswersDo) {
  FakeServer server;
  const auto result = RunLoad(Open(server, 200, 0.5));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->calls.size() + result->not_sent[0], 100u);
  ExpectOrdered(*result);
  // Due times follow the schedule exactly, independently of when the thread was ready to send.
  for (size_t i = 1; i < result->calls.size(); ++i) {
    const int64_t gap = result->calls[i].due_ns - result->calls[i - 1].due_ns;
    EXPECT_EQ(gap % 5'000'000, 0);
  }
}

// Every call that was due during a stall shows the wait.
TEST(LoadTest, AStallIsSeenByEveryCallDueInIt) {
  FakeServer server;
  server.service().stuck = true;
  LoadOptions options = Open(server, 50, 2);
  options.most_outstanding = 5;  // the other calls wait in the generator: late, not hidden
  std::thread release([&] {
    while (server.service().calls < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.service().stuck = false;
  });
  const auto result = RunLoad(options);
  release.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size() + result->not_sent[0], 100u);
  EXPECT_EQ(result->most_outstanding, 5);
  // The fifth call is due at 80 ms, so nothing is answered before 380 ms; the eleventh is due at
  // 200 ms and cannot be sent before that.
  for (const CallRecord& record : result->calls) EXPECT_GE(record.done_ns, 380'000'000);
  ASSERT_GT(result->calls.size(), 10u);
  EXPECT_GE(result->calls[10].sent_ns - result->calls[10].due_ns, 180'000'000);
}

TEST(LoadTest, WhatIsNotSentIsSaid) {
  FakeServer server;
  server.service().stuck = true;
  LoadOptions options = Open(server, 100, 0.5);
  options.most_outstanding = 3;
  options.timeout = absl::Seconds(2);
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size(), 3u);
  EXPECT_EQ(result->not_sent[0], 47);
}

TEST(LoadTest, ACallIsGivenUpWhenItsTimeIsOver) {
  FakeServer server;
  server.service().stuck = true;
  LoadOptions options = Open(server, 50, 0.2);
  options.timeout = absl::Milliseconds(50);
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size() + result->not_sent[0], 10u);
  for (const CallRecord& record : result->calls) {
    EXPECT_EQ(record.code, static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  }
}

TEST(LoadTest, AllCallsMayFail) {
  FakeServer server;
  server.service().fail = true;
  LoadOptions options = LoadOf(server);
  options.phases[0].concurrency = 2;
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->calls.empty());
  EXPECT_EQ(Answered(*result), 0);
  const int code = static_cast<int>(absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(result->messages.at(code), "the queue is full");
  for (const CallRecord& record : result->calls) {
    EXPECT_EQ(record.code, code);
    EXPECT_EQ(record.plan, -1);
  }
  // A refused caller pauses before it calls again.
  EXPECT_LE(result->calls.size(), 2u * 25);
}

TEST(LoadTest, PhasesChangeTheCallers) {
  FakeServer server;
  server.service().delay_us = 1000;
  LoadOptions options = LoadOf(server);
  options.phases = {{.seconds = 0.5, .concurrency = 1},
                    {.seconds = 0.5, .concurrency = 5},
                    {.seconds = 0.5, .concurrency = 2}};
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->most_outstanding, 5);
  // Counts the calls that were out when one was sent, except those of the phase before.
  for (int phase = 0; phase < 3; ++phase) {
    int most = 0;
    for (const CallRecord& a : result->calls) {
      if (a.phase != phase) continue;
      int out = 0;
      for (const CallRecord& b : result->calls) {
        out += b.phase == phase && b.sent_ns <= a.sent_ns && b.done_ns > a.sent_ns;
      }
      most = std::max(most, out);
    }
    EXPECT_GE(most, 1);
    EXPECT_LE(most, options.phases[phase].concurrency);
  }
}

// A closed loop's call is due when it is sent.
TEST(LoadTest, NoCallOfAClosedLoopIsTooLateToBeSent) {
  FakeServer server;
  LoadOptions options = LoadOf(server);
  options.timeout = absl::Nanoseconds(1);
  options.most_calls = 5;
  options.phases = {{.seconds = 60, .concurrency = 2}};
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size(), 5u);
}

TEST(LoadTest, ACallerThinksBetweenItsCalls) {
  FakeServer server;
  LoadOptions options = LoadOf(server);
  options.think = absl::Milliseconds(20);
  options.phases = {{.seconds = 3600, .concurrency = 2}};
  options.most_calls = 6;
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->calls.size(), 6u);
  // Each call but a caller's first is due no sooner than 20 ms behind the end of one before it.
  int64_t pairs = 0;
  for (const CallRecord& a : result->calls) {
    for (const CallRecord& b : result->calls) pairs += b.due_ns >= a.done_ns + 20'000'000;
  }
  EXPECT_GE(pairs, 4);
  EXPECT_LE(result->most_outstanding, 2);
}

TEST(LoadTest, ARunEndsThoughACallerStillThinks) {
  FakeServer server;
  LoadOptions options = LoadOf(server);
  options.think = absl::Hours(1);
  options.phases = {{.seconds = 0.1, .concurrency = 3}, {.seconds = 0.1, .concurrency = 2}};
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->calls.size(), 3u);
  EXPECT_LE(result->calls.size(), 5u);  // a new phase begins its callers anew
}

TEST(LoadTest, ATracesCallsAreDueWhenItSays) {
  FakeServer server;
  LoadOptions options = LoadOf(server);
  options.arrival = Arrival::kTrace;
  options.due = {0, 0.01, 0.01, 0.05};
  options.phases = {{1, 4, 4}};
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->calls.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result->calls[i].due_ns, static_cast<int64_t>(options.due[i] * 1e9));
  }
  EXPECT_EQ(result->seconds, 1);
  options.most_calls = 2;
  EXPECT_EQ(RunLoad(options)->calls.size(), 2u);
}

TEST(LoadTest, WarmUpCallsAreNotCounted) {
  FakeServer server;
  LoadOptions options = Open(server, 100, 0.1);
  options.warmups = 30;
  options.connections = 3;
  const auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(server.service().calls, 30 + static_cast<int64_t>(result->calls.size()));
  EXPECT_EQ(result->calls.size() + result->not_sent[0], 10u);
}

// The last answer may come before the thread that sent its call has left the client.
TEST(LoadTest, ClientsGoOnceNobodyIsInThem) {
  FakeServer server;
  for (int i = 0; i < 20; ++i) {
    LoadOptions options = LoadOf(server);
    options.warmups = 9;
    options.connections = 3;
    options.phases = {{.seconds = 0.005, .concurrency = 3}};
    ASSERT_TRUE(RunLoad(options).ok());
  }
}

TEST(LoadTest, AWarmUpThatIsRefusedEndsTheRunWithTheServersWords) {
  FakeServer server;
  server.service().fail = true;
  LoadOptions options = LoadOf(server);
  options.warmups = 10;
  const absl::Status status = RunLoad(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the queue is full"));
  EXPECT_EQ(server.service().calls, 1);
}

TEST(LoadTest, ARunMayEndAfterANumberOfCalls) {
  FakeServer server;
  server.service().delay_us = 1000;
  LoadOptions options = LoadOf(server);
  options.phases = {{.seconds = 3600, .concurrency = 3}};
  options.most_calls = 7;
  auto result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size(), 7u);
  EXPECT_FALSE(result->full);
  EXPECT_GT(result->seconds, 0);
  EXPECT_LT(result->seconds, 3600);
  options = Open(server, 100, 3600);
  options.most_calls = 7;
  result = RunLoad(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->calls.size() + result->not_sent[0], 7u);
  EXPECT_DOUBLE_EQ(result->seconds, 0.07);
}

TEST(LoadTest, ProgressCountsWhatWasAnswered) {
  FakeServer server;
  server.service().fail_call = 2;
  auto load = Load::Create(Open(server, 100, 0.1));
  ASSERT_TRUE(load.ok()) << load.status();
  const LoadResult result = (*load)->Run((*load)->options().phases, 0);
  EXPECT_EQ((*load)->progress().answered, Answered(result));
  EXPECT_EQ((*load)->progress().failed, 1);
  EXPECT_EQ((*load)->progress().tokens, 0);
}

TEST(LoadTest, ALoadRunsAgain) {
  FakeServer server;
  auto load = Load::Create(Open(server, 100, 0.1));
  ASSERT_TRUE(load.ok()) << load.status();
  const std::vector<Phase> phases = {{0.5, 100, 100}};
  for (int i = 0; i < 2; ++i) {
    const LoadResult result = (*load)->Run(phases, i);
    EXPECT_EQ(result.calls.size() + result.not_sent[0], 50u);
    ASSERT_FALSE(result.calls.empty());
    EXPECT_LT(result.calls[0].due_ns, 500'000'000);
  }
}

TEST(LoadTest, OptionsThatMakeNoRunAreRefusedByTheirFlag) {
  FakeServer server;
  struct Case {
    const char* flag;
    void (*change)(LoadOptions* options);
  };
  const Case cases[] = {
      {"--rate", [](LoadOptions* o) { o->phases = {{1, 0, 0}}; }},
      {"--rate", [](LoadOptions* o) { o->phases = {{1, -1, 5}}; }},
      {"--rate", [](LoadOptions* o) { o->phases = {{1000, 1e5, 1e5}}; }},
      {"--rate", [](LoadOptions* o) { o->phases = {{1, 1e9, 1e9}}; }},
      {"--duration", [](LoadOptions* o) { o->phases = {{0, 1, 1}}; }},
      {"--duration", [](LoadOptions* o) { o->phases = {{1e9, 1, 1}}; }},
      {"--duration", [](LoadOptions* o) { o->phases.clear(); }},
      {"--concurrency",
       [](LoadOptions* o) { o->arrival = Arrival::kClosed, o->phases = {{1, 0, 0, 0}}; }},
      {"--concurrency",
       [](LoadOptions* o) { o->arrival = Arrival::kClosed, o->phases = {{1, 0, 0, 1 << 30}}; }},
      {"--burstiness", [](LoadOptions* o) { o->burstiness = 0; }},
      {"--connections", [](LoadOptions* o) { o->connections = 0; }},
      {"--connections", [](LoadOptions* o) { o->connections = 1 << 20; }},
      {"--max_outstanding", [](LoadOptions* o) { o->most_outstanding = 0; }},
      {"--warmup", [](LoadOptions* o) { o->warmups = -1; }},
      {"--timeout", [](LoadOptions* o) { o->timeout = absl::ZeroDuration(); }},
      {"--model", [](LoadOptions* o) { o->model.clear(); }},
      {"--address", [](LoadOptions* o) { o->address.clear(); }},
      {"--requests", [](LoadOptions* o) { o->requests.clear(); }},
      {"--think", [](LoadOptions* o) { o->think = absl::Seconds(1); }},
      {"--think", [](LoadOptions* o) { o->think = -absl::Seconds(1); }},
      {"--num_prompts", [](LoadOptions* o) { o->most_calls = 0; }},
      {"--num_prompts", [](LoadOptions* o) { o->most_calls = kMostCalls + 1; }},
  };
  for (const Case& c : cases) {
    LoadOptions options = Open(server, 10, 0.1);
    c.change(&options);
    const absl::Status status = RunLoad(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.flag));
  }
  EXPECT_EQ(server.service().calls, 0);
}

}  // namespace
}  // namespace athanor::bench
