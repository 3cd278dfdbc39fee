// Tests what becomes of spans while the collector takes, refuses, hangs or is away.
#include "server/tracing/span_exporter.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"
#include "server/tracing/tracer_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::Le;

class SpanExporterTest : public testing::Test {
 protected:
  void Start(const ExporterOptions& options) {
    auto sender = std::make_unique<FakeSender>();
    collector_ = sender->collector();
    opentelemetry::proto::resource::v1::Resource resource;
    resource.add_attributes()->set_key("service.name");
    exporter_ = std::make_unique<SpanExporter>(options, std::move(sender), resource, &metrics_);
  }
  void Put(int spans) { exporter_->queue()->Put(std::vector<OtlpSpan>(spans)); }
  int64_t Dropped(SpanDrop why) const {
    return metrics_.value(Metric::kSpansDropped, static_cast<int>(why));
  }
  int64_t Sent() const { return metrics_.value(Metric::kSpansSent); }

  MetricCells metrics_{MetricScope::kServer};
  std::shared_ptr<FakeCollector> collector_;
  std::unique_ptr<SpanExporter> exporter_;
};

TEST_F(SpanExporterTest, SpansGoInBatchesWithWhoSendsThem) {
  ExporterOptions options = Quick();
  options.batch = 10;
  options.gather = milliseconds(10'000);  // batches are full
  Start(options);
  for (int i = 0; i < 5; ++i) Put(4);
  collector_->AwaitSpans(20);
  EXPECT_THAT(collector_->batches(), testing::ElementsAre(10, 10));
  const SpanSender::Request last = collector_->last();
  EXPECT_EQ(last.resource_spans(0).resource().attributes(0).key(), "service.name");
  EXPECT_EQ(last.resource_spans(0).scope_spans(0).scope().name(), "athanord");
  exporter_.reset();
  EXPECT_EQ(Sent(), 20);
}

TEST_F(SpanExporterTest, ASpanAloneIsSentToo) {
  Start(Quick());
  Put(1);
  EXPECT_EQ(collector_->AwaitSpans(1).size(), 1u);
}

TEST_F(SpanExporterTest, TheEndSendsWhatIsLeft) {
  ExporterOptions options = Quick();
  options.batch = 10;
  options.gather = milliseconds(100'000);
  Start(options);
  Put(25);
  exporter_.reset();
  EXPECT_EQ(collector_->AwaitSpans(25).size(), 25u);
  EXPECT_THAT(collector_->batches(), Each(Le(10u)));
  EXPECT_EQ(Sent(), 25);
}

TEST_F(SpanExporterTest, AFullQueueDropsWholeRequestsAndSaysHowMany) {
  ExporterOptions options = Quick();
  options.most_queued = 10;
  Start(options);
  collector_->Hang();
  Put(1);
  collector_->AwaitSends(1);  // and the queue is empty
  Put(6);
  Put(5);
  Put(4);
  EXPECT_EQ(Dropped(SpanDrop::kQueue), 5);
  collector_->Answer(absl::OkStatus());
  EXPECT_EQ(collector_->AwaitSpans(11).size(), 11u);
}

TEST_F(SpanExporterTest, WhatDoesNotArriveIsSentAgain) {
  Start(Quick());
  collector_->Answer(absl::UnavailableError("connection refused"));
  Put(3);
  collector_->AwaitSends(4);
  collector_->Answer(absl::OkStatus());
  EXPECT_EQ(collector_->AwaitSpans(3).size(), 3u);
  exporter_.reset();
  EXPECT_EQ(Sent(), 3);
  EXPECT_EQ(Dropped(SpanDrop::kUnsent), 0);
}

TEST_F(SpanExporterTest, WhatAFullCollectorWantsLaterIsKept) {
  Start(Quick());
  collector_->Answer(
      WithRetryAfter(absl::ResourceExhaustedError("too many spans"), milliseconds(1)));
  Put(3);
  collector_->AwaitSends(4);
  collector_->Answer(absl::OkStatus());
  EXPECT_EQ(collector_->AwaitSpans(3).size(), 3u);
  exporter_.reset();
  EXPECT_EQ(Sent(), 3);
  EXPECT_EQ(Dropped(SpanDrop::kRefused), 0);
}

// Spans wait in the queue alone, which has its bound, as long as the collector has asked for.
TEST_F(SpanExporterTest, WhileTheCollectorWantsNoneTheQueueIsBounded) {
  ExporterOptions options = Quick();
  options.most_queued = 4;
  Start(options);
  collector_->Answer(
      WithRetryAfter(absl::ResourceExhaustedError("too many spans"), std::chrono::minutes(1)));
  Put(3);
  collector_->AwaitSends(1);
  Put(4);
  Put(1);
  EXPECT_EQ(Dropped(SpanDrop::kQueue), 1);
  exporter_.reset();
  EXPECT_EQ(Dropped(SpanDrop::kUnsent) + Dropped(SpanDrop::kRefused), 7);
  EXPECT_EQ(collector_->sends(), 4) << "each batch has one more attempt at the end";
}

TEST_F(SpanExporterTest, WhatWaitsIsSentAtTheEnd) {
  Start(Quick());
  collector_->Answer(
      WithRetryAfter(absl::ResourceExhaustedError("too many spans"), std::chrono::minutes(1)));
  Put(3);
  collector_->AwaitSends(1);
  collector_->Answer(absl::OkStatus());
  exporter_.reset();
  EXPECT_EQ(collector_->batches(), std::vector<size_t>{3});
}

TEST_F(SpanExporterTest, AFullCollectorThatNamesNoTimeHasRefused) {
  Start(Quick());
  collector_->Answer(absl::ResourceExhaustedError("too many spans"));
  Put(3);
  collector_->AwaitSends(1);
  collector_->Answer(absl::OkStatus());
  Put(2);
  collector_->AwaitSpans(2);
  exporter_.reset();
  EXPECT_EQ(collector_->batches(), std::vector<size_t>{2});
  EXPECT_EQ(Dropped(SpanDrop::kRefused), 3);
}

TEST_F(SpanExporterTest, OldBatchesAreGivenUp) {
  ExporterOptions options = Quick();
  options.give_up = milliseconds(0);
  Start(options);
  collector_->Answer(absl::DeadlineExceededError("slow"));
  Put(3);
  collector_->AwaitSends(1);
  collector_->Answer(absl::OkStatus());
  Put(2);
  collector_->AwaitSpans(2);
  EXPECT_EQ(collector_->batches(), std::vector<size_t>{2});
  EXPECT_EQ(Dropped(SpanDrop::kUnsent), 3);
}

TEST_F(SpanExporterTest, WhatIsRefusedIsNotSentAgain) {
  Start(Quick());
  collector_->Answer(absl::InvalidArgumentError("no such thing"));
  Put(3);
  collector_->AwaitSends(1);
  collector_->Answer(absl::OkStatus(), /*refused=*/1);
  Put(2);
  collector_->AwaitSpans(2);
  exporter_.reset();
  EXPECT_EQ(collector_->batches(), std::vector<size_t>{2});
  EXPECT_EQ(Dropped(SpanDrop::kRefused), 4);
  EXPECT_EQ(Sent(), 1);
}

TEST_F(SpanExporterTest, ACollectorThatLiesAboutWhatItRefusedIsCounted) {
  Start(Quick());
  collector_->Answer(absl::OkStatus(), /*refused=*/1'000);
  Put(2);
  collector_->AwaitSpans(2);
  exporter_.reset();
  EXPECT_EQ(Dropped(SpanDrop::kRefused), 2);
  EXPECT_EQ(Sent(), 0);
}

TEST_F(SpanExporterTest, AHangingCollectorDoesNotHoldUpTheEnd) {
  ExporterOptions options = Quick();
  options.last = milliseconds(1);
  Start(options);
  collector_->Hang();
  Put(1);
  collector_->AwaitSends(1);
  Put(2);
  exporter_.reset();
  EXPECT_EQ(Dropped(SpanDrop::kUnsent), 3);
}

TEST_F(SpanExporterTest, TheEndDoesNotWaitToTryAgain) {
  ExporterOptions options = Quick();
  options.batch = 1;
  options.first_retry = options.longest_retry = milliseconds(50'000);
  Start(options);
  collector_->Answer(absl::UnavailableError("connection refused"));
  Put(2);
  collector_->AwaitSends(1);
  exporter_.reset();
  EXPECT_EQ(Dropped(SpanDrop::kUnsent), 2);
}

}  // namespace
}  // namespace athanor
