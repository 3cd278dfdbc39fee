#include "server/net/tls.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/net/tls_testing.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// The two ends of a connection in memory.
class Pair {
 public:
  Pair(SSL_CTX* client, SSL_CTX* server) : client_(SSL_new(client)), server_(SSL_new(server)) {
    BIO *near = nullptr, *far = nullptr;
    BIO_new_bio_pair(&near, 0, &far, 0);
    SSL_set_bio(client_, near, near);
    SSL_set_bio(server_, far, far);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  // Sessions of connections that are cut are not resumed.
  ~Pair() {
    for (SSL* end : {client_, server_}) {
      SSL_set_shutdown(end, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
      SSL_free(end);
    }
  }

  // Connects, resuming `session` unless it is null or the server will not, and returns the
  // session that the client has then.
  SSL_SESSION* Connect(SSL_SESSION* session) {
    if (session != nullptr) SSL_set_session(client_, session);
    for (int i = 0; i < 10; ++i) {
      SSL_connect(client_);
      SSL_accept(server_);
    }
    EXPECT_TRUE(SSL_is_init_finished(client_) && SSL_is_init_finished(server_));
    // Sessions of TLS 1.3 come behind the handshake.
    char none = 0;
    EXPECT_EQ(SSL_read(client_, &none, 1), -1);
    return SSL_get1_session(client_);
  }
  bool resumed() const { return SSL_session_reused(client_) == 1; }

 private:
  SSL* const client_;
  SSL* const server_;
};

constexpr char kTime[] = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z";

class TlsTest : public testing::Test {
 protected:
  std::string ErrorOf(const TestPems& pems) {
    pems.WriteTo(cert_, key_);
    return std::string(TlsCertificate::Load(cert_, key_).status().message());
  }

  const std::string cert_ = testing::TempDir() + "/tls-cert.pem";
  const std::string key_ = testing::TempDir() + "/tls-key.pem";
};

TEST_F(TlsTest, WhatIsRightIsTaken) {
  const TestPems pems = SelfSigned();
  EXPECT_EQ(ErrorOf(pems), "");
  const auto tls = TlsCertificate::Load(cert_, key_).value();
  EXPECT_EQ(tls->Now()->chain, pems.cert);
  EXPECT_EQ(tls->Now()->key, pems.key);
  EXPECT_NE(tls->Now()->context, nullptr);
  EXPECT_THAT(tls->Now()->valid_until, MatchesRegex(kTime));
  // Text between and after the blocks of a chain is ignored.
  EXPECT_EQ(ErrorOf({"of the server:\n" + pems.cert + "\n" + SelfSigned(-60, 60).cert + "\n\n",
                     pems.key}),
            "");
  const auto sooner = TlsCertificate::Load(cert_, key_).value();
  EXPECT_LT(sooner->Now()->valid_until, tls->Now()->valid_until);
}

TEST_F(TlsTest, TrustsWhomTheAuthoritiesOfNowSign) {
  SelfSigned().WriteTo(cert_, key_);
  const std::string ca = testing::TempDir() + "/tls-ca.pem";
  const TestPems root = Signed({.name = "root", .authority = true});
  const TestPems between = Signed({.name = "between", .authority = true}, &root);
  const TestPems other = Signed({.name = "root", .authority = true});  // of the same name
  std::ofstream(ca) << root.cert;
  const auto tls = TlsCertificate::Load(cert_, key_, ca).value();
  PeerCertificates certificates;
  const auto direct = certificates.OfPem(Signed({.name = "a"}, &root).cert);
  const TestPems leaf = Signed({.name = "b"}, &between);
  const auto below = certificates.OfPem(leaf.cert + between.cert);
  const auto cut = certificates.OfPem(leaf.cert);
  const auto old = certificates.OfPem(Signed({.from = -7200, .until = -3600}, &root).cert);
  EXPECT_TRUE(tls->Trusts(*direct));
  EXPECT_TRUE(tls->Trusts(*below));
  EXPECT_FALSE(tls->Trusts(*cut)) << "what is between was not shown";
  EXPECT_TRUE(tls->Trusts(*old)) << "times are looked at elsewhere";
  EXPECT_FALSE(tls->Trusts({}));
  const auto reload = [&](const std::string& authorities) {
    std::ofstream(ca) << authorities;
    EXPECT_TRUE(tls->Reload().ok());
  };
  reload(other.cert);
  EXPECT_FALSE(tls->Trusts(*direct));
  EXPECT_FALSE(tls->Trusts(*below));
  reload(other.cert + root.cert);
  EXPECT_TRUE(tls->Trusts(*direct));
  EXPECT_TRUE(tls->Trusts(*below));
  reload(between.cert);
  EXPECT_FALSE(tls->Trusts(*direct));
  EXPECT_TRUE(tls->Trusts(*below)) << "an authority need not be a root";
}

TEST_F(TlsTest, FilesThatHoldNoneAreNamed) {
  const TestPems pems = SelfSigned();
  EXPECT_EQ(ErrorOf({"no", pems.key}), "--tls_cert: '" + cert_ + "' holds no certificate (PEM)");
  EXPECT_EQ(ErrorOf({pems.key, pems.key}),
            "--tls_cert: '" + cert_ + "' holds no certificate (PEM)");
  EXPECT_EQ(ErrorOf({pems.cert, "no"}), "--tls_key: '" + key_ + "' holds no private key (PEM)");
  EXPECT_EQ(ErrorOf({pems.cert, pems.cert}),
            "--tls_key: '" + key_ + "' holds no private key (PEM)");
  EXPECT_THAT(ErrorOf({pems.cert, ""}), HasSubstr("--tls_key: cannot read '" + key_ + "'"));
  const std::string cut = pems.cert.substr(0, pems.cert.size() / 2);
  EXPECT_THAT(ErrorOf({pems.cert + cut, pems.key}),
              HasSubstr("is damaged after its certificate 1: "));
}

// Without the check, OpenSSL would prompt on the terminal and the server would wait for an answer.
TEST_F(TlsTest, NobodyIsAskedForAPassphrase) {
  const TestPems pems = SelfSigned();
  for (const bool pkcs8 : {true, false}) {
    EXPECT_THAT(ErrorOf({pems.cert, EncryptedKey(pems.key, pkcs8)}),
                AllOf(HasSubstr("--tls_key: '" + key_ + "' is encrypted"),
                      HasSubstr("give a key without a passphrase")))
        << pkcs8;
  }
}

TEST_F(TlsTest, TimesAreSaid) {
  const std::string times =
      std::string("it is valid from ") + kTime + " to " + kTime + ", and it is " + kTime;
  EXPECT_THAT(ErrorOf(SelfSigned(-7200, -3600)),
              MatchesRegex("--tls_cert: '" + cert_ + "' has expired: " + times));
  EXPECT_THAT(ErrorOf(SelfSigned(3600, 7200)),
              MatchesRegex("--tls_cert: '" + cert_ + "' is not valid yet: " + times));
  const TestPems pems = SelfSigned();
  EXPECT_THAT(ErrorOf({pems.cert + SelfSigned(-7200, -3600).cert, pems.key}),
              MatchesRegex("--tls_cert: '" + cert_ +
                           "' \\(certificate 2 of its chain\\) has expired: " + times));
}

TEST_F(TlsTest, ACertificateAndAnotherKey) {
  EXPECT_EQ(ErrorOf({SelfSigned().cert, SelfSigned().key}),
            "--tls_key: '" + key_ + "' is not the key of the certificate in '" + cert_ +
                "' (--tls_cert)");
}

TEST_F(TlsTest, WhereTheNewIsWrongTheOldStays) {
  const TestPems before = SelfSigned(), after = SelfSigned();
  before.WriteTo(cert_, key_);
  const auto tls = TlsCertificate::Load(cert_, key_).value();
  const auto held = tls->Now();
  SelfSigned(-7200, -3600).WriteTo(cert_, key_);
  EXPECT_THAT(std::string(tls->Reload().message()), HasSubstr("has expired"));
  EXPECT_EQ(tls->Now(), held);
  // Only one of the two files has been replaced.
  TestPems{after.cert, before.key}.WriteTo(cert_, key_);
  EXPECT_THAT(std::string(tls->Reload().message()), HasSubstr("is not the key"));
  EXPECT_EQ(tls->Now(), held);
  after.WriteTo(cert_, key_);
  EXPECT_TRUE(tls->Reload().ok());
  EXPECT_EQ(tls->Now()->chain, after.cert);
  EXPECT_EQ(held->chain, before.cert);
}

TEST_F(TlsTest, AuthoritiesOfClients) {
  const std::string file = testing::TempDir() + "/tls-client-ca.pem";
  SelfSigned().WriteTo(cert_, key_);
  const auto error = [&](const std::string& pem) {
    std::ofstream(file) << pem;
    return std::string(TlsCertificate::Load(cert_, key_, file).status().message());
  };
  const TestPems authority = Signed({.name = "ca", .authority = true});
  const TestPems old = Signed({.name = "ca", .from = -7200, .until = -3600, .authority = true});
  EXPECT_EQ(error(authority.cert), "");
  const auto tls = TlsCertificate::Load(cert_, key_, file).value();
  EXPECT_EQ(tls->Now()->client_ca, authority.cert);
  EXPECT_EQ(SSL_CTX_get_verify_mode(tls->Now()->context.get()), SSL_VERIFY_PEER);
  EXPECT_EQ(error(old.cert + authority.cert), "") << "one that goes out beside one that comes in";
  EXPECT_THAT(error(old.cert),
              HasSubstr("--tls_client_ca: '" + file + "' holds no certificate that is valid now"));
  EXPECT_THAT(error("no"), HasSubstr("holds no certificate (PEM)"));
  EXPECT_THAT(error(authority.key), HasSubstr("holds no certificate (PEM)"));
  EXPECT_THAT(error(""), HasSubstr("--tls_client_ca: cannot read '" + file + "'"));
  // Reading a wrong file changes nothing.
  EXPECT_FALSE(tls->Reload().ok());
  EXPECT_EQ(tls->Now()->client_ca, authority.cert);
  EXPECT_EQ(
      SSL_CTX_get_verify_mode(TlsCertificate::Load(cert_, key_).value()->Now()->context.get()),
      SSL_VERIFY_NONE);
}

// Resuming would show a client's certificate without those between it and its authority.
TEST_F(TlsTest, SessionsAreResumedUnlessClientsAreAskedForCertificates) {
  const std::string ca = testing::TempDir() + "/tls-client-ca.pem";
  const TestPems authority = Signed({.name = "ca", .authority = true});
  std::ofstream(ca) << authority.cert;
  const TestPems own = Signed({.name = "client"}, &authority);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const uint64_t tickets : {uint64_t{0}, uint64_t{SSL_OP_NO_TICKET}}) {
      for (const bool asked : {false, true}) {
        SelfSigned().WriteTo(cert_, key_);
        const auto tls = TlsCertificate::Load(cert_, key_, asked ? ca : "").value();
        const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> client(
            SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
        own.WriteTo(cert_, key_);
        SSL_CTX_use_certificate_file(client.get(), cert_.c_str(), SSL_FILETYPE_PEM);
        SSL_CTX_use_PrivateKey_file(client.get(), key_.c_str(), SSL_FILETYPE_PEM);
        SSL_CTX_set_min_proto_version(client.get(), version);
        SSL_CTX_set_max_proto_version(client.get(), version);
        SSL_CTX_set_options(client.get(), tickets);
        SSL_SESSION* session = nullptr;
        for (const bool again : {false, true}) {
          Pair pair(client.get(), tls->Now()->context.get());
          SSL_SESSION* const next = pair.Connect(session);
          EXPECT_EQ(pair.resumed(), again && !asked) << version << " " << tickets << " " << asked;
          SSL_SESSION_free(std::exchange(session, next));
        }
        SSL_SESSION_free(session);
      }
    }
  }
}

}  // namespace
}  // namespace athanor
