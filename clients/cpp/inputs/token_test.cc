#include "clients/cpp/inputs/token.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string FileWith(const std::string& text) {
  const std::string path = testing::TempDir() + "/token";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return path;
}

std::string Error(const absl::StatusOr<std::string>& token) {
  return std::string(token.status().message());
}

TEST(Token, ComesFromTheFilesFirstLine) {
  EXPECT_EQ(*ReadToken(FileWith("  secret-12 \r\nsecond\n")), "secret-12");
  EXPECT_EQ(*ReadToken(FileWith(std::string(256, 'x'))), std::string(256, 'x'));
}

TEST(Token, ComesFromTheEnvironmentWithoutAFile) {
  unsetenv("ATHANOR_TOKEN");
  EXPECT_EQ(*ReadToken(""), "");
  setenv("ATHANOR_TOKEN", "from-there", 1);
  EXPECT_EQ(*ReadToken(""), "from-there");
  EXPECT_EQ(*ReadToken(FileWith("from-the-file")), "from-the-file");
  setenv("ATHANOR_TOKEN", "", 1);
  EXPECT_EQ(*ReadToken(""), "");
  setenv("ATHANOR_TOKEN", "short", 1);
  EXPECT_THAT(Error(ReadToken("")), HasSubstr("ATHANOR_TOKEN: a token is 8 to 256"));
  unsetenv("ATHANOR_TOKEN");
}

TEST(Token, WhatIsNoTokenIsRefusedAndNeverShown) {
  for (const std::string& text : {std::string(""), std::string("1234567"), std::string(257, 'x'),
                                  std::string("secret 123"), std::string("secret\x01xyz"),
                                  std::string("secret\xc3\xa9xyz"), std::string("\nsecret-12")}) {
    const std::string error = Error(ReadToken(FileWith(text)));
    EXPECT_THAT(error, HasSubstr("--token_file ")) << text;
    EXPECT_THAT(error, Not(HasSubstr("secret")));
  }
  EXPECT_THAT(Error(ReadToken("/none/such")), HasSubstr("/none/such"));
}

}  // namespace
}  // namespace athanor::client
