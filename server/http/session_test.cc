// Tests what a connection does with bodies, streams and clients that leave, over sockets.
#include "server/http/session.h"

#include <netinet/tcp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/log.h"
#include "server/http/http_server.h"
#include "server/http/wire_testing.h"

namespace athanor {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kMostBody = int64_t{8} << 20;
constexpr char kHost[] = "Host: a\r\n";

// Counts what a watcher is told.
class Seen final : public HttpExchange::Watcher {
 public:
  void Written() override { Add(&written_); }
  void Left() override { Add(&left_); }
  void AwaitWritten(int count) { Await(&written_, count); }
  void AwaitLeft() { Await(&left_, 1); }
  int left() {
    MutexLock lock(mu_);
    return left_;
  }

 private:
  void Add(int* count) {
    MutexLock lock(mu_);
    ++*count;
    cv_.NotifyAll();
  }
  void Await(const int* count, int least) {
    MutexLock lock(mu_);
    while (*count < least) cv_.Wait(lock);
  }
  Mutex mu_;
  CondVar cv_;
  int written_ = 0;
  int left_ = 0;
};

class SessionTest : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.flag = "openai_listen";
    options.listen = "127.0.0.1:0";
    options.hosts.push_back("a");
    auto started = HttpServer::Start(
        options, &threads_, &ledger_,
        {{.method = "POST", .path = "/echo", .most_body = kMostBody, .handler = &Echo},
         {.method = "POST", .path = "/size", .most_body = int64_t{1} << 40, .handler = &Size},
         {.method = "GET", .path = "/held", .handler = [this](auto exchange) { Hold(exchange); }},
         {.method = "GET",
          .path = "/key",
          .role = Role::kInfer,
          .handler = [](auto exchange) { exchange->Answer(200, "", exchange->client()); }},
         {.method = "POST", .path = "/drop", .most_body = 10, .handler = [](auto) {}}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  static void Echo(const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Answer(200, "text/plain", std::move(exchange->request().body));
  }
  static void Size(const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Answer(200, "text/plain", absl::StrCat("size ", exchange->request().body.size()));
  }
  void Hold(const std::shared_ptr<HttpExchange>& exchange) {
    MutexLock lock(mu_);
    held_.push_back(exchange);
    cv_.NotifyAll();
  }
  // Returns the next exchange of /held.
  std::shared_ptr<HttpExchange> Held() {
    MutexLock lock(mu_);
    while (held_.empty()) cv_.Wait(lock);
    auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }

  std::string Ask(const std::string& bytes) {
    Wire wire(server_->port());
    wire.Say(bytes);
    return wire.Hear();
  }
  static std::string Post(const std::string& path, const std::string& headers,
                          const std::string& body) {
    return absl::StrCat("POST ", path, " HTTP/1.1\r\n", kHost, headers, "\r\n", body);
  }

  ServerLedger ledger_{int64_t{64} << 20};
  HttpThreads threads_;
  Mutex mu_;
  CondVar cv_;
  std::deque<std::shared_ptr<HttpExchange>> held_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<HttpServer> server_;
};

TEST_F(SessionTest, OneConnectionCarriesManyRequests) {
  Start();
  Wire wire(server_->port());
  for (int i = 0; i < 3; ++i) {
    const std::string body(static_cast<size_t>(i) * 100'000, 'b');
    wire.Say(Post("/echo", absl::StrCat("Content-Length: ", body.size(), "\r\n"), body));
    EXPECT_THAT(wire.HearUntil("\r\n\r\n"), HasSubstr(absl::StrCat("Length: ", body.size())));
    if (!body.empty()) EXPECT_EQ(wire.HearUntil(body), body);
  }
  // A refusal without a body in between ends nothing.
  wire.Say(absl::StrCat("GET /none HTTP/1.1\r\n", kHost, "\r\n"));
  EXPECT_THAT(wire.HearUntil("/drop\n"), StartsWith("HTTP/1.1 404 "));
  wire.EndSaying();
}

TEST_F(SessionTest, RequestsSentAheadAreAnsweredInOrder) {
  Start();
  std::string ahead = absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n");
  constexpr int kAhead = 2'000;  // more than is read ahead
  for (int i = 0; i < kAhead; ++i) {
    const std::string body = absl::StrCat("<", i, ">");
    absl::StrAppend(&ahead,
                    Post("/echo", absl::StrCat("Content-Length: ", body.size(), "\r\n"), body));
  }
  Wire wire(server_->port());
  std::thread says([&] { wire.Say(ahead); });
  Held()->Answer(200, "", "first");
  EXPECT_THAT(wire.HearUntil("first"), StartsWith("HTTP/1.1 200 OK\r\n"));
  for (int i = 0; i < kAhead; ++i) {
    const std::string body = absl::StrCat("<", i, ">");
    EXPECT_THAT(wire.HearUntil(">"), EndsWith(body));
  }
  says.join();
}

TEST_F(SessionTest, Http10EndsUnlessAskedToStay) {
  Start();
  const std::string answer = Ask("POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhi"));
  Wire wire(server_->port());
  for (int i = 0; i < 2; ++i) {
    wire.Say("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
    EXPECT_THAT(wire.HearUntil("\r\n\r\nhi"), HasSubstr("Connection: keep-alive\r\n"));
  }
}

TEST_F(SessionTest, BodiesInChunks) {
  Start();
  std::string chunks;
  for (int i = 0; i < 100'000; ++i) chunks += "1\r\nx\r\n";
  const std::string request =
      Post("/size", "Connection: close\r\nTransfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n");
  EXPECT_THAT(Ask(request), EndsWith("size 100000"));
  EXPECT_EQ(ledger_.used(), 0);
}

TEST_F(SessionTest, BodiesThatAreTooLongAreRefused) {
  Start();
  const std::string large = absl::StrCat("Content-Length: ", kMostBody + 1, "\r\n");
  EXPECT_THAT(Ask(Post("/echo", large, "")), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(Post("/echo", "Content-Length: 18446744073709551615\r\n", "")),
              StartsWith("HTTP/1.1 413 "));
  // Chunks announce nothing.
  Wire wire(server_->port());
  wire.Say(Post("/echo", "Transfer-Encoding: chunked\r\n", ""));
  const std::string chunk = absl::StrCat("10000\r\n", std::string(1 << 16, 'c'), "\r\n");
  for (int64_t i = 0; i <= kMostBody >> 16; ++i) wire.Say(chunk);
  EXPECT_THAT(wire.Hear(), StartsWith("HTTP/1.1 413 "));
  // Just enough.
  const std::string body(kMostBody, 'b');
  EXPECT_THAT(
      Ask(Post("/echo", absl::StrCat("Connection: close\r\nContent-Length: ", kMostBody, "\r\n"),
               body)),
      EndsWith(body));
  EXPECT_EQ(ledger_.used(), 0);
}

TEST_F(SessionTest, ALongBodyWhoseEndComesByteByByteIsWhole) {
  Start();
  std::string body(kMostBody, '\0');
  for (uint32_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 2654435761U >> 24);
  const size_t cut = body.size() - 500;
  Wire wire(server_->port());
  const int on = 1;
  ASSERT_EQ(setsockopt(wire.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
  wire.Say(Post("/echo", absl::StrCat("Connection: close\r\nContent-Length: ", body.size(), "\r\n"),
                body.substr(0, cut)));
  for (size_t i = cut; i < body.size(); ++i) wire.Say(body.substr(i, 1));
  const std::string answer = wire.Hear();
  ASSERT_GT(answer.size(), body.size());
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n" + body));
  EXPECT_EQ(ledger_.used(), 0);
}

// A body takes memory as it comes, and is refused when there is none.
TEST_F(SessionTest, BodiesAreCountedAsTheyCome) {
  Start();
  {
    Wire wire(server_->port());
    wire.Say(Post("/size", "Content-Length: 1000000000000\r\n", "some"));
    while (ledger_.used() == 0) std::this_thread::yield();
    EXPECT_LT(ledger_.used(), 1 << 20);
    EXPECT_EQ(ledger_.used(), ledger_.used(HeldKind::kRequests));
    const std::string piece(1 << 20, 'p');
    for (int i = 0; i < 70 && wire.Say(piece); ++i) {
    }
    EXPECT_THAT(wire.Hear(), StartsWith("HTTP/1.1 429 "));
  }
  while (ledger_.used() > 0) std::this_thread::yield();
  // Bodies that are cut give theirs back.
  {
    Wire wire(server_->port());
    wire.Say(Post("/size", "Content-Length: 100000\r\n", "some"));
    while (ledger_.used() == 0) std::this_thread::yield();
  }
  while (ledger_.used() > 0) std::this_thread::yield();
}

TEST_F(SessionTest, TrailersOfAnyLengthEndNoServer) {
  Start();
  const std::string trailer = "T: " + std::string(200'000, 't') + "\r\n\r\n";
  const std::string answer =
      Ask(Post("/echo", "Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\n" + trailer));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(Post("/echo", "Transfer-Encoding: chunked\r\nConnection: close\r\n",
                       "1\r\na\r\n0\r\nT: short\r\n\r\n")),
              EndsWith("\r\n\r\na"));
  // Byte by byte, without a chunk.
  Wire wire(server_->port());
  for (const char c : Post("/echo", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n")) {
    wire.Say(std::string(1, c));
  }
  EXPECT_THAT(wire.HearUntil("\r\n\r\n"), HasSubstr("Content-Length: 0\r\n"));
}

TEST_F(SessionTest, BodiesThatComeTooSlowlyAreRefused) {
  for (const int64_t least_rate : {int64_t{0}, int64_t{1} << 30}) {
    HttpOptions options;
    options.limits.body = std::chrono::milliseconds(100);
    options.limits.least_rate = least_rate;
    Start(options);
    Wire wire(server_->port());
    wire.Say(Post("/echo", "Content-Length: 10\r\n", "slow"));
    EXPECT_THAT(wire.Hear(), StartsWith("HTTP/1.1 408 "));
  }
  // At a rate above the least, a body may take long.
  HttpOptions options;
  options.limits.body = std::chrono::milliseconds(0);
  options.limits.least_rate = 1;
  Start(options);
  Wire wire(server_->port());
  wire.Say(Post("/size", "Connection: close\r\nContent-Length: 100\r\n", std::string(98, 'x')));
  wire.Say("y");
  wire.Say("z");
  EXPECT_THAT(wire.Hear(), EndsWith("size 100"));
}

TEST_F(SessionTest, WhoAsksToContinueMay) {
  Start();
  Wire wire(server_->port());
  wire.Say(Post("/echo", "Expect: 100-continue\r\nContent-Length: 2\r\n", ""));
  EXPECT_EQ(wire.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  wire.Say("hi");
  EXPECT_THAT(wire.HearUntil("hi"), StartsWith("HTTP/1.1 200 "));
  // Not where the body would be refused.
  EXPECT_THAT(Ask(Post("/none", "Expect: 100-continue\r\nContent-Length: 2\r\n", "")),
              StartsWith("HTTP/1.1 404 "));
}

TEST_F(SessionTest, StreamsAreChunks) {
  Start();
  Wire wire(server_->port());
  for (int i = 0; i < 2; ++i) {
    wire.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
    const auto exchange = Held();
    const auto seen = std::make_shared<Seen>();
    exchange->Watch(seen);
    exchange->Begin(200, "text/event-stream", {{"X-Own", "1"}});
    const std::string head = wire.HearUntil("\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
    EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_THAT(head, HasSubstr("X-Own: 1\r\n"));
    EXPECT_THAT(head, Not(HasSubstr("Content-Length")));
    exchange->Write("first");
    EXPECT_EQ(wire.HearUntil("first\r\n"), "5\r\nfirst\r\n");
    seen->AwaitWritten(1);
    exchange->Write("");  // no chunk: it would be the end
    seen->AwaitWritten(2);
    exchange->Write(std::string(0x12345, 'x'));
    EXPECT_EQ(wire.HearUntil("\r\n"), "12345\r\n");
    EXPECT_EQ(wire.HearUntil("\r\n").size(), 0x12345u + 2);
    seen->AwaitWritten(3);
    exchange->End(i == 0 ? "last" : "");
    EXPECT_EQ(wire.HearUntil("0\r\n\r\n"), i == 0 ? "4\r\nlast\r\n0\r\n\r\n" : "0\r\n\r\n");
    seen->AwaitWritten(4);
    EXPECT_EQ(seen->left(), 0);
  }
}

TEST_F(SessionTest, StreamsOfHttp10EndWithTheConnection) {
  Start();
  Wire wire(server_->port());
  wire.Say("GET /held HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = Held();
  exchange->Begin(200, "text/event-stream");
  exchange->Write("a");
  exchange->End("b");
  const std::string answer = wire.Hear();
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nab"));
}

TEST_F(SessionTest, HeadOfAStreamHasNoChunks) {
  Start();
  Wire wire(server_->port());
  wire.Say(absl::StrCat("HEAD /held HTTP/1.1\r\nConnection: close\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  exchange->Begin(200, "text/event-stream");
  exchange->Write("a");
  exchange->End("b");
  EXPECT_THAT(wire.Hear(), EndsWith("chunked\r\nConnection: close\r\n\r\n"));
}

TEST_F(SessionTest, ABrokenStreamIsCut) {
  Start();
  for (const char* version : {"1.1", "1.0"}) {
    Wire wire(server_->port());
    wire.Say(absl::StrCat("GET /held HTTP/", version, "\r\n", kHost, "\r\n"));
    auto exchange = Held();
    const auto seen = std::make_shared<Seen>();
    exchange->Watch(seen);
    exchange->Begin(200, "text/plain");
    exchange->Write("part");
    seen->AwaitWritten(1);
    EXPECT_THAT(wire.HearUntil("part"), EndsWith("part"));
    if (version[2] == '1') {
      exchange->Break();
    } else {
      exchange.reset();  // as good as Break
    }
    EXPECT_THAT(wire.Hear(), Not(HasSubstr("0\r\n\r\n")));
    EXPECT_EQ(seen->left(), 0);
  }
  EXPECT_THAT(Ask(Post("/drop", "Connection: close\r\nContent-Length: 1\r\n", "x")),
              StartsWith("HTTP/1.1 500 "));
}

TEST_F(SessionTest, WhoLeavesIsNoticed) {
  Start();
  for (const bool reset : {false, true}) {
    auto wire = std::make_unique<Wire>(server_->port());
    wire->Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
    const auto exchange = Held();
    const auto seen = std::make_shared<Seen>(), late = std::make_shared<Seen>();
    exchange->Watch(seen);
    if (reset) {
      exchange->Begin(200, "text/plain");
      wire->Reset();
    } else {
      wire.reset();
    }
    seen->AwaitLeft();
    exchange->Watch(late);
    EXPECT_EQ(late->left(), 1);
    exchange->Write("nobody");
    exchange->End("nobody");
    EXPECT_EQ(seen->left(), 1);
  }
}

// Whoever ends only its own side is told all of it, whole or in a stream, and has not left.
TEST_F(SessionTest, WhoOnlyEndsItsOwnSideIsAnswered) {
  Start();
  for (const char* version : {"1.1", "1.0"}) {
    Wire wire(server_->port());
    wire.Say(absl::StrCat("GET /held HTTP/", version, "\r\n", kHost, "\r\n"));
    wire.EndSaying();
    const auto exchange = Held();
    const auto seen = std::make_shared<Seen>();
    exchange->Watch(seen);
    // By then the end is noticed.
    if (version[2] == '1') EXPECT_EQ(wire.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    exchange->Answer(200, "", "still");
    const std::string answer = wire.Hear();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(answer, EndsWith("still"));
    seen->AwaitWritten(1);
    EXPECT_EQ(seen->left(), 0);
  }
  Wire wire(server_->port());
  wire.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  const auto seen = std::make_shared<Seen>();
  exchange->Watch(seen);
  exchange->Begin(200, "text/plain");
  EXPECT_THAT(wire.HearUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  wire.EndSaying();
  for (int i = 1; i <= 20; ++i) {
    exchange->Write("more");
    EXPECT_EQ(wire.HearUntil("more\r\n"), "4\r\nmore\r\n") << "no interim answer in a stream";
    seen->AwaitWritten(i);
  }
  exchange->End();
  EXPECT_EQ(wire.Hear(), "0\r\n\r\n");
  EXPECT_EQ(seen->left(), 0);
}

TEST_F(SessionTest, WhatWasSentAheadOfTheEndIsAnswered) {
  Start();
  Wire wire(server_->port());
  const std::string get = absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n");
  wire.Say(get + Post("/echo", "Content-Length: 2\r\n", "hi") + get);
  wire.EndSaying();
  const auto first = Held();
  EXPECT_EQ(wire.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n") << "the end is noticed";
  first->Answer(200, "", "first");
  EXPECT_THAT(wire.HearUntil("first"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(wire.HearUntil("hi"), StartsWith("HTTP/1.1 200 OK\r\n"));
  Held()->Answer(200, "", "last");
  const std::string last = wire.Hear();
  EXPECT_THAT(last, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(last, EndsWith("last"));
}

// A request that is cut by the end is not one.
TEST_F(SessionTest, WhatTheEndCutsIsDropped) {
  Start();
  Wire wire(server_->port());
  wire.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n") +
           Post("/echo", "Content-Length: 3\r\n", "hi"));
  wire.EndSaying();
  const auto first = Held();
  EXPECT_EQ(wire.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  first->Answer(200, "", "first");
  EXPECT_THAT(wire.Hear(), EndsWith("first"));
}

// A stream notices by what it writes.
TEST_F(SessionTest, WhoLeavesAStreamIsNoticed) {
  Start();
  auto wire = std::make_unique<Wire>(server_->port());
  wire->Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  const auto seen = std::make_shared<Seen>();
  exchange->Watch(seen);
  exchange->Begin(200, "text/plain");
  EXPECT_THAT(wire->HearUntil("\r\n\r\n"), HasSubstr("chunked"));
  wire.reset();
  while (!exchange->left()) {
    exchange->Write("more");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  seen->AwaitLeft();
}

TEST_F(SessionTest, RefusalsHaveAnIdAndALine) {
  HttpOptions options;
  options.admit = [](const Route& route, HttpExchange*) -> absl::Status {
    return route.path == "/key" ? absl::UnauthenticatedError("no key") : absl::OkStatus();
  };
  Start(options);
  InitLog("info", "text");
  testing::internal::CaptureStderr();
  const std::string mine = "x-request-id: mine-1\r\nConnection: close\r\n";
  std::vector<std::string> answers;
  answers.push_back(Ask(absl::StrCat("GET /key HTTP/1.1\r\n", kHost, mine, "\r\n")));
  answers.push_back(Ask(absl::StrCat("GET /none HTTP/1.1\r\n", kHost, mine, "\r\n")));
  answers.push_back(Ask(absl::StrCat("PUT /echo HTTP/1.1\r\n", kHost, mine, "\r\n")));
  answers.push_back(Ask(Post("/drop", mine + "Content-Length: 11\r\n", "")));
  for (const std::string& answer : answers) {
    EXPECT_THAT(answer, HasSubstr("\r\nx-request-id: mine-1\r\n"));
  }
  EXPECT_THAT(Ask(absl::StrCat("GET /key HTTP/1.1\r\n", kHost, "Connection: close\r\n\r\n")),
              HasSubstr("\r\nx-request-id: r-"));
  EXPECT_THAT(Ask("what is this\r\n\r\n"), HasSubstr("\r\nx-request-id: r-"));
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* code : {"UNAUTHENTICATED", "NOT_FOUND", "INVALID_ARGUMENT"}) {
    EXPECT_THAT(log, HasSubstr(absl::StrCat("code=", code)));
  }
  EXPECT_THAT(log, HasSubstr("request=mine-1 method=\"GET /key\" peer=ipv4:127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr("method=\"PUT /echo\""));
  EXPECT_THAT(log, HasSubstr("method=HTTP "));
}

TEST_F(SessionTest, WhoDoesNotReadAStreamIsLetGo) {
  HttpOptions options;
  options.limits.write = std::chrono::milliseconds(100);
  Start(options);
  Wire deaf(server_->port());
  deaf.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  const auto seen = std::make_shared<Seen>();
  exchange->Watch(seen);
  exchange->Begin(200, "text/plain");
  exchange->Write(std::string(16 << 20, 'x'));
  seen->AwaitLeft();
}

TEST_F(SessionTest, WhatIsAnsweredHoldsItsPlace) {
  HttpOptions options;
  options.most_connections = 1;
  options.peer_percent = 100;
  options.quiet = std::chrono::milliseconds(1);
  Start(options);
  Wire wire(server_->port());
  wire.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Ask(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n")), IsEmpty());
    std::this_thread::sleep_for(std::chrono::milliseconds(11));
  }
  exchange->Answer(200, "", "answer");
  EXPECT_THAT(wire.HearUntil("answer"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(SessionTest, AdmitSaysWhoAsks) {
  HttpOptions options;
  std::atomic<int> kept = 0;
  options.admit = [&kept](const Route& route, HttpExchange* exchange) -> absl::Status {
    if (route.role == Role::kNone) return absl::OkStatus();
    EXPECT_EQ(exchange->client(), "127.0.0.1");
    EXPECT_THAT(exchange->request().peer, StartsWith("ipv4:127.0.0.1:"));
    const std::string* key = exchange->request().Header("authorization");
    if (key == nullptr) return absl::UnauthenticatedError("no key");
    if (*key == "full") return absl::ResourceExhaustedError("too many");
    if (*key == "drain") return absl::UnavailableError("draining");
    if (*key == "no") return absl::PermissionDeniedError("not yours");
    ++kept;
    exchange->Keep(std::shared_ptr<void>(nullptr, [&kept](void*) { --kept; }));
    exchange->set_client(*key);
    return absl::OkStatus();
  };
  options.error_body = [](int status, const std::string& message, absl::string_view) {
    return std::pair<std::string, std::string>("application/json",
                                               absl::StrCat("{", status, " ", message, "}"));
  };
  Start(options);
  Wire wire(server_->port());
  const auto ask = [&](const std::string& key) {
    wire.Say(absl::StrCat("GET /key HTTP/1.1\r\n", kHost,
                          key.empty() ? "" : "Authorization: " + key + "\r\n", "\r\n"));
  };
  ask("");
  std::string answer = wire.HearUntil("}");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n"
                                 "WWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(answer, EndsWith("{401 no key}"));
  ask("no");
  EXPECT_THAT(wire.HearUntil("}"), StartsWith("HTTP/1.1 403 "));
  for (const auto& [key, status] : {std::pair("full", "429"), std::pair("drain", "503")}) {
    ask(key);
    answer = wire.HearUntil("}");
    EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", status)));
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
  }
  ask("me");
  EXPECT_THAT(wire.HearUntil("\r\n\r\nme"), StartsWith("HTTP/1.1 200 "));
  while (kept > 0) std::this_thread::yield();
}

// A client that sends slowly holds no place among the calls.
TEST_F(SessionTest, RequestsEnterWhenTheyAreWhole) {
  HttpOptions options;
  std::atomic<int> entered = 0;
  std::atomic<bool> full = false;
  options.enter = [&](const Route&, HttpExchange* exchange) -> absl::Status {
    EXPECT_EQ(exchange->request().body, "hi");
    if (full) return absl::UnavailableError("draining");
    ++entered;
    return absl::OkStatus();
  };
  Start(options);
  Wire slow(server_->port()), wire(server_->port());
  slow.Say(Post("/echo", "Content-Length: 2\r\n", "h"));
  const std::string request = Post("/echo", "Content-Length: 2\r\n", "hi");
  wire.Say(request);
  EXPECT_THAT(wire.HearUntil("hi"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(entered, 1);
  full = true;
  wire.Say(request);
  EXPECT_THAT(wire.HearUntil("draining\n"), StartsWith("HTTP/1.1 503 "));
  full = false;
  wire.Say(request);  // the refusal ended nothing
  EXPECT_THAT(wire.HearUntil("hi"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(entered, 2);
}

// Before the body, which is not read where nobody may send it.
TEST_F(SessionTest, AdmitComesBeforeTheBody) {
  HttpOptions options;
  options.admit = [](const Route&, HttpExchange*) { return absl::UnauthenticatedError("key"); };
  Start(options);
  Wire wire(server_->port());
  wire.Say(Post("/echo", "Content-Length: 1000000\r\n", "x"));
  EXPECT_THAT(wire.Hear(), StartsWith("HTTP/1.1 401 "));
  EXPECT_EQ(ledger_.used(), 0);
}

TEST_F(SessionTest, StoppingTellsWhoAnswers) {
  Start();
  Wire wire(server_->port());
  wire.Say(absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n"));
  const auto exchange = Held();
  const auto seen = std::make_shared<Seen>();
  exchange->Watch(seen);
  exchange->Begin(200, "text/plain");
  server_.reset();
  EXPECT_EQ(seen->left(), 1);
  exchange->Write("x");
  exchange->End();
}

// Clients that ask, leave and cut at random, while exchanges answer from other threads.
TEST_F(SessionTest, ManyAtOnce) {
  Start();
  std::atomic<bool> stop = false;
  std::thread answers([&] {
    while (true) {
      std::shared_ptr<HttpExchange> exchange;
      {
        MutexLock lock(mu_);
        while (held_.empty() && !stop) cv_.WaitFor(lock, std::chrono::milliseconds(10));
        if (held_.empty()) return;
        exchange = std::move(held_.front());
        held_.pop_front();
      }
      exchange->Begin(200, "text/plain");
      for (int i = 0; i < 3; ++i) exchange->Write("some");
      exchange->End("end");
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([this, c] {
      for (int i = 0; i < 50; ++i) {
        Wire wire(server_->port());
        const std::string get = absl::StrCat("GET /held HTTP/1.1\r\n", kHost, "\r\n");
        switch ((c + i) % 4) {
          case 0:
            wire.Say(get + get);
            for (int n = 0; n < 2; ++n) {
              EXPECT_THAT(wire.HearUntil("0\r\n\r\n"), EndsWith("3\r\nend\r\n0\r\n\r\n"));
            }
            break;
          case 1:
            wire.Say(get);
            wire.Reset();
            break;
          case 2:
            wire.Say(Post("/echo", "Content-Length: 3\r\n", "ab"));
            break;
          default:
            wire.Say(Post("/echo", "Content-Length: 3\r\n", "abc"));
            EXPECT_THAT(wire.HearUntil("abc"), StartsWith("HTTP/1.1 200 "));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server_.reset();
  stop = true;
  answers.join();
  EXPECT_EQ(ledger_.used(), 0);
}

}  // namespace
}  // namespace athanor
