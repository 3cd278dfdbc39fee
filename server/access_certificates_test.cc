// Calls the server with client certificates, over gRPC and HTTP: those that are known, and those
// that are unknown, out of date, of another authority, or revoked while their connection is open.
#include <httplib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/identities.h"
#include "server/net/tls_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

TestPems AuthorityNamed(const std::string& name) {
  return Signed({.name = name, .authority = true});
}

// A client's way to the server: a connection that is kept.
struct Way {
  std::unique_ptr<inference::GRPCInferenceService::Stub> grpc;
  std::unique_ptr<httplib::SSLClient> http;
};

class AccessCertificatesTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.state_dir = FreshDirectory();
    options_.listen = options_.http_listen = "127.0.0.1:0";
    options_.auth = options_.state_dir + "/auth.conf";
    options_.tls_cert = options_.state_dir + "/cert.pem";
    options_.tls_key = options_.state_dir + "/key.pem";
    options_.tls_client_ca = options_.state_dir + "/ca.pem";
    own_.WriteTo(options_.tls_cert, options_.tls_key);
    std::ofstream(options_.tls_client_ca) << authority_.cert;
    Write(kEdge);
    auto started = Server::Start(options_, EvaluatorFactory(std::make_shared<TestControl>()));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  // Replaces --auth's file. There always is a token of an administrator.
  void Write(const std::string& identities) {
    std::ofstream(options_.auth + ".new")
        << "[ops]\nroles = admin\ntoken = " << TokenDigestText("ops-token") << "\n"
        << identities;
    std::filesystem::rename(options_.auth + ".new", options_.auth);
    if (server_ != nullptr) ASSERT_TRUE(server_->ReloadIdentities().ok());
  }

  // `shown` null: shows no certificate.
  Way WayOf(const TestPems* shown) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = own_.cert;
    if (shown != nullptr) {
      ssl.pem_cert_chain = shown->cert;
      ssl.pem_private_key = shown->key;
    }
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("localhost");
    // Channels of the same arguments would share connections, and so certificates.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    Way way;
    way.grpc = inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server_->port()), grpc::SslCredentials(ssl), arguments));
    const std::string cert = options_.state_dir + "/shown.pem";
    const std::string key = options_.state_dir + "/shown.key";
    if (shown != nullptr) shown->WriteTo(cert, key);
    way.http = std::make_unique<httplib::SSLClient>("127.0.0.1", server_->http_port(),
                                                    shown != nullptr ? cert : "",
                                                    shown != nullptr ? key : "");
    way.http->enable_server_certificate_verification(false);
    way.http->set_keep_alive(true);
    return way;
  }

  static grpc::Status Ask(Way& way, const std::string& token = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    inference::ModelReadyRequest request;
    request.set_name("edge/m");
    inference::ModelReadyResponse reply;
    return way.grpc->ModelReady(&context, request, &reply);
  }
  // Returns the status of the REST side; 0 if there is no connection.
  static int AskHttp(Way& way, httplib::Headers headers = {}) {
    const httplib::Result got =
        way.http->Post("/v2/repository/index", headers, "{}", "application/json");
    return got ? got->status : 0;
  }

  static constexpr char kEdge[] =
      "[edge]\nroles = infer\nmodels = edge/*\ncertificate = dns:edge.test\n";

  const TestPems own_ = SelfSigned(), authority_ = AuthorityNamed("ca");
  const TestPems edge_ = Signed({.name = "edge", .alternatives = "DNS:edge.test"}, &authority_);
  ServerOptions options_;
  std::unique_ptr<Server> server_;
};

TEST_F(AccessCertificatesTest, AreIdentities) {
  Way way = WayOf(&edge_);
  EXPECT_NE(Ask(way).error_code(), Code::UNAUTHENTICATED);
  EXPECT_NE(Ask(way).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(AskHttp(way), 200);
  EXPECT_EQ(AskHttp(way, {{"Authorization", "x"}}), 401);  // of somebody else, who shows no token
  // They may do what their identity may, no more.
  EXPECT_EQ(way.http->Get("/status.json")->status, 403);
  const httplib::Result denied = way.http->Get("/v2/models/other");
  EXPECT_EQ(denied->status, 403);
  EXPECT_THAT(denied->body, HasSubstr("edge may not use model"));
}

TEST_F(AccessCertificatesTest, NeedNotBeShown) {
  Way way = WayOf(nullptr);
  const grpc::Status nobody = Ask(way);
  EXPECT_EQ(nobody.error_code(), Code::UNAUTHENTICATED);
  EXPECT_THAT(nobody.error_message(), HasSubstr("or show a client certificate"));
  EXPECT_EQ(AskHttp(way), 401);
  EXPECT_NE(Ask(way, "ops-token").error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(AskHttp(way, {{"Authorization", "Bearer ops-token"}}), 200);
}

TEST_F(AccessCertificatesTest, GiveWayToTokens) {
  Way way = WayOf(&edge_);
  EXPECT_EQ(Ask(way, "wrong-token").error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(AskHttp(way, {{"Authorization", "Bearer wrong-token"}}), 401);
  const httplib::Result admin =
      way.http->Get("/status.json", {{"Authorization", "Bearer ops-token"}});
  EXPECT_EQ(admin->status, 200);
}

TEST_F(AccessCertificatesTest, OfNoIdentityAreNobodys) {
  const TestPems unknown = Signed({.name = "edge", .alternatives = "DNS:else.test"}, &authority_);
  Way way = WayOf(&unknown);
  const grpc::Status refused = Ask(way);
  EXPECT_EQ(refused.error_code(), Code::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(), HasSubstr("subject:CN=edge, dns:else.test"));
  EXPECT_EQ(AskHttp(way), 401);
}

// Without an authority's word, or out of date, there is no connection.
TEST_F(AccessCertificatesTest, OfOtherAuthoritiesAreNotConnected) {
  std::signal(SIGPIPE, SIG_IGN);  // the client goes on writing where the server has refused it
  const TestPems other = AuthorityNamed("ca");  // of the same name
  const TestPems strange = Signed({.alternatives = "DNS:edge.test"}, &other);
  const TestPems expired =
      Signed({.alternatives = "DNS:edge.test", .from = -7200, .until = -60}, &authority_);
  const TestPems early =
      Signed({.alternatives = "DNS:edge.test", .from = 3600, .until = 7200}, &authority_);
  const TestPems itself = Signed({.alternatives = "DNS:edge.test"});
  for (const TestPems* shown : {&strange, &expired, &early, &itself}) {
    Way way = WayOf(shown);
    EXPECT_EQ(Ask(way).error_code(), Code::UNAVAILABLE);
    EXPECT_EQ(AskHttp(way), 0);
  }
}

// The file is asked with each call, whatever the age of the connection.
TEST_F(AccessCertificatesTest, AreRevokedOnOpenConnections) {
  Way way = WayOf(&edge_);
  EXPECT_NE(Ask(way).error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(AskHttp(way), 200);
  Write("");
  EXPECT_EQ(Ask(way).error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(AskHttp(way), 401);
  Write(kEdge);
  EXPECT_NE(Ask(way).error_code(), Code::UNAUTHENTICATED);
  EXPECT_EQ(AskHttp(way), 200);
}

// Open connections are judged by the authorities of now, too.
TEST_F(AccessCertificatesTest, AreNobodysOnceTheirAuthorityIsGone) {
  const TestPems next = AuthorityNamed("next");
  const TestPems between = Signed({.name = "between", .authority = true}, &authority_);
  TestPems below = Signed({.alternatives = "DNS:edge.test"}, &between);
  below.cert += between.cert;
  Way way = WayOf(&edge_), longer = WayOf(&below);  // the HTTP client here shows no more than one
  const auto read = [&](const std::string& authorities) {
    std::ofstream(options_.tls_client_ca) << authorities;
    ASSERT_TRUE(server_->ReloadCertificate().ok());
  };
  for (const std::string& with : {authority_.cert, next.cert + authority_.cert}) {
    read(with);
    for (Way* each : {&way, &longer}) EXPECT_NE(Ask(*each).error_code(), Code::UNAUTHENTICATED);
    EXPECT_EQ(AskHttp(way), 200);
    read(next.cert);
    for (Way* each : {&way, &longer}) {
      const grpc::Status gone = Ask(*each);
      EXPECT_EQ(gone.error_code(), Code::UNAUTHENTICATED);
      EXPECT_THAT(gone.error_message(), HasSubstr("--tls_client_ca"));
      EXPECT_NE(Ask(*each, "ops-token").error_code(), Code::UNAUTHENTICATED) << "tokens go on";
    }
    EXPECT_EQ(AskHttp(way), 401);
  }
}

// New connections are checked by the authorities of the file as it is now.
TEST_F(AccessCertificatesTest, AuthoritiesAreReadAgain) {
  const TestPems next = AuthorityNamed("next");
  const TestPems shown = Signed({.alternatives = "DNS:edge.test"}, &next);
  Way before = WayOf(&shown);
  EXPECT_EQ(Ask(before).error_code(), Code::UNAVAILABLE);
  std::ofstream(options_.tls_client_ca) << next.cert;
  ASSERT_TRUE(server_->ReloadCertificate().ok());
  Way after = WayOf(&shown), old = WayOf(&edge_);
  EXPECT_NE(Ask(after).error_code(), Code::UNAVAILABLE);
  EXPECT_EQ(AskHttp(after), 200);
  EXPECT_EQ(Ask(old).error_code(), Code::UNAVAILABLE);
  EXPECT_EQ(AskHttp(old), 0);
}

// A browser shows its certificate for another site too: that site's page must change nothing.
TEST_F(AccessCertificatesTest, OfBrowsersAreForPages) {
  Write(
      "[edge]\nroles = infer\nmodels = *\ncertificate = dns:edge.test\n"
      "[desk]\nroles = monitor\ncertificate = subject:CN=desk\n");
  const TestPems desk = Signed({.name = "desk"}, &authority_);
  Way way = WayOf(&edge_), pages = WayOf(&desk);
  EXPECT_EQ(AskHttp(way, {{"Origin", "https://elsewhere.test"}}), 403);
  EXPECT_EQ(AskHttp(way), 200);
  EXPECT_EQ(pages.http->Get("/status.json", {{"Origin", "https://elsewhere.test"}})->status, 200);
}

}  // namespace
}  // namespace athanor
