#include "server/http/exchange.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/exchange_testing.h"
#include "server/tracing/tracer_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

class Seen final : public HttpExchange::Watcher {
 public:
  void Written() override { Add(&written_); }
  void Left() override { Add(&left_); }
  void Await(int written, int left) {
    MutexLock lock(mu_);
    while (written_ < written || left_ < left) cv_.Wait(lock);
    EXPECT_EQ(written_, written);
    EXPECT_EQ(left_, left);
  }

 private:
  void Add(int* count) {
    MutexLock lock(mu_);
    ++*count;
    cv_.NotifyAll();
  }
  Mutex mu_;
  CondVar cv_;
  int written_ = 0;
  int left_ = 0;
};

TEST(HttpExchangeTest, AnAnswerIsWhole) {
  FakeClient client({.method = "GET", .path = "/"}, "me");
  const auto exchange = client.Ask();
  EXPECT_EQ(exchange->client(), "me");
  exchange->Answer(404, "text/plain", "none", {{"Allow", "GET"}});
  exchange->Answer(200, "text/plain", "second");
  exchange->Begin(200, "text/plain");
  exchange->Write("more");
  exchange->End("more");
  const FakeClient::Answer answer = client.AwaitEnd();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(answer.headers,
              ElementsAre(Pair("Allow", "GET"), Pair("x-request-id", exchange->request_id())));
  EXPECT_THAT(answer.pieces, ElementsAre("none"));
}

// Records each request.
class RecordedExchangeTest : public testing::Test {
 protected:
  RecordedExchangeTest() {
    auto sender = std::make_unique<FakeSender>();
    collector_ = sender->collector();
    tracer_ = std::make_unique<Tracer>(1'000'000, Quick(), std::move(sender),
                                       opentelemetry::proto::resource::v1::Resource(), &metrics_);
  }
  std::shared_ptr<HttpExchange> Ask(HttpHeaders headers = {}) {
    client_ = std::make_unique<FakeClient>(HttpRequest{.method = "GET",
                                                       .path = "/a/b",
                                                       .query = "key=secret",
                                                       .peer = "ipv4:10.0.0.7:1",
                                                       .headers = std::move(headers)});
    auto exchange = client_->Ask();
    exchange->Record(tracer_.get(), "/a/*");
    return exchange;
  }
  OtlpSpan Span() { return collector_->AwaitSpans(1)[0]; }

  MetricCells metrics_{MetricScope::kServer};
  std::shared_ptr<FakeCollector> collector_;
  std::unique_ptr<Tracer> tracer_;
  std::unique_ptr<FakeClient> client_;
};

TEST_F(RecordedExchangeTest, AnAnswerEndsTheSpan) {
  const auto exchange = Ask({{"x-request-id", "mine"}});
  exchange->Answer(404, "text/plain", "none");
  const OtlpSpan span = Span();
  EXPECT_EQ(span.name(), "GET /a/*");
  EXPECT_EQ(AttributeOf(span, "http.route"), "/a/*");
  EXPECT_EQ(AttributeOf(span, "http.response.status_code"), "404");
  EXPECT_EQ(AttributeOf(span, "url.path"), "/a/b");
  EXPECT_EQ(AttributeOf(span, "client.address"), "10.0.0.7");
  EXPECT_EQ(AttributeOf(span, "athanor.request_id"), "mine");
  EXPECT_EQ(span.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_UNSET);
  EXPECT_THAT(span.SerializeAsString(), Not(HasSubstr("secret")));
}

TEST_F(RecordedExchangeTest, OnlyTheServersFaultsAreErrors) {
  const auto exchange = Ask();
  exchange->Answer(503, "text/plain", "draining");
  const OtlpSpan span = Span();
  EXPECT_EQ(span.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(AttributeOf(span, "error.type"), "503");
}

TEST_F(RecordedExchangeTest, AStreamEndsItWithItsLastPiece) {
  const auto exchange = Ask();
  exchange->Begin(200, "text/event-stream");
  exchange->Write("a");
  exchange->trace()->Child("part", std::chrono::steady_clock::now(),
                           std::chrono::steady_clock::now());
  exchange->End("b");
  EXPECT_EQ(collector_->AwaitSpans(2)[0].name(), "part");
}

TEST_F(RecordedExchangeTest, WhatIsCutOrLeftSaysSo) {
  Ask()->Break();
  EXPECT_EQ(Span().status().message(), "the answer was broken off");
  Ask()->Leave();
  EXPECT_EQ(collector_->AwaitSpans(2)[1].status().message(), "the client left");
  Ask();  // dropped: it is answered 500
  EXPECT_EQ(AttributeOf(collector_->AwaitSpans(3)[2], "http.response.status_code"), "500");
}

TEST_F(RecordedExchangeTest, ParentsComeInHeaders) {
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0";
  EXPECT_EQ(Ask({{"Traceparent", parent + "0"}})->trace(), nullptr);
  Ask({{"Traceparent", parent + "1"}, {"Tracestate", "a=1"}, {"tracestate", "b=2"}})
      ->Answer(200, "text/plain", "");
  EXPECT_EQ(Span().parent_span_id(), SpanIdBytes(0xb7ad6b7169203331));
  EXPECT_EQ(Span().trace_state(), "a=1,b=2");
  Ask({{"traceparent", parent + "1"}, {"traceparent", parent + "1"}})
      ->Answer(200, "text/plain", "");
  EXPECT_EQ(collector_->AwaitSpans(2)[1].parent_span_id(), "");
}

TEST(HttpExchangeTest, AStreamReportsEachPiece) {
  FakeClient client({});
  const auto exchange = client.Ask();
  const auto seen = std::make_shared<Seen>();
  exchange->Watch(seen);
  exchange->Write("too early");
  exchange->Begin(200, "text/event-stream");
  exchange->Write("a");
  seen->Await(1, 0);
  exchange->Write("b");
  seen->Await(2, 0);
  exchange->End("c");
  seen->Await(3, 0);
  exchange->Write("too late");
  exchange->Leave();  // nobody leaves what has ended
  seen->Await(3, 0);
  const FakeClient::Answer answer = client.AwaitEnd();
  EXPECT_THAT(answer.pieces, ElementsAre("a", "b", "c"));
  EXPECT_FALSE(answer.whole);
  EXPECT_FALSE(answer.cut);
}

TEST(HttpExchangeTest, WhoLeavesIsToldOnceAlsoToLateWatchers) {
  FakeClient client({});
  const auto exchange = client.Ask();
  const auto early = std::make_shared<Seen>(), late = std::make_shared<Seen>();
  exchange->Watch(early);
  client.Leave();
  client.Leave();
  early->Await(0, 1);
  exchange->Watch(late);
  late->Await(0, 1);
  early->Await(0, 1);
}

TEST(HttpExchangeTest, WhatIsKeptGoesAtTheEnd) {
  const auto kept = std::make_shared<int>();
  FakeClient client({});
  auto exchange = client.Ask();
  exchange->Keep(kept);
  client.Hold();
  exchange->Answer(200, "", "");
  exchange.reset();  // whoever has answered need not stay
  EXPECT_EQ(kept.use_count(), 2);
  client.Hold(false);
  while (kept.use_count() > 1) std::this_thread::yield();

  // Who works for a client that has left is still at work.
  FakeClient leaving({}), broken({});
  auto left = leaving.Ask(), cut = broken.Ask();
  left->Keep(kept);
  cut->Keep(kept);
  leaving.Leave();
  cut->Break();
  EXPECT_TRUE(broken.Now().cut);
  EXPECT_EQ(kept.use_count(), 3);
  left.reset();
  cut.reset();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(HttpExchangeTest, WhatIsDroppedIsAnswered) {
  FakeClient dropped({});
  dropped.Ask().reset();
  EXPECT_EQ(dropped.AwaitEnd().status, 500);
  EXPECT_THAT(dropped.AwaitEnd().body(), HasSubstr("500"));

  // Who has left needs no answer that looks like a defect.
  FakeClient leaving({});
  auto left = leaving.Ask();
  leaving.Leave();
  left.reset();
  EXPECT_EQ(leaving.AwaitEnd().status, 0);
  EXPECT_TRUE(leaving.AwaitEnd().cut);

  FakeClient begun({});
  begun.Ask()->Begin(200, "text/plain");
  const FakeClient::Answer answer = begun.AwaitEnd();
  EXPECT_TRUE(answer.cut);
  EXPECT_FALSE(answer.ended);
  EXPECT_THAT(answer.pieces, IsEmpty());
}

TEST(HttpExchangeTest, AnEndIsCutUntilItIsWritten) {
  for (const bool written : {false, true}) {
    FakeClient client({});
    const auto exchange = client.Ask();
    const auto seen = std::make_shared<Seen>();
    exchange->Watch(seen);
    client.Hold(!written);
    exchange->Begin(200, "text/plain");
    exchange->End("all");
    if (written) seen->Await(1, 0);
    exchange->Break();
    EXPECT_EQ(client.Now().cut, !written);
  }
}

TEST(HttpExchangeTest, OutlivesItsConnection) {
  std::shared_ptr<HttpExchange> exchange;
  {
    FakeClient client({});
    exchange = client.Ask();
  }
  exchange->Begin(200, "text/plain");
  exchange->Write("x");
  exchange->Break();
  exchange->End();
}

// One thread answers while others leave, break and watch.
TEST(HttpExchangeTest, AllAtOnce) {
  for (int i = 0; i < 200; ++i) {
    FakeClient client({});
    const auto exchange = client.Ask();
    const auto seen = std::make_shared<Seen>();
    std::thread leaves([&] { client.Leave(); });
    std::thread breaks([&] { exchange->Break(); });
    exchange->Watch(seen);
    exchange->Begin(200, "text/plain");
    exchange->Write("x");
    exchange->End("y");
    leaves.join();
    breaks.join();
    EXPECT_LE(client.Now().pieces.size(), 2u);
  }
}

TEST(HttpRequestTest, HeadersAreFoundInAnyCase) {
  const HttpRequest request = {.headers = {{"Host", "a"}, {"X-Two", "1"}, {"x-two", "2"}}};
  ASSERT_NE(request.Header("HOST"), nullptr);
  EXPECT_EQ(*request.Header("HOST"), "a");
  EXPECT_EQ(*request.Header("x-two"), "1");
  EXPECT_EQ(request.Header("x"), nullptr);
}

}  // namespace
}  // namespace athanor
