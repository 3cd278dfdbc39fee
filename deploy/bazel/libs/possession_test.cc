#include "deploy/bazel/libs/possession.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// clients/python/tests/test_calls.py has the same values.
TEST(PossessionTest, AsEveryClientComputesIt) {
  const std::string nonce(32, '\x01');
  EXPECT_EQ(absl::BytesToHexString(SealOf("bytes")),
            "727e512e07586739ed8650d5d77bb7875b34be2ad081d9e0977827d3bba70e3e");
  EXPECT_EQ(absl::BytesToHexString(PossessionProof(nonce, Sha256Of("bytes"), SealOf("bytes"))),
            "f5890cf61e1971ac5050634c160ae859bca4f720e492ced2a303076757026278");
}

TEST(PossessionTest, BothDigestsComeOutOfOnePass) {
  Sha256 hash;
  hash.Update("by").Update("tes");
  EXPECT_EQ(hash.With(kSealSuffix), SealOf("bytes"));
  EXPECT_EQ(hash.With(""), Sha256Of("bytes"));
  EXPECT_EQ(hash.Update("!").With(kSealSuffix), SealOf("bytes!"));
  EXPECT_EQ(hash.Finish(), Sha256Of("bytes!"));
}

TEST(PossessionTest, ProofsDependOnEverything) {
  const std::string nonce(32, '\x01'), other(32, '\x02');
  const std::string proof = PossessionProof(nonce, Sha256Of("bytes"), SealOf("bytes"));
  EXPECT_NE(PossessionProof(other, Sha256Of("bytes"), SealOf("bytes")), proof);
  EXPECT_NE(PossessionProof(nonce, Sha256Of("bytes!"), SealOf("bytes")), proof);
  EXPECT_NE(PossessionProof(nonce, Sha256Of("bytes"), SealOf("bytes!")), proof);
}

// A length extension of the hash is not a seal.
TEST(PossessionTest, TheSuffixIsNotSha256sPadding) { EXPECT_NE(kSealSuffix[0], '\x80'); }

}  // namespace
}  // namespace athanor
