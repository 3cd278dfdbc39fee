#include "server/base/machine_id.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(MachineIdTest, AMachineIsAlwaysTheSame) {
  const std::string machine = MachineFingerprint();
  EXPECT_THAT(machine, MatchesRegex(".+ [0-9a-f]{32}"));
  EXPECT_EQ(MachineFingerprint(), machine);
}

TEST(MachineIdTest, ABinaryIsKnownByItsBuildId) {
  const std::string tuner = BuildIdOf("server/athanor-tuner");
  EXPECT_THAT(tuner, MatchesRegex("[0-9a-f]+")) << "the linker gives none?";
  EXPECT_NE(BuildIdOf("/proc/self/exe"), tuner);
}

TEST(MachineIdTest, OtherFilesAreKnownBySizeAndTime) {
  const std::string path = ::testing::TempDir() + "/no_binary";
  std::ofstream(path) << "text";
  EXPECT_THAT(BuildIdOf(path), StartsWith("bytes 4 changed "));
  // Only the head of a binary.
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string head(64, ' ');
  self.read(head.data(), 64);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << head;
  EXPECT_THAT(BuildIdOf(path), StartsWith("bytes 64 changed "));
  EXPECT_EQ(BuildIdOf(path + ".missing"), "");
}

}  // namespace
}  // namespace athanor
