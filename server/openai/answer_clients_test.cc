// Tests answers to clients that leave, do not read, or are many; and what answers hold.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"
#include "server/openai/answer.h"
#include "server/openai/openai_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnswerClientsTest : public OpenAiTest {};

TEST_F(AnswerClientsTest, AClientThatLeavesEndsItsSequences) {
  Begin();
  auto client = Chat(R"("n":2,"stream":true)");
  const Sequence first = engine_->Await(0);
  Put(first, "x");
  client->AwaitPieces(1);
  client->Leave();
  EXPECT_TRUE(absl::IsCancelled(engine_->AwaitCancel(1)));
  EXPECT_TRUE(absl::IsCancelled(engine_->AwaitCancel(2)));
  Put(first, "y");  // goes nowhere
  first.outbox->Close(absl::CancelledError("late"));
  auto whole = Complete("\"prompt\":\"a\"");
  engine_->Await(2);
  whole->Leave();
  EXPECT_TRUE(absl::IsCancelled(engine_->AwaitCancel(3)));
  const int cancelled = static_cast<int>(absl::StatusCode::kCancelled);
  while (version_->metrics().cells.value(Metric::kRequests, cancelled) < 2) {
    std::this_thread::yield();
  }
}

TEST_F(AnswerClientsTest, AClientThatHasLeftAlready) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) { End(sequence, "x"); });
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    FakeClient client(
        {.method = "POST",
         .path = path,
         .body = path == std::string("/v1/completions")
                     ? R"({"model":"m","prompt":"a"})"
                     : R"({"model":"m","messages":[{"role":"user","content":"a"}]})"});
    const Routes::Found found = routes_->Find("POST", path);
    client.Leave();
    found.route->handler(client.Ask());
  }
  const int cancelled = static_cast<int>(absl::StatusCode::kCancelled);
  while (version_->metrics().cells.value(Metric::kRequests, cancelled) < 2) {
    std::this_thread::yield();
  }
  EXPECT_EQ(engine_->started(), 0u);
}

TEST_F(AnswerClientsTest, AQueuedBodyWhoseClientHasLeftIsNotRead) {
  Begin();
  Mutex mu;
  CondVar cv;
  int waiting = 0;
  bool open = false;
  constexpr int kThreads = 2;  // of the queue
  for (int i = 0; i < kThreads; ++i) {
    core_->text_queue().Submit([&] {
      MutexLock lock(mu);
      ++waiting;
      cv.NotifyAll();
      while (!open) cv.Wait(lock);
    });
  }
  {
    MutexLock lock(mu);
    while (waiting < kThreads) cv.Wait(lock);
  }
  const std::string wrong(100'000, '{');
  auto leaves = Ask("POST", "/v1/completions", wrong),
       stays = Ask("POST", "/v1/completions", wrong);
  leaves->Leave();
  {
    MutexLock lock(mu);
    open = true;
    cv.NotifyAll();
  }
  EXPECT_EQ(stays->AwaitEnd().status, 400);
  leaves->AwaitEnd();  // it is cut
  EXPECT_EQ(leaves->Now().status, 0);
}

TEST_F(AnswerClientsTest, PromptsOfAllChoicesAreCounted) {
  Begin();
  const std::string prompt(1'000, 'a');
  const std::string fields = "\"prompt\":\"" + prompt + "\",\"n\":";
  auto one = Complete(fields + "1");
  const int64_t least =
      static_cast<int64_t>(engine_->Await(0).input.sequence.prompt.size() * sizeof(int32_t));
  ASSERT_GE(least, 4'000);
  const int64_t held = core_->ledger().used(HeldKind::kRequests);
  EXPECT_GE(held, least);
  auto many = Complete(fields + "8");
  engine_->Await(8);
  EXPECT_GE(core_->ledger().used(HeldKind::kRequests), held + 8 * least);
  for (int i = 0; i < 9; ++i) End(engine_->Await(i));
  EXPECT_EQ(one->AwaitEnd().status, 200);
  EXPECT_EQ(many->AwaitEnd().status, 200);
  one.reset();
  many.reset();
  AwaitNothingHeld();
}

TEST_F(AnswerClientsTest, RefusalsHaveAnIdAndALine) {
  Begin();
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  const auto answer =
      Ask("POST", "/v1/completions", R"({"model":"m"})", {{"X-Request-Id", "mine-2"}})->AwaitEnd();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(HeaderOf(answer, "x-request-id"), "mine-2");
  EXPECT_THAT(log, HasSubstr("request=mine-2 method=\"POST /v1/completions\""));
  EXPECT_THAT(log, HasSubstr("code=INVALID_ARGUMENT"));
}

TEST_F(AnswerClientsTest, AClientThatNeverReadsIsCut) {
  EngineOptions options{.outbox_events = 4};
  options.scheduler.longest_pause = milliseconds(50);
  Begin(options);
  auto client = Chat(R"("n":2,"stream":true)");
  client->Hold();
  const Sequence first = engine_->Await(0), second = engine_->Await(1);
  Put(first, "a");
  client->AwaitPieces(1);
  Put(first, "b");
  EXPECT_TRUE(client->AwaitEnd().cut);
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(first.id)));
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(second.id)));
}

TEST_F(AnswerClientsTest, AStreamWhoseEndIsNotReadIsCut) {
  EngineOptions options;
  options.scheduler.longest_pause = milliseconds(50);
  Begin(options);
  auto client = Chat(R"("stream":true)");
  client->Hold();
  End(engine_->Await(0), "a");
  while (!client->Now().cut) std::this_thread::yield();
  EXPECT_EQ(engine_->cancelled(), 0u) << "the sequence was over";
}

TEST_F(AnswerClientsTest, WholeAnswersTakeTheirMemory) {
  Begin();
  auto client = Complete("\"prompt\":\"a\"");
  const Sequence sequence = engine_->Await(0);
  Put(sequence, std::string(100'000, 'x'));
  while (core_->ledger().used(HeldKind::kRequests) < 300'000) std::this_thread::yield();
  const auto rest = core_->ledger().Reserve(HeldKind::kScratch, core_->ledger().free(), "a test");
  ASSERT_TRUE(rest.ok());
  Put(sequence, std::string(1'000'000, 'x'));
  const auto answer = client->AwaitEnd();
  EXPECT_EQ(answer.status, 429);
  EXPECT_THAT(answer.body(), HasSubstr("the answer"));
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(sequence.id)));
  AwaitNothingHeld();
}

TEST_F(AnswerClientsTest, RequestIdsAreTheCallersIfTheyAreFit) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) { End(sequence, "x"); });
  const auto id = [this](const std::string& given) {
    return HeaderOf(
        Ask("POST", "/v1/completions", R"({"model":"m","prompt":"a"})", {{"X-Request-Id", given}})
            ->AwaitEnd(),
        "x-request-id");
  };
  EXPECT_EQ(id("abc-1"), "abc-1");
  EXPECT_THAT(id("a b"), ::testing::StartsWith("r-"));
  EXPECT_THAT(id("a\r\nb: c"), ::testing::StartsWith("r-"));
  EXPECT_THAT(id(std::string(129, 'a')), ::testing::StartsWith("r-"));
}

// Whole answers and streams, of which some are left and some end with an error.
TEST_F(AnswerClientsTest, ManyAtOnce) {
  constexpr int kClients = 48, kTokens = 40;
  Begin({.outbox_events = 1000});
  engine_->AtStart(nullptr);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(i % 2 == 0 ? Complete(R"("prompt":"a","n":2)")
                                 : Complete(R"("prompt":"a","n":2,"stream":true)"));
  }
  std::thread puts([&] {
    for (int token = 0; token < kTokens; ++token) {
      for (int i = 0; i < 2 * kClients; ++i) Put(engine_->Await(i), std::to_string(token) + " ");
    }
    for (int i = 0; i < 2 * kClients; ++i) {
      if (i % 12 == 5) {
        engine_->Await(i).outbox->Close(absl::DataLossError("nan"));
      } else {
        End(engine_->Await(i));
      }
    }
  });
  std::thread leaves([&] {
    for (int i = 3; i < kClients; i += 6) clients[i]->Leave();
    for (int i = 4; i < kClients; i += 6) clients[i]->Leave();
  });
  puts.join();
  leaves.join();
  std::string all;
  for (int token = 0; token < kTokens; ++token) all += std::to_string(token) + " ";
  for (int i = 0; i < kClients; ++i) {
    if (i % 6 == 3 || i % 6 == 4) continue;
    const auto answer = clients[i]->AwaitEnd();
    const bool failed = (2 * i) % 12 == 5 || (2 * i + 1) % 12 == 5;
    if (i % 2 == 0) {
      EXPECT_EQ(answer.status, failed ? 500 : 200);
      if (failed) continue;
      const Json body = Json::parse(answer.body());
      EXPECT_EQ(body["choices"][0]["text"], all);
      EXPECT_EQ(body["choices"][1]["text"], all);
    } else if (failed) {
      EXPECT_THAT(answer.body(), HasSubstr("\"error\""));
      EXPECT_EQ(answer.body().find("[DONE]"), std::string::npos);
    } else {
      EXPECT_THAT(TextsOf(answer.body(), 2), ElementsAre(all, all));
    }
  }
  AwaitNothingHeld();
}

}  // namespace
}  // namespace athanor
