#include "deploy/bazel/libs/ed25519.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/ed25519_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Vector {
  const char* seed;
  const char* public_key;
  const char* message;
  const char* signature;
};

// RFC 8032, section 7.1, tests 1 to 3.
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
     "b46bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
     "1d8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
     "c6594a7c15e9716ed28dc027beceea1ec40a"},
};

std::string Bytes(const char* hex) { return absl::HexStringToBytes(hex); }

// A key that was thrown away; its passphrase is "x".
constexpr char kEncrypted[] = R"(-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhCDz4WWOa2FQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEMXHF7eF7INcv9+FDM0MhSYEQMsB
WVJKppftYfKjBGYCa0fgYzPvK4ovIerBgEfpdl43IBD/hOoXGCJSr/Y8J546ikbk
1zgefXy98fH2b8AMQEw=
-----END ENCRYPTED PRIVATE KEY-----
)";

TEST(Ed25519Test, StandardVectors) {
  for (const Vector& v : kVectors) {
    const absl::StatusOr<Ed25519Key> key = Ed25519Key::FromPem(Ed25519PrivatePem(Bytes(v.seed)));
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(absl::BytesToHexString(key->public_key()), v.public_key);
    EXPECT_EQ(absl::BytesToHexString(key->Sign(Bytes(v.message)).value()), v.signature);
    EXPECT_TRUE(Ed25519Verify(Bytes(v.public_key), Bytes(v.message), Bytes(v.signature)));
    EXPECT_EQ(Ed25519PublicKey(Ed25519PublicPem(Bytes(v.public_key))).value(), Bytes(v.public_key));
  }
}

TEST(Ed25519Test, EveryBitCounts) {
  const Vector& v = kVectors[2];
  const std::string key = Bytes(v.public_key), signature = Bytes(v.signature);
  for (size_t bit = 0; bit < 8 * signature.size(); ++bit) {
    std::string other = signature;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(Ed25519Verify(key, Bytes(v.message), other)) << bit;
  }
  for (size_t bit = 0; bit < 8 * key.size(); ++bit) {
    std::string other = key;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(Ed25519Verify(other, Bytes(v.message), signature)) << bit;
  }
  EXPECT_FALSE(Ed25519Verify(key, "ag", signature));
  EXPECT_FALSE(Ed25519Verify(key, Bytes(v.message), ""));
  EXPECT_FALSE(Ed25519Verify("", Bytes(v.message), signature));
  EXPECT_FALSE(Ed25519Verify(key + "x", Bytes(v.message), signature));
}

TEST(Ed25519Test, WhatIsNoKey) {
  const std::string seed = Bytes(kVectors[0].seed);
  const std::string bad[] = {"",
                             "x",
                             "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
                             std::string(kEncrypted),
                             X25519PrivatePem(seed),
                             Ed25519PublicPem(Bytes(kVectors[0].public_key))};
  for (const std::string& pem : bad) {
    const absl::Status status = Ed25519Key::FromPem(pem).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pem;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no Ed25519 private key in PEM"));
  }
  const absl::Status status = Ed25519PublicKey(Ed25519PrivatePem(seed)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no Ed25519 public key"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("MC4C")));
}

}  // namespace
}  // namespace athanor
