#include "server/generate/schedule/block_key.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::vector<BlockKey> Keys(const BlockKey& root, const std::vector<int32_t>& tokens,
                           int64_t block) {
  std::vector<BlockKey> keys;
  AddKeys(root, tokens, block, &keys);
  return keys;
}
std::string Hex(const BlockKey& key) {
  return absl::BytesToHexString(absl::string_view(key.data(), key.size()));
}

// hashlib: root = sha256(b"3:sig" + b"salt"); first = sha256(root + struct.pack("<2i", 1, 2)), and
// so on.
TEST(BlockKeyTest, IsTheHashOfTheKeyBeforeAndOfTheTokens) {
  const BlockKey root = RootKey("sig", "salt");
  EXPECT_EQ(Hex(root), "9e7de6786451db61f9bf521b6291808ab65a065824a90ac72786c78d41f259f0");
  const std::vector<BlockKey> keys = Keys(root, {1, 2, 70000, -1, 5}, 2);
  ASSERT_EQ(keys.size(), 2u) << "the fifth token fills no block";
  EXPECT_EQ(Hex(keys[0]), "95d919a5a988757b658d47087d7c50a2be597f187f430a66cebea6c0efa86333");
  EXPECT_EQ(Hex(keys[1]), "acaac9fcbd753d82ab1095f87d91924b16beba211d65c116a3b3a248547fea90");
}

TEST(BlockKeyTest, RootsKeepSignatureAndSaltApart) {
  EXPECT_NE(RootKey("ab", ""), RootKey("a", "b"));
  EXPECT_NE(RootKey("", "ab"), RootKey("ab", ""));
  EXPECT_NE(RootKey("a", "1"), RootKey("a", "2"));
  EXPECT_NE(Keys(RootKey("a", "1"), {1}, 1), Keys(RootKey("a", "2"), {1}, 1));
}

TEST(BlockKeyTest, AddsWhatIsMissing) {
  const BlockKey root = RootKey("sig", "");
  std::vector<int32_t> tokens;
  std::vector<BlockKey> keys;
  AddKeys(root, tokens, 4, &keys);
  EXPECT_TRUE(keys.empty());
  for (int32_t token = 0; token < 100; ++token) {
    tokens.push_back(token);
    AddKeys(root, tokens, 4, &keys);
    ASSERT_EQ(keys.size(), tokens.size() / 4);
  }
  EXPECT_EQ(keys, Keys(root, tokens, 4));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST(BlockKeyTest, ATokenChangesItsBlockAndAllBehindIt) {
  const BlockKey root = RootKey("sig", "");
  const std::vector<BlockKey> keys = Keys(root, {1, 2, 3, 4, 5, 6}, 2);
  const std::vector<BlockKey> others = Keys(root, {1, 2, 3, 9, 5, 6}, 2);
  EXPECT_EQ(keys[0], others[0]);
  EXPECT_NE(keys[1], others[1]);
  EXPECT_NE(keys[2], others[2]) << "though its own tokens are equal";
}

}  // namespace
}  // namespace athanor
