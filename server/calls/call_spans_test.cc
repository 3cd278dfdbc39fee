#include "server/calls/call_spans.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tracing/tracer_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

class CallSpansTest : public testing::Test {
 protected:
  CallSpansTest() {
    auto sender = std::make_unique<FakeSender>();
    collector_ = sender->collector();
    tracer_ = std::make_unique<Tracer>(1'000'000, Quick(), std::move(sender),
                                       opentelemetry::proto::resource::v1::Resource(), &metrics_);
    trace_ = tracer_->BeginOwn("request", now_);
  }
  // Ends the trace; returns its spans, its own last.
  std::vector<OtlpSpan> End(size_t spans) {
    trace_->End(now_ + milliseconds(100));
    return collector_->AwaitSpans(spans);
  }
  int64_t Ms(uint64_t time, const OtlpSpan& own) const {
    return static_cast<int64_t>(time - own.start_time_unix_nano()) / 1'000'000;
  }

  const TraceTime now_ = std::chrono::steady_clock::now();
  MetricCells metrics_{MetricScope::kServer};
  std::shared_ptr<FakeCollector> collector_;
  std::unique_ptr<Tracer> tracer_;
  std::shared_ptr<Trace> trace_;
};

TEST_F(CallSpansTest, ARunAndWhatItWaitedFor) {
  ServedPlan plan;
  plan.bucket = "b=1..64";
  RunTimes times{.exec_us = 5'000, .batch_rows = 3, .batch_us = 2'000, .ran = true};
  times.began = now_ + milliseconds(10);
  const TraceContext mine = trace_->context(), other{7, 8, 9, true};
  times.sharers =
      std::make_shared<const std::vector<TraceContext>>(std::vector<TraceContext>{mine, other});
  AddRun(*trace_, now_ + milliseconds(1), plan, times);
  const std::vector<OtlpSpan> spans = End(4);
  const OtlpSpan &queue = spans[0], &joins = spans[1], &run = spans[2], &own = spans[3];
  EXPECT_EQ(queue.name(), "queue");
  EXPECT_EQ(Ms(queue.start_time_unix_nano(), own), 1);
  EXPECT_EQ(Ms(queue.end_time_unix_nano(), own), 8);
  EXPECT_EQ(joins.name(), "batch wait");
  EXPECT_EQ(Ms(joins.end_time_unix_nano(), own), 10);
  EXPECT_EQ(run.name(), "run");
  EXPECT_EQ(Ms(run.end_time_unix_nano(), own), 15);
  EXPECT_EQ(AttributeOf(run, "athanor.plan.bucket"), "b=1..64");
  EXPECT_EQ(AttributeOf(run, "athanor.batch.rows"), "3");
  ASSERT_EQ(run.links_size(), 1);  // not itself
  EXPECT_EQ(run.links(0).span_id(), SpanIdBytes(9));
}

TEST_F(CallSpansTest, WhatDidNotRunHasNoRun) {
  RunTimes times;
  times.began = now_ + milliseconds(10);
  AddRun(*trace_, now_, ServedPlan(), times);
  const std::vector<OtlpSpan> spans = End(2);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name(), "queue");
}

// Keeps what it is given.
class Sink final : public TokenSink {
 public:
  bool Write(std::vector<GenerateEvent> events) override { return Add(std::move(events)); }
  bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) override {
    ended = status;
    return Add(std::move(events));
  }
  void End(const absl::Status& status) override { ended = status; }
  void Break(const absl::Status& why) override { broken = why; }

  std::vector<std::string> texts;
  absl::Status ended, broken;

 private:
  bool Add(std::vector<GenerateEvent> events) {
    for (const GenerateEvent& event : events) texts.push_back(event.text);
    return true;
  }
};

TEST_F(CallSpansTest, ASequenceIsRecordedAheadOfItsEnd) {
  Sink sink;
  RecordedSink recorded(trace_, &sink,
                        [this] { return RecordedSink::Facts{now_, "chat", "tiny", "2"}; });
  std::vector<GenerateEvent> events(1);
  events[0].text = "a";
  EXPECT_TRUE(recorded.Write(events));
  events[0].text = "b";
  events[0].finish = Finish::kStop;
  SequenceSummary& summary = events[0].summary.emplace();
  summary.started = now_ + milliseconds(2);
  summary.first_token = now_ + milliseconds(5);
  summary.last_token = now_ + milliseconds(9);
  summary.prompt_tokens = 11;
  summary.generated_tokens = 2;
  EXPECT_TRUE(recorded.WriteLast(events, absl::OkStatus()));
  EXPECT_THAT(sink.texts, ElementsAre("a", "b"));
  recorded.Break(absl::CancelledError("slow"));
  EXPECT_TRUE(absl::IsCancelled(sink.broken));
  const std::vector<OtlpSpan> spans = End(5);
  std::vector<std::string> names;
  for (const OtlpSpan& span : spans) names.push_back(span.name());
  EXPECT_THAT(names, ElementsAre("queue", "prefill", "decode", "chat tiny", "request"));
  const OtlpSpan &sequence = spans[3], &own = spans[4];
  EXPECT_EQ(AttributeOf(sequence, "gen_ai.usage.input_tokens"), "11");
  EXPECT_EQ(AttributeOf(sequence, "gen_ai.usage.output_tokens"), "2");
  EXPECT_EQ(AttributeOf(sequence, "gen_ai.response.model"), "tiny:2");
  ASSERT_EQ(sequence.events_size(), 1);
  EXPECT_EQ(Ms(sequence.events(0).time_unix_nano(), own), 5);
  EXPECT_EQ(Ms(sequence.end_time_unix_nano(), own), 9);
  EXPECT_EQ(spans[0].parent_span_id(), sequence.span_id());
}

TEST_F(CallSpansTest, ASequenceWithoutTokensHasNoFirstOne) {
  Sink sink;
  RecordedSink recorded(
      trace_, &sink, [this] { return RecordedSink::Facts{now_, "text_completion", "tiny", "1"}; });
  std::vector<GenerateEvent> events(1);
  events[0].finish = Finish::kLength;
  events[0].summary.emplace().started = now_ + milliseconds(1);
  recorded.WriteLast(events, absl::OkStatus());
  const std::vector<OtlpSpan> spans = End(3);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name(), "queue");
  EXPECT_EQ(spans[1].events_size(), 0);
}

TEST_F(CallSpansTest, AFailedSequenceHasItsErrorAndWhatWasWritten) {
  const auto facts = [this] { return RecordedSink::Facts{now_, "chat", "tiny", "2"}; };
  std::vector<GenerateEvent> events(1);
  events[0].tokens.resize(3);
  Sink at_once, behind, left;
  RecordedSink(trace_, &at_once, facts).End(absl::UnavailableError("draining"));
  RecordedSink recorded(trace_, &behind, facts);
  recorded.Write(events);
  recorded.WriteLast(events, absl::ResourceExhaustedError("no memory"));
  RecordedSink(trace_, &left, facts).End(absl::CancelledError("the client left"));
  EXPECT_TRUE(absl::IsUnavailable(at_once.ended));
  EXPECT_TRUE(absl::IsResourceExhausted(behind.ended));
  const std::vector<OtlpSpan> spans = End(4);
  ASSERT_EQ(spans.size(), 4u) << "a span each, and the request's";
  const auto failed = [](const OtlpSpan& span) {
    return span.status().code() == opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR;
  };
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(spans[i].name(), "chat tiny");
    EXPECT_EQ(AttributeOf(spans[i], "gen_ai.response.model"), "tiny:2");
    EXPECT_EQ(AttributeOf(spans[i], "gen_ai.response.finish_reasons"), "none");
    EXPECT_EQ(spans[i].start_time_unix_nano(), spans[3].start_time_unix_nano());
    EXPECT_EQ(failed(spans[i]), i < 2);
  }
  EXPECT_EQ(AttributeOf(spans[0], "error.type"), "UNAVAILABLE");
  EXPECT_EQ(spans[0].status().message(), "draining");
  EXPECT_EQ(AttributeOf(spans[0], "gen_ai.usage.output_tokens"), "0");
  EXPECT_EQ(AttributeOf(spans[1], "error.type"), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(AttributeOf(spans[1], "gen_ai.usage.output_tokens"), "6");
  EXPECT_EQ(AttributeOf(spans[2], "error.type"), "CANCELLED");
}

TEST_F(CallSpansTest, WhatDidNotStartHasNoSpan) {
  Sink sink;
  RecordedSink recorded(trace_, &sink, [] { return std::nullopt; });
  recorded.End(absl::UnavailableError("draining"));
  EXPECT_TRUE(absl::IsUnavailable(sink.ended));
  EXPECT_EQ(End(1).size(), 1u);
}

}  // namespace
}  // namespace athanor
