#include "server/base/log.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(LogTest, TextQuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(
      FormatLog("model uploaded", {{"model", "digits"}, {"bytes", 12}, {"error", "no b=1"}}, false),
      "msg=\"model uploaded\" model=digits bytes=12 error=\"no b=1\"");
}

TEST(LogTest, JsonValuesKeepTheirKind) {
  EXPECT_EQ(FormatLog("m", {{"s", "1"}, {"n", 1}}, true), R"("msg":"m","s":"1","n":1)");
}

TEST(LogTest, WhatOthersSendCannotForgeALine) {
  const std::string line = FormatLog("m", {{"name", "a\nlevel=error \xff\""}}, false);
  EXPECT_EQ(line, R"(msg="m" name="a\nlevel=error \u00ff\"")");
}

TEST(LogTest, OfTooManyLinesSomePassAndTheRestIsCounted) {
  LogLimit limit(2);
  const std::chrono::steady_clock::time_point begin(std::chrono::seconds(100));
  EXPECT_EQ(limit.Pass(begin), 0);
  EXPECT_EQ(limit.Pass(begin + std::chrono::milliseconds(1)), 0);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(limit.Pass(begin + std::chrono::milliseconds(2)), std::nullopt);
  EXPECT_EQ(limit.Pass(begin + std::chrono::seconds(1)), 5);
  EXPECT_EQ(limit.Pass(begin + std::chrono::seconds(1)), 0);
  EXPECT_EQ(limit.Pass(begin + std::chrono::seconds(1)), std::nullopt);
}

}  // namespace
}  // namespace athanor
