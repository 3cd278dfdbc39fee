#include "clients/cpp/syntax/nearest.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::client {
namespace {

TEST(Nearest, DistancesCountLettersAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("modles", "models"), 1);
  EXPECT_EQ(EditDistance("ca", "abc"), 3);  // a swapped pair is not changed again
  EXPECT_EQ(EditDistance("infer", "infer"), 0);
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> commands = {"upload", "models", "infer", "generate", "pin"};
  EXPECT_EQ(Nearest("modles", commands), "models");
  EXPECT_EQ(Nearest("uplaod", commands), "upload");
  EXPECT_EQ(Nearest("gen", commands), "generate");
  EXPECT_EQ(Nearest("in", commands), "infer");
  EXPECT_EQ(Nearest("pni", commands), "pin");
}

TEST(Nearest, SaysNothingWhereNothingIsNear) {
  const std::vector<std::string> commands = {"upload", "models", "pin"};
  EXPECT_EQ(Nearest("zebra", commands), "");
  EXPECT_EQ(Nearest("", commands), "");
  EXPECT_EQ(Nearest("q", commands), "");
  EXPECT_EQ(Nearest(std::string(100'000, 'm'), commands), "");
  EXPECT_EQ(Nearest("models", {}), "");
}

TEST(Nearest, TakesDashesForUnderscores) {
  EXPECT_EQ(Nearest("--no-wait", {"--name", "--no_wait"}), "--no_wait");
}

}  // namespace
}  // namespace athanor::client
