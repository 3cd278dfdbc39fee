#include "clients/cpp/client/bundle.h"

#include "absl/strings/escaping.h"
#include "deploy/bazel/libs/sha256.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

std::string Number(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

std::string File() {
  return "ATHANOR1" + Number(5) + Number(2) + Sha256Of("abc") + Number(3) + Sha256Of("") +
         Number(0) + "graph" + "abc";
}

TEST(Bundle, Sha256IsTheStandards) {
  EXPECT_EQ(absl::BytesToHexString(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Bundle, Reads) {
  const std::string file = File();
  absl::StatusOr<Bundle> bundle = ParseBundle(file);
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(bundle->graph, "graph");
  ASSERT_EQ(bundle->tensors.size(), 2u);
  EXPECT_EQ(bundle->tensors[0].bytes, "abc");
  EXPECT_EQ(bundle->tensors[1].bytes, "");
}

TEST(Bundle, RefusesEveryCutAndEveryFlippedBit) {
  const std::string file = File();
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(ParseBundle(absl::string_view(file).substr(0, n)).ok()) << n;
  }
  EXPECT_FALSE(ParseBundle(file + "x").ok());
  for (size_t n = 0; n < file.size(); ++n) {
    // The graph has no checksum here: the upload's header has one.
    if (n >= file.size() - 8 && n < file.size() - 3) continue;
    std::string flipped = file;
    flipped[n] ^= 0x40;
    EXPECT_FALSE(ParseBundle(flipped).ok()) << n;
  }
}

}  // namespace
}  // namespace athanor::client
