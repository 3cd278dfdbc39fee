#include "server/http/http_server.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <functional>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/http/wire_testing.h"
#include "server/net/tls_testing.h"

namespace athanor {
namespace {

constexpr size_t kHuge = size_t{16} << 20;  // more than the sockets' buffers hold

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Route Page(const std::string& path, std::function<std::string()> body, HttpHeaders more = {}) {
  return {.method = "GET", .path = path, .handler = [=](std::shared_ptr<HttpExchange> exchange) {
            exchange->Answer(200, "text/plain", body(), more);
          }};
}

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    if (options.listen.empty()) options.listen = "127.0.0.1:0";
    options.flag = "http_listen";
    options.hosts.push_back("a");
    auto started = HttpServer::Start(options, &threads_, &ledger_, Pages());
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  std::vector<Route> Pages() {
    return {Page("/", [] { return "<p>page</p>"; }, {{"X-Own", "yes"}}),
            Page("/numbers", [this] { return absl::StrCat("n ", ++asked_, "\n"); }),
            Page("/large", [] { return std::string(4 << 20, 'x'); }),
            // More than the sockets' buffers hold.
            Page("/huge", [] { return std::string(kHuge, 'x'); })};
  }

  std::string Exchange(const std::string& bytes) {
    Wire wire(server_->port());
    wire.Say(bytes);
    return wire.Hear();
  }
  static constexpr char kClose[] = "Connection: close\r\n";
  std::string Get(const std::string& path, const std::string& headers = "") {
    return Exchange(
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n", kClose, headers, "\r\n"));
  }

  std::atomic<int> asked_ = 0;
  ServerLedger ledger_{int64_t{1} << 30};
  HttpThreads threads_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PagesAreMadeForEachWhoAsks) {
  Start();
  EXPECT_THAT(Get("/numbers"), HasSubstr("\r\n\r\nn 1\n"));
  EXPECT_THAT(Get("/numbers?a=b"), HasSubstr("\r\n\r\nn 2\n"));
  const std::string page = Get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("\r\n\r\n<p>page</p>"));
  for (const char* header :
       {"Content-Type: text/plain\r\n", "Content-Length: 11\r\n", "Connection: close\r\n",
        "X-Own: yes\r\n", "X-Content-Type-Options: nosniff\r\n", "Cache-Control: no-store\r\n"}) {
    EXPECT_THAT(page, HasSubstr(header));
  }
  EXPECT_THAT(Get("/numbers"), Not(HasSubstr("X-Own")));
}

TEST_F(HttpServerTest, HeadIsTheSameWithoutTheBody) {
  Start();
  for (const char* path : {"/", "/large", "/none"}) {
    const std::string head =
        Exchange(absl::StrCat("HEAD ", path, " HTTP/1.1\r\nHost: a\r\n", kClose, "\r\n"));
    EXPECT_THAT(head, StartsWith("HTTP/1.1 "));
    EXPECT_THAT(head, testing::EndsWith("\r\n\r\n"));
    const std::string whole = Get(path);
    const auto without_id = [](const std::string& text) {
      return std::regex_replace(text, std::regex("x-request-id: [^\r]*"), "x-request-id: ID");
    };
    EXPECT_EQ(without_id(head), without_id(whole.substr(0, whole.find("\r\n\r\n") + 4))) << path;
  }
}

TEST_F(HttpServerTest, OtherPathsAre404AndSayWhatThereIs) {
  Start();
  for (const char* path : {"/metrics2", "/numbers/", "//", "/../etc/passwd", "/%2e%2e/",
                           "/favicon.ico", "/<script>"}) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 ")) << path;
    EXPECT_THAT(answer, HasSubstr("available: / /numbers /large /huge\n"));
    EXPECT_THAT(answer, Not(HasSubstr("<script>")));
  }
}

TEST_F(HttpServerTest, OtherMethodsAre405WhateverTheySend) {
  Start();
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"}) {
    const std::string answer =
        Exchange(absl::StrCat(method, " / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
  // The server does not wait for a body, whatever its announced size.
  EXPECT_THAT(Exchange("POST /numbers HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpServerTest, WhatIsNoRequestIs400) {
  Start();
  for (const std::string& wrong :
       {std::string("GARBAGE\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("GET /\r\n\r\n"), std::string(64, '\0') + "\r\n\r\n",
        std::string("\x16\x03\x01\x02\n\r\n\r\n")}) {
    EXPECT_THAT(Exchange(wrong), StartsWith("HTTP/1.1 400 ")) << wrong;
  }
  // Requests that are cut off need no answer.
  for (const char* part : {"", "G", "GET / HT", "GET / HTTP/1.1\r\nHost:"}) {
    Wire wire(server_->port());
    wire.Say(part);
    wire.EndSaying();
    EXPECT_THAT(wire.Hear(), Not(HasSubstr("200 OK"))) << part;
  }
  EXPECT_THAT(Get("/numbers"), HasSubstr("n 1\n"));
}

TEST_F(HttpServerTest, RequestsThatAreTooLargeAreRefused) {
  Start();
  EXPECT_THAT(Get("/" + std::string(9'000, 'a')), StartsWith("HTTP/1.1 414 "));
  EXPECT_THAT(Get("/" + std::string(1 << 20, 'a')), StartsWith("HTTP/1.1 431 "));
  std::string many;
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&many, "H", i, ": v\r\n");
  EXPECT_THAT(Get("/numbers", many), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Get("/numbers", "H: " + std::string(1 << 20, 'v') + "\r\n"),
              StartsWith("HTTP/1.1 431 "));
  // The line never ends.
  EXPECT_THAT(Exchange(std::string(1 << 20, 'G')), StartsWith("HTTP/1.1 431 "));
  EXPECT_EQ(asked_, 0);
}

TEST_F(HttpServerTest, FewBytesDoNotCostMuch) {
  Start();
  // Byte ranges would send the page once per range; compression would cost time.
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 1'000; ++i) absl::StrAppend(&ranges, ",0-");
  const std::string answer = Get("/large", ranges + "\r\nAccept-Encoding: gzip, br\r\n");
  EXPECT_THAT(answer.substr(0, 200), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer.substr(0, 400), HasSubstr("Content-Length: 4194304\r\n"));
  EXPECT_THAT(answer.substr(0, 400), Not(HasSubstr("Content-Encoding")));
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, size_t{4} << 20);
}

TEST_F(HttpServerTest, WhoIsTooSlowIsTold) {
  HttpOptions options;
  options.limits.header = std::chrono::milliseconds(200);
  Start(options);
  Wire slow(server_->port());
  // Each byte would restart a limit that is per byte.
  const std::string request = "GET /numbers HTTP/1.1\r\nHost: " + std::string(10'000, 'a');
  size_t said = 0;
  while (said < request.size() && slow.Say(request.substr(said, 1))) {
    ++said;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_LT(said, request.size());
  EXPECT_EQ(asked_, 0);
  Wire silent(server_->port());
  EXPECT_THAT(silent.Hear(), IsEmpty());
  // Tries again, because this thread may be too slow itself.
  std::string answer;
  while (answer.empty()) {
    Wire half(server_->port());
    half.Say("GET /numbers HTTP/1.1\r\n");
    answer = half.Hear();
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 408 "));
  while (!absl::StrContains(answer, "200 OK")) answer = Get("/numbers");
}

// Clients that send nothing, or half a request: as many as there are threads, and more.
TEST_F(HttpServerTest, WhoSaysNothingHoldsNoThread) {
  HttpOptions options;
  options.limits.header = std::chrono::hours(1);
  Start(options);
  std::vector<std::unique_ptr<Wire>> silent;
  for (const char* said : {"", "G", "GET /numbers HTTP/1.1\r\nConnection: close\r\nHost: a\r\n",
                           "GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r"}) {
    silent.push_back(std::make_unique<Wire>(server_->port()));
    silent.back()->Say(said);
  }
  EXPECT_THAT(Get("/numbers"), HasSubstr("\r\n\r\nn 1\n"));
  // The server still reads from them.
  silent[1]->Say("ET /numbers HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n");
  EXPECT_THAT(silent[1]->Hear(), HasSubstr("\r\n\r\nn 2\n"));
  silent[2]->Say("\r\n");
  EXPECT_THAT(silent[2]->Hear(), HasSubstr("\r\n\r\nn 3\n"));
  silent[3]->Say("\n");
  EXPECT_THAT(silent[3]->Hear(), HasSubstr("<p>page</p>"));
}

TEST_F(HttpServerTest, WhoDoesNotReadHoldsNoThread) {
  HttpOptions options;
  options.limits.write = options.limits.linger = std::chrono::hours(1);
  Start(options);
  std::vector<std::unique_ptr<Wire>> deaf;
  for (int i = 0; i < 5; ++i) {
    deaf.push_back(std::make_unique<Wire>(server_->port()));
    deaf.back()->Say(absl::StrCat("GET /huge HTTP/1.1\r\nHost: a\r\n", kClose, "\r\n"));
    EXPECT_THAT(Get("/numbers"), HasSubstr(absl::StrCat("\r\n\r\nn ", i + 1, "\n")));
  }
  for (auto& wire : deaf) EXPECT_GT(wire->Hear().size(), kHuge);
}

TEST_F(HttpServerTest, WhoDoesNotReadIsLetGo) {
  HttpOptions options;
  options.limits.write = std::chrono::milliseconds(100);
  Start(options);
  Wire deaf(server_->port());
  deaf.Say("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
  deaf.AwaitClosed();
}

// Who says nothing, or does not read an answer, gives way to who comes.
TEST_F(HttpServerTest, OfAFloodTheQuietAreClosed) {
  std::atomic<int> refused = 0;
  HttpOptions options;
  options.limits.header = options.limits.write = std::chrono::hours(1);
  options.most_connections = 4;
  options.peer_percent = 100;
  options.quiet = std::chrono::milliseconds(1);
  options.refused = [&] { ++refused; };
  Start(options);
  constexpr int kFlood = 50;
  std::vector<std::unique_ptr<Wire>> flood;
  for (int i = 0; i < kFlood; ++i) {
    flood.push_back(std::make_unique<Wire>(server_->port()));
    if (i % 2 == 0) flood.back()->Say("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  // Places are looked over every 10 ms: who comes in between may have to come again.
  std::string answer;
  while (!absl::StrContains(answer, "200 OK")) answer = Get("/numbers");
  EXPECT_GT(refused, 0);
}

TEST_F(HttpServerTest, StoppingWaitsForNobody) {
  HttpOptions options;
  options.limits.header = options.limits.write = options.limits.linger = std::chrono::hours(1);
  Start(options);
  std::vector<std::unique_ptr<Wire>> held;
  for (int i = 0; i < 6; ++i) held.push_back(std::make_unique<Wire>(server_->port()));
  held[0]->Say("GET /num");
  held[1]->Say("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
  server_.reset();
  for (auto& wire : held) wire->Hear();
}

TEST_F(HttpServerTest, AddressesThatCannotBeListenedOnAreNamed) {
  Start();
  auto start = [&](const std::string& listen) {
    HttpOptions options;
    options.listen = listen;
    options.flag = "http_listen";
    return HttpServer::Start(options, &threads_, &ledger_, Pages()).status();
  };
  const std::string taken = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_EQ(start(taken).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(start(taken).message()), HasSubstr("--http_listen=" + taken));
  for (const char* wrong : {"8080", ":8080", "localhost:", "localhost:99999", "localhost:-1",
                            "unix:/tmp/x", "nowhere.invalid:1"}) {
    EXPECT_EQ(start(wrong).code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(start(wrong).message()), HasSubstr(wrong));
  }
}

// Returns the answer to a TLS client that trusts `cert`. `stays`: it does not close its own side.
std::string AskUnderTls(int port, const std::string& path, const std::string& cert,
                        bool stays = false) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  BIO* bio = BIO_new_mem_buf(cert.data(), static_cast<int>(cert.size()));
  X509* root = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  std::string answer;
  {
    Wire wire(port);
    SSL* tls = SSL_new(context);
    SSL_set_fd(tls, wire.fd());
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    if (SSL_connect(tls) == 1 &&
        SSL_write(tls, request.data(), static_cast<int>(request.size())) > 0) {
      char buffer[4096];
      for (int n = 0; (n = SSL_read(tls, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
      if (stays) wire.Hear();
    }
    SSL_free(tls);
  }
  X509_free(root);
  BIO_free(bio);
  SSL_CTX_free(context);
  return answer;
}

TEST_F(HttpServerTest, UnderTls) {
  const std::string cert_file = testing::TempDir() + "/http-cert.pem";
  const std::string key_file = testing::TempDir() + "/http-key.pem";
  const TestPems before = SelfSigned(), after = SelfSigned();
  before.WriteTo(cert_file, key_file);
  HttpOptions options;
  options.tls = TlsCertificate::Load(cert_file, key_file).value();
  options.limits.header = std::chrono::hours(1);
  Start(options);
  // A plain client gets no readable answer.
  EXPECT_THAT(Get("/numbers"), Not(HasSubstr("200 OK")));
  Wire silent(server_->port());  // sends nothing, and occupies no thread
  const std::string answer = AskUnderTls(server_->port(), "/large", before.cert);
  EXPECT_THAT(answer.substr(0, 20), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_GT(answer.size(), size_t{4} << 20);
  EXPECT_EQ(AskUnderTls(server_->port(), "/", after.cert), "");
  // New connections get the reloaded certificate.
  after.WriteTo(cert_file, key_file);
  ASSERT_TRUE(options.tls->Reload().ok());
  EXPECT_THAT(AskUnderTls(server_->port(), "/", after.cert), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(AskUnderTls(server_->port(), "/", before.cert), "");
}

// The server's side ends as an operation of its own, which may come after the session's others.
TEST_F(HttpServerTest, ClientsOfTlsNeedNotEndTheirSide) {
  const std::string cert_file = testing::TempDir() + "/http-stays-cert.pem";
  const std::string key_file = testing::TempDir() + "/http-stays-key.pem";
  const TestPems pems = SelfSigned();
  pems.WriteTo(cert_file, key_file);
  HttpOptions options;
  options.tls = TlsCertificate::Load(cert_file, key_file).value();
  options.limits.linger = std::chrono::milliseconds(20);
  Start(options);
  for (int i = 0; i < 3; ++i) {
    for (const bool stays : {true, false}) {
      EXPECT_THAT(AskUnderTls(server_->port(), "/numbers", pems.cert, stays),
                  StartsWith("HTTP/1.1 200 OK\r\n"));
    }
  }
}

// A page of another site whose name resolves to this server sends that name.
TEST_F(HttpServerTest, OtherHostsAreMisdirected) {
  Start();
  const auto get = [&](const std::string& lines, const std::string& version = "1.1") {
    return Exchange(absl::StrCat("GET /numbers HTTP/", version, "\r\n", kClose, lines, "\r\n"));
  };
  for (const char* host : {"a", "localhost:80", "127.0.0.1", "[::1]:80", "10.0.0.1:1"}) {
    EXPECT_THAT(get(absl::StrCat("Host: ", host, "\r\n")), StartsWith("HTTP/1.1 200 ")) << host;
  }
  EXPECT_THAT(get("", "1.0"), StartsWith("HTTP/1.1 200 "));
  const int asked = asked_;
  for (const char* version : {"1.0", "1.1"}) {
    const std::string answer = get("Host: evil.example:80\r\n", version);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 "));
    EXPECT_THAT(answer, HasSubstr("\r\n\r\n421: evil.example is not a known name of this server"));
  }
  EXPECT_THAT(get(""), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(get("Host:\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(get("Host: a\r\nHost: evil.example\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(get("Host: a b\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(asked_, asked);
}

}  // namespace
}  // namespace athanor
