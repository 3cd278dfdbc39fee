#include "deploy/bazel/libs/sha256.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(Sha256Test, StandardVectors) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Of("abc").size(), kSha256Bytes);
}

TEST(Sha256Test, PiecesAreTheWhole) {
  Sha256 hash;
  hash.Update("a").Update("").Update("bc");
  EXPECT_EQ(absl::BytesToHexString(hash.Finish()), Sha256Hex("abc"));
}

}  // namespace
}  // namespace athanor
