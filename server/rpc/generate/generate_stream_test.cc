// Tests Generate's streams through gRPC: what is sent, and how streams end.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/generate/generate_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Sequence = ScriptedEngine::Sequence;

class GenerateStreamTest : public GenerateTest {
 protected:
  struct Stream {
    std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };
  Stream Open(const v1::GenerateRequest& request) {
    Stream stream;
    stream.reader = stub_->Generate(stream.context.get(), request);
    return stream;
  }
  // Returns the text of the next message.
  static std::string Next(Stream& stream) {
    v1::GenerateResponse message;
    return stream.reader->Read(&message) ? message.text() : "(end)";
  }
  static void Put(const Sequence& sequence, const std::string& text, int32_t token = 5) {
    EXPECT_TRUE(sequence.outbox->Put({.text = text, .tokens = {{.token = token}}}));
  }
  static void End(const Sequence& sequence, Finish finish = Finish::kStop) {
    EXPECT_TRUE(sequence.outbox->Put(LastEvent(finish, 1)));
    sequence.outbox->Close(absl::OkStatus());
  }
  void AwaitNoCalls() {
    while (test_->server->core().active_calls() > 0) std::this_thread::yield();
  }
};

TEST_F(GenerateStreamTest, SendsWhatComes) {
  Begin();
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x", 7);
  v1::GenerateResponse message;
  ASSERT_TRUE(stream.reader->Read(&message));
  EXPECT_EQ(message.text(), "x");
  EXPECT_THAT(message.tokens(), ElementsAre(7));
  EXPECT_THAT(message.logprobs(), IsEmpty());
  EXPECT_EQ(message.finish(), v1::FINISH_UNSPECIFIED);
  EXPECT_FALSE(message.has_usage());
  Put(sequence, "", 8);
  ASSERT_TRUE(stream.reader->Read(&message));
  EXPECT_EQ(message.text(), "");
  EXPECT_THAT(message.tokens(), ElementsAre(8));
  End(sequence);
  ASSERT_TRUE(stream.reader->Read(&message));
  EXPECT_EQ(message.finish(), v1::FINISH_STOP);
  EXPECT_FALSE(stream.reader->Read(&message));
  EXPECT_TRUE(stream.reader->Finish().ok());
  AwaitNoCalls();
  EXPECT_EQ(engine_->cancelled(), 0u);
}

TEST_F(GenerateStreamTest, TheLastMessageHasUsageAndTimes) {
  Begin();
  v1::GenerateRequest request = TextRequest("a");
  request.mutable_sampling()->set_seed(123);
  std::thread sender([&] {
    const Sequence sequence = engine_->Await(0);
    GenerateEvent last = LastEvent(Finish::kStop, 2);
    last.text = "xy";
    last.tokens = {{.token = 7}, {.token = 8}};
    SequenceSummary& summary = *last.summary;
    summary.started = SequenceTime::clock::now() + milliseconds(10);
    summary.first_token = summary.started + milliseconds(20);
    summary.last_token = summary.started + milliseconds(30);
    summary.cached_tokens = 1;
    summary.stop_token = 8;
    summary.stop_text = "y";
    EXPECT_TRUE(sequence.outbox->Put(std::move(last)));
    sequence.outbox->Close(absl::OkStatus());
  });
  const Answer answer = Generate(request);
  sender.join();
  ASSERT_TRUE(answer.status.ok());
  ASSERT_EQ(answer.messages.size(), 1u);
  const v1::GenerateResponse& message = answer.messages[0];
  EXPECT_EQ(message.text(), "xy");
  EXPECT_THAT(message.tokens(), ElementsAre(7, 8));
  EXPECT_EQ(message.finish(), v1::FINISH_STOP);
  const v1::Usage& usage = message.usage();
  EXPECT_EQ(usage.prompt_tokens(), 3);
  EXPECT_EQ(usage.cached_tokens(), 1);
  EXPECT_EQ(usage.generated_tokens(), 2);
  EXPECT_EQ(usage.seed(), 123u);
  EXPECT_EQ(usage.model_version(), "1");
  EXPECT_EQ(usage.plan_id(), "p-7");
  EXPECT_EQ(usage.stop_token(), 8);
  EXPECT_EQ(usage.stop_text(), "y");
  const v1::GenerateTimes& times = message.times();
  EXPECT_GE(times.started_us(), 10'000);
  EXPECT_EQ(times.first_token_us() - times.started_us(), 20'000);
  EXPECT_EQ(times.last_token_us() - times.started_us(), 30'000);
}

TEST_F(GenerateStreamTest, ASilentSeedIsTold) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) { End(sequence, Finish::kLength); });
  const Answer answer = Generate(TextRequest("a"));
  ASSERT_EQ(answer.messages.size(), 1u);
  EXPECT_EQ(answer.messages[0].finish(), v1::FINISH_LENGTH);
  EXPECT_EQ(answer.messages[0].usage().seed(), engine_->Await(0).input.sampling.seed);
}

TEST_F(GenerateStreamTest, LogprobsHaveBytes) {
  Begin();
  v1::GenerateRequest request = TextRequest("a");
  request.mutable_sampling()->set_logprobs(2);
  engine_->AtStart([](const Sequence& sequence) {
    GenerateEvent event = LastEvent(Finish::kLength, 1);
    event.tokens = {
        {.token = IdOf('q'), .logprob = -1.5f, .likeliest = {{IdOf('z'), -0.5f}, {99, -2.0f}}}};
    EXPECT_TRUE(sequence.outbox->Put(std::move(event)));
  });
  const Answer answer = Generate(request);
  ASSERT_EQ(answer.messages.size(), 1u);
  ASSERT_EQ(answer.messages[0].logprobs_size(), 1);
  const v1::Logprobs& logprobs = answer.messages[0].logprobs(0);
  EXPECT_EQ(logprobs.chosen().token(), IdOf('q'));
  EXPECT_EQ(logprobs.chosen().logprob(), -1.5f);
  EXPECT_EQ(logprobs.chosen().text(), "q");
  ASSERT_EQ(logprobs.likeliest_size(), 2);
  EXPECT_EQ(logprobs.likeliest(0).text(), "z");
  EXPECT_EQ(logprobs.likeliest(0).logprob(), -0.5f);
  EXPECT_EQ(logprobs.likeliest(1).token(), 99);
  EXPECT_EQ(logprobs.likeliest(1).text(), "") << "no token of the tokenizer";
}

TEST_F(GenerateStreamTest, AnErrorComesBehindWhatWasGenerated) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) {
    Put(sequence, "x");
    sequence.outbox->Close(absl::DataLossError("the logit of token 5 is nan"));
  });
  const Answer answer = Generate(TextRequest("a"));
  EXPECT_EQ(answer.text(), "x");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);  // as the server calls it
  EXPECT_THAT(answer.status.error_message(), HasSubstr("token 5 is nan"));
  engine_->AtStart([](const Sequence& sequence) {
    sequence.outbox->Close(absl::DeadlineExceededError("its time was up in the queue"));
  });
  const Answer late = Generate(TextRequest("a"));
  EXPECT_THAT(late.messages, IsEmpty());
  EXPECT_EQ(late.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  AwaitNoCalls();
  EXPECT_EQ(engine_->cancelled(), 0u);
}

TEST_F(GenerateStreamTest, AClientThatCancelsEndsItsSequence) {
  Begin();
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x");
  EXPECT_EQ(Next(stream), "x");
  stream.context->TryCancel();
  EXPECT_TRUE(absl::IsCancelled(engine_->AwaitCancel(sequence.id)));
  EXPECT_EQ(ReadAll(stream.reader.get()).status.error_code(), grpc::StatusCode::CANCELLED);
  AwaitNoCalls();
  // Later events of the engine are dropped.
  Put(sequence, "y");
  sequence.outbox->Close(absl::CancelledError("late"));
  EXPECT_EQ(engine_->cancelled(), 1u);
}

// A call may be cancelled at any time of its beginning, and ends once.
TEST_F(GenerateStreamTest, CancelsAtAnyTime) {
  Begin({}, {.scheduler = {.max_model_len = 8192}});
  engine_->AtStart([](const Sequence& sequence) { Put(sequence, "x"); });
  for (int i = 0; i < 300; ++i) {
    // By turns refused, long, and short.
    Stream stream = Open(TextRequest(std::string(i % 3 == 0 ? 0 : i % 3 == 1 ? 4096 : 1, 'a')));
    std::thread cancel([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 5));
      stream.context->TryCancel();
    });
    EXPECT_FALSE(ReadAll(stream.reader.get()).status.ok());
    cancel.join();
  }
  AwaitNoCalls();
  EXPECT_EQ(engine_->cancelled(), engine_->started());
}

TEST_F(GenerateStreamTest, TheClientsDeadlineIsTheSequences) {
  Begin();
  v1::GenerateRequest request = TextRequest("a");
  request.set_timeout_us(3'600'000'000);
  Stream stream;
  const auto system = std::chrono::system_clock::now() + milliseconds(300);
  const auto steady = std::chrono::steady_clock::now() + milliseconds(300);
  stream.context->set_deadline(system);
  stream.reader = stub_->Generate(stream.context.get(), request);
  const Sequence sequence = engine_->Await(0);
  EXPECT_LT(sequence.input.sequence.deadline, steady + milliseconds(200));
  EXPECT_GT(sequence.input.sequence.deadline, steady - milliseconds(200));
  EXPECT_EQ(ReadAll(stream.reader.get()).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(engine_->AwaitCancel(sequence.id).ok());
  AwaitNoCalls();
}

TEST_F(GenerateStreamTest, ACancelAheadOfTheDeadlineIsACancel) {
  Begin();
  Stream stream;
  stream.context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(4));
  stream.reader = stub_->Generate(stream.context.get(), TextRequest("a"));
  engine_->Await(0);
  std::this_thread::sleep_for(milliseconds(2200));
  stream.context->TryCancel();
  EXPECT_FALSE(ReadAll(stream.reader.get()).status.ok());
  AwaitNoCalls();
  const auto version = test_->server->core().registry().versions().Find("m", "").value();
  const int cancelled = static_cast<int>(absl::StatusCode::kCancelled);
  EXPECT_EQ(version->metrics().cells.value(Metric::kRequests, cancelled), 1);
}

TEST_F(GenerateStreamTest, ASlowReaderKeepsTheOutboxFullAndLosesNothing) {
  Begin({}, {.outbox_events = 4});
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  // Nobody reads: gRPC takes some of it, then the outbox fills.
  const std::string big(1 << 18, 'x');  // four are less than a client's 4 MiB a message
  int put = 0;
  bool full = false;
  for (; put < 200 && !full; ++put) {
    full = !sequence.outbox->Put({.text = big, .tokens = {{.token = put}}});
    // Gives the writer time, so that only a client that does not read stops it.
    if (!full) std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(full);
  EXPECT_EQ(engine_->drained(), 0);
  int read = 0;
  for (v1::GenerateResponse message; read < put && stream.reader->Read(&message);) {
    EXPECT_EQ(message.text().size(), big.size() * message.tokens_size());
    for (int32_t token : message.tokens()) EXPECT_EQ(token, read++);
  }
  EXPECT_EQ(read, put);
  EXPECT_EQ(engine_->drained(), 1);
  End(sequence);
  EXPECT_TRUE(ReadAll(stream.reader.get()).status.ok());
}

TEST_F(GenerateStreamTest, AClientThatNeverReadsIsBrokenOff) {
  EngineOptions options{.outbox_events = 4};
  options.scheduler.longest_pause = milliseconds(200);
  Begin({}, options);
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  const std::string big(1 << 20, 'x');
  while (sequence.outbox->Put({.text = big, .tokens = {{.token = 1}}})) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(sequence.id)));
  AwaitNoCalls();  // though the client is still there
  const Answer answer = ReadAll(stream.reader.get());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("has read nothing for 200 ms"));
}

TEST_F(GenerateStreamTest, AClientThatDoesNotReadTheEndIsBrokenOff) {
  EngineOptions options;
  options.scheduler.longest_pause = milliseconds(200);
  Begin({}, options);
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  GenerateEvent last = LastEvent(Finish::kLength, 1);
  last.text = std::string(64 << 20, 'x');
  EXPECT_TRUE(sequence.outbox->Put(std::move(last)));
  sequence.outbox->Close(absl::OkStatus());
  AwaitNoCalls();
  EXPECT_FALSE(ReadAll(stream.reader.get()).status.ok());
  EXPECT_EQ(engine_->cancelled(), 0u) << "the sequence was over";
}

TEST_F(GenerateStreamTest, AModelIsDeletedInMidStream) {
  Begin();
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x");
  EXPECT_EQ(Next(stream), "x");
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name("m");
  v1::DeleteModelResponse reply;
  ASSERT_TRUE(test_->models->DeleteModel(&context, request, &reply).ok());
  const Answer answer = ReadAll(stream.reader.get());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("deleted"));
  AwaitNoCalls();  // the call was the last to hold the engine, which is gone
  EXPECT_EQ(Generate(TextRequest("a")).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GenerateStreamTest, ADrainLetsStreamsFinish) {
  Begin({.drain_ms = 60'000});
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  bool finished = false;
  std::thread drain([&] { finished = test_->server->Drain(); });
  while (!test_->server->core().draining()) std::this_thread::yield();
  EXPECT_EQ(Generate(TextRequest("a")).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  Put(sequence, "x");
  EXPECT_EQ(Next(stream), "x");
  End(sequence);
  EXPECT_TRUE(ReadAll(stream.reader.get()).status.ok());
  drain.join();
  EXPECT_TRUE(finished);
}

TEST_F(GenerateStreamTest, ADrainEndsStreamsThatTakeTooLong) {
  Begin({.drain_ms = 50});
  Stream stream = Open(TextRequest("a"));
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x");
  EXPECT_EQ(Next(stream), "x");
  EXPECT_FALSE(test_->server->Drain());
  EXPECT_FALSE(ReadAll(stream.reader.get()).status.ok());
  EXPECT_THAT(std::string(engine_->AwaitCancel(sequence.id).message()),
              HasSubstr("within --drain"));
}

TEST_F(GenerateStreamTest, StreamsCountAsRequests) {
  Begin({.max_pending = 2, .max_streams = 1});
  Stream first = Open(TextRequest("a")), second = Open(TextRequest("b"));
  engine_->Await(1);
  const Answer refused = Generate(TextRequest("c"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("--max_pending"));
  End(engine_->Await(0));
  End(engine_->Await(1));
  EXPECT_TRUE(ReadAll(first.reader.get()).status.ok());
  EXPECT_TRUE(ReadAll(second.reader.get()).status.ok());
  AwaitNoCalls();
  const auto version = test_->server->core().registry().versions().Find("m", "").value();
  const MetricCells& cells = version->metrics().cells;
  EXPECT_EQ(cells.value(Metric::kRequests, static_cast<int>(absl::StatusCode::kOk)), 2);
  EXPECT_EQ(cells.histogram(Metric::kRequestSeconds).count(), 2);
}

class GeneratePlanTest : public GenerateStreamTest {
 protected:
  // Starts the server with a model that has no plan until compiles are released.
  void SetUp() override {
    Begin();
    test_->control->HoldCompiles();
    Add("held", {.vocabulary = kVocabulary}, nullptr, /*wait=*/false);
  }
  static v1::GenerateRequest HeldRequest() {
    v1::GenerateRequest request = TextRequest("a");
    request.set_model("held");
    request.set_version("1");
    return request;
  }
  void AwaitStall() {
    while (test_->server->core().active_calls() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(engine_->started(), 0u);
  }
};

TEST_F(GeneratePlanTest, AFirstPlanIsWaitedFor) {
  Stream stream = Open(HeldRequest());
  AwaitStall();
  test_->control->ReleaseCompiles();
  End(engine_->Await(0));
  EXPECT_TRUE(ReadAll(stream.reader.get()).status.ok());
  const auto version = test_->server->core().registry().versions().Find("held", "1").value();
  EXPECT_EQ(version->metrics().cells.histogram(Metric::kStallSeconds).count(), 1);
}

TEST_F(GeneratePlanTest, UntilTheTimeIsUp) {
  v1::GenerateRequest request = HeldRequest();
  request.set_timeout_us(20'000);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("its baseline plan was not ready after"));
}

TEST_F(GeneratePlanTest, UntilTheClientLeaves) {
  Stream stream = Open(HeldRequest());
  AwaitStall();
  stream.context->TryCancel();
  EXPECT_FALSE(ReadAll(stream.reader.get()).status.ok());
  AwaitNoCalls();
  test_->control->ReleaseCompiles();
  EXPECT_EQ(engine_->started(), 0u);
}

TEST_F(GeneratePlanTest, UntilThereWillBeNone) {
  Stream stream = Open(HeldRequest());
  AwaitStall();
  test_->control->FailCompiles(absl::UnimplementedError("node \"y\" (Sort): not on this device"));
  test_->control->ReleaseCompiles();
  const Answer answer = ReadAll(stream.reader.get());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(engine_->started(), 0u);
}

TEST_F(GenerateStreamTest, ManyAtOnce) {
  constexpr int kStreams = 64, kTokens = 50;
  Begin({}, {.outbox_events = 1000});
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back([&] {
      const Answer answer = Generate(TextRequest("a"));
      std::string expected;
      for (int token = 0; token < kTokens; ++token) expected += "t" + std::to_string(token);
      right += answer.status.ok() && answer.text() == expected ? 1 : 0;
    });
  }
  std::vector<Sequence> sequences;
  for (int i = 0; i < kStreams; ++i) sequences.push_back(engine_->Await(i));
  for (int token = 0; token < kTokens; ++token) {
    for (const Sequence& sequence : sequences) Put(sequence, "t" + std::to_string(token));
  }
  for (const Sequence& sequence : sequences) End(sequence);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, kStreams);
}

}  // namespace
}  // namespace athanor
