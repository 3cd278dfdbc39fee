// Tests TokenStream without gRPC, so that ThreadSanitizer sees all of it.
#include "server/calls/token_stream.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/work_queue.h"
#include "server/generate/scripted_engine_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using Sequence = ScriptedEngine::Sequence;

// A call whose writes end on other threads, as gRPC's do, or when the test says so.
class TestCall final : public TokenSink {
 public:
  TestCall(Timer* timer, std::shared_ptr<StreamWriter> writer, WorkQueue* writes)
      : writes_(writes), stream_(std::make_shared<TokenStream>(this, timer, std::move(writer))) {}
  ~TestCall() override { stream_->Leave(); }

  void Begin(ScriptedEngine* engine) {
    const auto started = engine->Start({}, [stream = stream_] { stream->Ask(); });
    ASSERT_TRUE(started.ok());
    stream_->Open(engine, *started);
  }
  TokenStream& stream() { return *stream_; }
  const std::shared_ptr<TokenStream>& shared_stream() const { return stream_; }

  absl::Status AwaitEnd() {
    MutexLock lock(mu_);
    while (ends_.empty()) cv_.Wait(lock);
    EXPECT_EQ(ends_.size(), 1u);
    return ends_[0];
  }
  void AwaitMessages(size_t count) {
    MutexLock lock(mu_);
    while (messages_.size() < count) cv_.Wait(lock);
  }
  std::vector<std::vector<GenerateEvent>> messages() {
    MutexLock lock(mu_);
    return messages_;
  }
  absl::Status AwaitBreak() {
    MutexLock lock(mu_);
    while (broken_.ok()) cv_.Wait(lock);
    return broken_;
  }
  size_t ends() {
    MutexLock lock(mu_);
    return ends_.size();
  }

 private:
  bool Write(std::vector<GenerateEvent> events) override {
    EXPECT_FALSE(writing_.exchange(true)) << "one write at a time";
    Note(std::move(events), nullptr);
    if (writes_ == nullptr) return true;  // the client does not read
    writes_->Submit([this] {
      writing_ = false;
      stream_->Written(true);
    });
    return true;
  }
  bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) override {
    EXPECT_FALSE(writing_.exchange(true)) << "one write at a time";
    Note(std::move(events), &status);
    return true;
  }
  void End(const absl::Status& status) override {
    MutexLock lock(mu_);
    ends_.push_back(status);
    cv_.NotifyAll();
  }
  void Break(const absl::Status& why) override {
    MutexLock lock(mu_);
    broken_ = why;
    cv_.NotifyAll();
  }
  void Note(std::vector<GenerateEvent> events, const absl::Status* end) {
    EXPECT_FALSE(events.empty());
    MutexLock lock(mu_);
    messages_.push_back(std::move(events));
    if (end != nullptr) ends_.push_back(*end);
    cv_.NotifyAll();
  }

  WorkQueue* const writes_;  // null: writes do not end
  std::atomic<bool> writing_{false};
  Mutex mu_;
  CondVar cv_;
  std::vector<std::vector<GenerateEvent>> messages_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Status> ends_ ABSL_GUARDED_BY(mu_);
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<TokenStream> stream_;
};

class TokenStreamTest : public ::testing::Test {
 protected:
  ~TokenStreamTest() override { writer_->Stop(); }

  static EngineOptions OptionsOf(milliseconds longest_pause, int64_t events = 64) {
    EngineOptions options{.outbox_events = events};
    options.scheduler.longest_pause = longest_pause;
    return options;
  }
  static std::string TextOf(const std::vector<std::vector<GenerateEvent>>& messages) {
    std::string text;
    for (const auto& message : messages) {
      for (const GenerateEvent& event : message) text += event.text;
    }
    return text;
  }

  Timer timer_;
  const std::shared_ptr<StreamWriter> writer_ = std::make_shared<StreamWriter>();
};

TEST_F(TokenStreamTest, EventsThatWaitAreOneWrite) {
  WorkQueue writes("writes", 1);
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30)));
  engine.AtStart([](const Sequence& sequence) {
    EXPECT_TRUE(sequence.outbox->Put({.text = "a", .tokens = {{.token = 1}}}));
    EXPECT_TRUE(sequence.outbox->Put({.text = "b", .tokens = {{.token = 2}, {.token = 3}}}));
    EXPECT_TRUE(sequence.outbox->Put(LastEvent(Finish::kLength, 3)));
  });
  TestCall call(&timer_, writer_, &writes);
  call.Begin(&engine);
  EXPECT_TRUE(call.AwaitEnd().ok());
  ASSERT_EQ(call.messages().size(), 1u);
  const std::vector<GenerateEvent> events = call.messages()[0];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].text, "a");
  EXPECT_EQ(events[1].text, "b");
  EXPECT_EQ(events[1].tokens.size(), 2u);
  EXPECT_EQ(events[2].finish, Finish::kLength);
}

TEST_F(TokenStreamTest, AnEndWithoutAReasonIsADefect) {
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30)));
  engine.AtStart([](const Sequence& sequence) { sequence.outbox->Close(absl::OkStatus()); });
  TestCall call(&timer_, writer_, nullptr);
  call.Begin(&engine);
  EXPECT_EQ(call.AwaitEnd().code(), absl::StatusCode::kInternal);
}

TEST_F(TokenStreamTest, OneWriteAtATime) {
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30), 2));
  TestCall call(&timer_, writer_, nullptr);
  call.Begin(&engine);
  const Sequence sequence = engine.Await(0);
  EXPECT_TRUE(sequence.outbox->Put({.text = "a"}));
  call.AwaitMessages(1);
  EXPECT_TRUE(sequence.outbox->Put({.text = "b"}));
  std::this_thread::sleep_for(milliseconds(50));  // for the writer to look
  EXPECT_FALSE(sequence.outbox->Put({.text = "c"})) << "nobody takes it while a write is pending";
  EXPECT_EQ(call.messages().size(), 1u);
  EXPECT_EQ(engine.drained(), 0);
}

// A sink that keeps all it is given, and never waits.
class Gatherer final : public TokenSink {
 public:
  Gatherer(Timer* timer, std::shared_ptr<StreamWriter> writer)
      : stream_(std::make_shared<TokenStream>(this, timer, std::move(writer))) {}
  ~Gatherer() override { stream_->Leave(); }

  TokenStream& stream() { return *stream_; }
  Outbox::Callback Asker() {
    return [stream = stream_] { stream->Ask(); };
  }
  std::string AwaitText() {
    MutexLock lock(mu_);
    while (!ended_) cv_.Wait(lock);
    return text_;
  }
  int breaks() const { return breaks_; }

 private:
  bool Write(std::vector<GenerateEvent> events) override {
    MutexLock lock(mu_);
    for (const GenerateEvent& event : events) text_ += event.text;
    return false;
  }
  bool WriteLast(std::vector<GenerateEvent> events, const absl::Status&) override {
    Write(std::move(events));
    MutexLock lock(mu_);
    ended_ = true;
    cv_.NotifyAll();
    return false;
  }
  void End(const absl::Status&) override { ADD_FAILURE(); }
  void Break(const absl::Status&) override { ++breaks_; }

  std::atomic<int> breaks_{0};
  Mutex mu_;
  CondVar cv_;
  std::string text_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  const std::shared_ptr<TokenStream> stream_;
};

TEST_F(TokenStreamTest, WhoNeverWaitsIsNeverBrokenOff) {
  ScriptedEngine engine(OptionsOf(milliseconds(1), 2));
  Gatherer sink(&timer_, writer_);
  const auto started = engine.Start({}, sink.Asker());
  ASSERT_TRUE(started.ok());
  sink.stream().Open(&engine, *started);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    expected += std::to_string(i);
    if (started->outbox->Put({.text = std::to_string(i)})) continue;
    while (started->outbox->full()) std::this_thread::yield();
  }
  while (started->outbox->full()) std::this_thread::yield();
  static_cast<void>(started->outbox->Put(LastEvent(Finish::kLength, 100)));
  EXPECT_EQ(sink.AwaitText(), expected);
  EXPECT_EQ(sink.breaks(), 0);
  EXPECT_EQ(engine.cancelled(), 0u);
}

TEST_F(TokenStreamTest, AWriteThatWaitsTooLongIsBrokenOff) {
  ScriptedEngine engine(OptionsOf(milliseconds(50)));
  TestCall call(&timer_, writer_, nullptr);
  call.Begin(&engine);
  const Sequence sequence = engine.Await(0);
  EXPECT_TRUE(sequence.outbox->Put({.text = "a"}));
  call.AwaitMessages(1);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(call.ends(), 0u) << "nothing waits behind it";
  EXPECT_TRUE(sequence.outbox->Put({.text = "b"}));
  EXPECT_TRUE(absl::IsResourceExhausted(call.AwaitBreak()));
  EXPECT_TRUE(absl::IsResourceExhausted(call.AwaitEnd()));
  EXPECT_TRUE(absl::IsResourceExhausted(engine.AwaitCancel(sequence.id)));
}

TEST_F(TokenStreamTest, TheLastWriteIsWatchedToo) {
  ScriptedEngine engine(OptionsOf(milliseconds(50)));
  engine.AtStart([](const Sequence& sequence) {
    EXPECT_TRUE(sequence.outbox->Put(LastEvent(Finish::kStop, 1)));
  });
  TestCall call(&timer_, writer_, nullptr);
  call.Begin(&engine);
  EXPECT_TRUE(absl::IsResourceExhausted(call.AwaitBreak()));
  EXPECT_TRUE(call.AwaitEnd().ok()) << "it had ended";
  EXPECT_EQ(engine.cancelled(), 0u);
}

TEST_F(TokenStreamTest, ACancelAheadOfItsSequence) {
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30)));
  TestCall call(&timer_, writer_, nullptr);
  call.stream().Cancel(absl::CancelledError("left"));
  EXPECT_EQ(call.stream().cancelled(), absl::CancelledError("left"));
  EXPECT_EQ(call.ends(), 0u) << "whoever begins it ends it";
  call.Begin(&engine);
  EXPECT_EQ(call.AwaitEnd(), absl::CancelledError("left"));
  EXPECT_EQ(engine.cancelled(), 1u);
  TestCall refused(&timer_, writer_, nullptr);
  refused.stream().Cancel(absl::CancelledError("left"));
  refused.stream().Refuse(absl::InvalidArgumentError("x"));
  EXPECT_EQ(refused.AwaitEnd(), absl::CancelledError("left"));
}

TEST_F(TokenStreamTest, AWriteThatFailsEndsTheSequence) {
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30)));
  TestCall call(&timer_, writer_, nullptr);
  call.Begin(&engine);
  const Sequence sequence = engine.Await(0);
  EXPECT_TRUE(sequence.outbox->Put({.text = "a"}));
  call.AwaitMessages(1);
  call.stream().Written(false);
  EXPECT_TRUE(absl::IsCancelled(call.AwaitEnd()));
  EXPECT_TRUE(absl::IsCancelled(engine.AwaitCancel(sequence.id)));
}

TEST_F(TokenStreamTest, AnEngineMayTellAStreamWhoseServerIsGone) {
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30)));
  std::weak_ptr<TokenStream> weak;
  {
    auto writer = std::make_shared<StreamWriter>();
    TestCall call(&timer_, writer, nullptr);
    weak = call.shared_stream();
    call.Begin(&engine);
    writer->Stop();
  }
  EXPECT_TRUE(engine.Await(0).outbox->Put({.text = "a"}));
  const auto stream = weak.lock();
  ASSERT_NE(stream, nullptr) << "the outbox tells it";
  stream->Ask();
  EXPECT_EQ(stream.use_count(), 2) << "a writer that has stopped keeps nothing";
}

// Streams of which some are read slowly, some are left, and some end with an error.
TEST_F(TokenStreamTest, ManyAtOnce) {
  constexpr int kStreams = 64, kTokens = 200;
  ScriptedEngine engine(OptionsOf(std::chrono::seconds(30), 1000));
  auto writes = std::make_unique<WorkQueue>("writes", 4);
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < kStreams; ++i) {
    calls.push_back(std::make_unique<TestCall>(&timer_, writer_, writes.get()));
  }
  std::thread starts([&] {
    for (const auto& call : calls) call->Begin(&engine);
  });
  std::thread puts([&] {
    std::mt19937 random(1);
    for (int i = 0; i < kStreams; ++i) engine.Await(i);
    for (int token = 0; token < kTokens; ++token) {
      for (int i = 0; i < kStreams; ++i) {
        const bool room = engine.Await(i).outbox->Put(
            {.text = std::to_string(token) + " ", .tokens = {{.token = token}}});
        EXPECT_TRUE(room);
      }
      if (random() % 16 == 0) std::this_thread::sleep_for(milliseconds(1));
    }
    for (int i = 0; i < kStreams; ++i) {
      const Sequence sequence = engine.Await(i);
      if (i % 4 == 1) {
        sequence.outbox->Close(absl::DataLossError("nan"));
        continue;
      }
      EXPECT_TRUE(sequence.outbox->Put(LastEvent(Finish::kLength, kTokens)));
      sequence.outbox->Close(absl::OkStatus());
    }
  });
  std::thread cancels([&] {
    engine.Await(kStreams - 1);
    for (int i = 2; i < kStreams; i += 4) {
      calls[i]->stream().Cancel(absl::CancelledError("left"));
    }
  });
  starts.join();
  puts.join();
  cancels.join();
  std::string whole;
  for (int token = 0; token < kTokens; ++token) whole += std::to_string(token) + " ";
  for (int i = 0; i < kStreams; ++i) {
    const absl::Status end = calls[i]->AwaitEnd();
    if (i % 4 == 2) {
      EXPECT_TRUE(end.ok() || absl::IsCancelled(end)) << end;
      EXPECT_TRUE(whole.starts_with(TextOf(calls[i]->messages())));
      continue;
    }
    EXPECT_EQ(end.ok(), i % 4 != 1) << end;
    EXPECT_EQ(TextOf(calls[i]->messages()), whole);
  }
  writes.reset();  // ahead of the calls that it tells
}

}  // namespace
}  // namespace athanor
