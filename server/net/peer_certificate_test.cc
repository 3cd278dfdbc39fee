#include "server/net/peer_certificate.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/net/tls_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(PeerCertificateTest, SaysItsNames) {
  PeerCertificates certificates;
  const TestPems pems =
      Signed({.name = "edge, one",
              .alternatives = "DNS:Edge.Test,URI:spiffe://test/edge,email:a@b.test,IP:10.0.0.7"});
  const auto shown = certificates.OfPem(pems.cert);
  ASSERT_NE(shown, nullptr);
  EXPECT_THAT(shown->names,
              ElementsAre(MatchesRegex("sha256:[0-9a-f]{64}"), "subject:CN=edge\\, one",
                          "dns:edge.test", "uri:spiffe://test/edge", "email:a@b.test"));
  const absl::Time now = absl::Now();
  EXPECT_LT(shown->from, now);
  EXPECT_GT(shown->from, now - absl::Minutes(5));
  EXPECT_GT(shown->until, now + absl::Minutes(50));
  EXPECT_LT(shown->until, now + absl::Minutes(70));
  EXPECT_EQ(certificates.OfPem(pems.cert), shown) << "it is remembered";
  EXPECT_NE(certificates.OfPem(Signed({}).cert)->names[0], shown->names[0]);
}

TEST(PeerCertificateTest, WhatIsNoneIsNone) {
  PeerCertificates certificates;
  const TestPems pems = SelfSigned();
  for (const std::string& pem :
       {std::string(), std::string("no"), pems.key, pems.cert.substr(0, pems.cert.size() / 2)}) {
    EXPECT_EQ(certificates.OfPem(pem), nullptr);
  }
}

// "openssl x509 -fingerprint -sha256" writes colons and capital letters.
TEST(PeerCertificateTest, NamesAreWrittenOneWay) {
  std::string plain = "sha256:", colons = "sha256:";
  for (int i = 0; i < 32; ++i) {
    plain += "ab";
    colons += i == 0 ? "AB" : ":AB";
  }
  EXPECT_EQ(CertificateName(colons).value(), plain);
  EXPECT_EQ(CertificateName(plain).value(), plain);
  EXPECT_EQ(CertificateName("dns:Edge.Test").value(), "dns:edge.test");
  EXPECT_EQ(CertificateName("subject:CN=Edge").value(), "subject:CN=Edge");
  EXPECT_EQ(CertificateName("uri:spiffe://Test/edge").value(), "uri:spiffe://Test/edge");
  EXPECT_EQ(CertificateName("email:a@B.test").value(), "email:a@B.test");
}

TEST(PeerCertificateTest, NamesThatAreNoneSaySo) {
  for (const char* name : {"", "edge", "dns:", "uri:", "subject:", "cn:edge", "DNS:edge"}) {
    EXPECT_THAT(std::string(CertificateName(name).status().message()),
                HasSubstr("must be sha256:DIGEST, subject:DN, dns:NAME, uri:URI"))
        << name;
  }
  for (const char* name : {"sha256:", "sha256:ab", "sha256:xyz"}) {
    EXPECT_THAT(std::string(CertificateName(name).status().message()),
                HasSubstr("must have 64 hexadecimal digits"));
  }
}

TEST(PeerCertificateTest, ManyOnManyThreads) {
  PeerCertificates certificates;
  std::vector<std::string> pems;
  for (int i = 0; i < 8; ++i) pems.push_back(SelfSigned().cert);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 400; ++i) EXPECT_NE(certificates.OfPem(pems[i % pems.size()]), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace athanor
