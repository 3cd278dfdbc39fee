#include "server/log.h"

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

}  // namespace
}  // namespace athanor
