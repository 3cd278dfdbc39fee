// Tests which requests are recorded, and what their spans say.
#include "server/tracing/tracer.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tracing/tracer_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::IsNull;
using ::testing::NotNull;

constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kNotSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
constexpr int64_t kAll = 1'000'000;

class TracerTest : public testing::Test {
 protected:
  std::unique_ptr<Tracer> Make(int64_t ratio) {
    auto sender = std::make_unique<FakeSender>();
    collector_ = sender->collector();
    return std::make_unique<Tracer>(ratio, Quick(), std::move(sender),
                                    opentelemetry::proto::resource::v1::Resource(), &metrics_);
  }

  const TraceTime now_ = std::chrono::steady_clock::now();
  MetricCells metrics_{MetricScope::kServer};
  std::shared_ptr<FakeCollector> collector_;
};

TEST_F(TracerTest, TheParentsFlagWinsOverTheRatio) {
  const auto none = Make(0), all = Make(kAll);
  EXPECT_THAT(none->Begin({kSampled}, "a", now_), NotNull());
  EXPECT_THAT(none->Begin({}, "a", now_), IsNull());
  EXPECT_THAT(none->BeginOwn("a", now_), IsNull());
  EXPECT_THAT(all->Begin({kNotSampled}, "a", now_), IsNull());
  EXPECT_THAT(all->Begin({}, "a", now_), NotNull());
  EXPECT_THAT(all->BeginOwn("a", now_), NotNull());
}

TEST_F(TracerTest, AMalformedParentIsNone) {
  const auto none = Make(0), all = Make(kAll);
  const std::string zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
  EXPECT_THAT(none->Begin({zeros}, "a", now_), IsNull());
  const auto trace = all->Begin({zeros, "a=1"}, "a", now_);
  ASSERT_THAT(trace, NotNull());
  trace->End();
  const OtlpSpan span = collector_->AwaitSpans(1)[0];
  EXPECT_EQ(span.parent_span_id(), "");
  EXPECT_EQ(span.trace_state(), "");  // that of no parent
  EXPECT_EQ(span.flags(), 0x101u);
}

TEST_F(TracerTest, TheRatioIsAboutTheShare) {
  const auto tracer = Make(kAll / 4);
  int recorded = 0;
  for (int i = 0; i < 4'000; ++i) recorded += tracer->BeginOwn("a", now_) != nullptr ? 1 : 0;
  // Ten standard deviations of 27.
  EXPECT_GT(recorded, 1'000 - 270);
  EXPECT_LT(recorded, 1'000 + 270);
}

TEST_F(TracerTest, SpansHaveTheParentsTraceAndTheirOwnNumbers) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->Begin({kSampled, "v=1, w=2"}, "ModelInfer", now_);
  EXPECT_EQ(trace->id(), "0af7651916cd43dd8448eb211c80319c");
  trace->Child("queue", now_, now_ + milliseconds(2));
  trace->Child("run", now_ + milliseconds(2), now_ + milliseconds(5))
      .Set("text", "plan")
      .Set("number", int64_t{7})
      .Event("half", now_ + milliseconds(3));
  trace->Set("athanor.model.name", std::string("digits"));
  trace->Rename("inference/ModelInfer");
  trace->End(now_ + milliseconds(9));
  const std::vector<OtlpSpan> spans = collector_->AwaitSpans(3);
  const OtlpSpan &queue = spans[0], &run = spans[1], &own = spans[2];
  EXPECT_EQ(own.name(), "inference/ModelInfer");
  EXPECT_EQ(own.kind(), OtlpSpan::SPAN_KIND_SERVER);
  EXPECT_EQ(own.parent_span_id(), SpanIdBytes(0xb7ad6b7169203331));
  EXPECT_EQ(own.flags(), 0x301u);  // sampled; the parent is another process's
  EXPECT_EQ(AttributeOf(own, "athanor.model.name"), "digits");
  EXPECT_EQ(run.name(), "run");
  EXPECT_EQ(run.kind(), OtlpSpan::SPAN_KIND_INTERNAL);
  EXPECT_EQ(AttributeOf(run, "text"), "plan");
  EXPECT_EQ(AttributeOf(run, "number"), "7");
  std::set<std::string> ids;
  for (const OtlpSpan& span : spans) {
    EXPECT_EQ(span.trace_id(), own.trace_id());
    EXPECT_EQ(span.trace_state(), "v=1,w=2");
    EXPECT_EQ(span.span_id().size(), 8u);
    ids.insert(span.span_id());
    if (&span != &own) {
      EXPECT_EQ(span.parent_span_id(), own.span_id());
      EXPECT_EQ(span.flags(), 0x101u);
    }
  }
  EXPECT_EQ(ids.size(), 3u);
  // All times are of one clock.
  const uint64_t begin = own.start_time_unix_nano();
  EXPECT_EQ(own.end_time_unix_nano(), begin + 9'000'000);
  EXPECT_EQ(queue.start_time_unix_nano(), begin);
  EXPECT_EQ(queue.end_time_unix_nano(), begin + 2'000'000);
  EXPECT_EQ(run.start_time_unix_nano(), begin + 2'000'000);
  ASSERT_EQ(run.events_size(), 1);
  EXPECT_EQ(run.events(0).time_unix_nano(), begin + 3'000'000);
}

TEST_F(TracerTest, PartsHaveParts) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("a", now_);
  {
    auto part = trace->Child("part", now_, now_ + milliseconds(3));
    part.Child("first", now_, now_ + milliseconds(1));
    part.Set("reasons", std::vector<std::string>{"stop", "length"});
  }
  trace->End();
  const std::vector<OtlpSpan> spans = collector_->AwaitSpans(3);
  EXPECT_EQ(spans[0].name(), "first");
  EXPECT_EQ(spans[1].name(), "part");
  EXPECT_EQ(spans[0].parent_span_id(), spans[1].span_id());
  EXPECT_EQ(spans[1].parent_span_id(), spans[2].span_id());
  const auto& reasons = spans[1].attributes(0).value().array_value();
  ASSERT_EQ(reasons.values_size(), 2);
  EXPECT_EQ(reasons.values(1).string_value(), "length");
}

TEST_F(TracerTest, AnAttributeIsThereOnce) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("a", now_);
  trace->Set("model", "first");
  trace->Set("other", int64_t{1});
  trace->Set("model", "second");
  trace->End();
  const OtlpSpan span = collector_->AwaitSpans(1)[0];
  EXPECT_EQ(span.attributes_size(), 2);
  EXPECT_EQ(AttributeOf(span, "model"), "second");
}

TEST_F(TracerTest, FailuresAreStatusAndType) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("compile", now_);
  trace->Fail("INTERNAL", "bad \xff byte");
  trace->End();
  const OtlpSpan span = collector_->AwaitSpans(1)[0];
  EXPECT_EQ(span.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(span.status().message(), "bad \xEF\xBF\xBD byte");
  EXPECT_EQ(AttributeOf(span, "error.type"), "INTERNAL");
}

TEST_F(TracerTest, TextsAreCutBetweenCharacters) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("a", now_);
  std::string euros = "x";
  for (int i = 0; i < 1'000; ++i) euros += "€";
  trace->Set("long", euros);
  trace->End();
  const std::string kept = AttributeOf(collector_->AwaitSpans(1)[0], "long");
  EXPECT_EQ(kept, euros.substr(0, 1 + 3 * 341));
}

TEST_F(TracerTest, ARequestsSpansAndLinksAreBounded) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("a", now_);
  const std::vector<TraceContext> others(200, {1, 2, 3, true});
  trace->Child("run", now_, now_).Link(others);
  for (int i = 0; i < 300; ++i) trace->Child("more", now_, now_);
  trace->End();
  const std::vector<OtlpSpan> spans = collector_->AwaitSpans(257);
  EXPECT_EQ(spans.size(), 257u);
  EXPECT_EQ(spans[0].links_size(), 128);
  EXPECT_EQ(spans[0].dropped_links_count(), 72u);
  EXPECT_EQ(spans[0].links(0).span_id(), SpanIdBytes(3));
  EXPECT_EQ(metrics_.value(Metric::kSpansDropped, static_cast<int>(SpanDrop::kRequest)), 45);
}

TEST_F(TracerTest, WhatComesBehindTheEndIsDropped) {
  const auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("a", now_);
  trace->End(now_ + milliseconds(1));
  trace->Child("late", now_, now_);
  trace->Set("late", int64_t{1});
  trace->Fail("late", "late");
  trace->End(now_ + milliseconds(2));
  tracer->BeginOwn("b", now_)->End();
  const std::vector<OtlpSpan> spans = collector_->AwaitSpans(2);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].attributes_size(), 0);
  EXPECT_EQ(spans[1].name(), "b");
}

TEST_F(TracerTest, TheLastOwnerEndsIt) {
  const auto tracer = Make(kAll);
  tracer->BeginOwn("dropped", now_);
  EXPECT_EQ(collector_->AwaitSpans(1)[0].name(), "dropped");
}

TEST_F(TracerTest, TracesOutliveTheTracer) {
  auto tracer = Make(kAll);
  const auto trace = tracer->BeginOwn("late", now_);
  tracer.reset();
  trace->Child("part", now_, now_);
  trace->End();
}

TEST_F(TracerTest, ManyThreadsRecordAtOnce) {
  const auto tracer = Make(kAll);
  const auto shared = tracer->BeginOwn("shared", now_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        shared->Child("part", now_, now_).Set("i", int64_t{i});
        shared->Set("last", int64_t{i});
        tracer->Begin({kSampled}, "own", now_)->End();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  shared->End();
  EXPECT_EQ(collector_->AwaitSpans(401).size(), 401u);
}

}  // namespace
}  // namespace athanor
