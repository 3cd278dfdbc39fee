#include "server/net/keys.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ApiKeysTest, NamesWhoAsks) {
  const std::string file = testing::TempDir() + "/keys.txt";
  std::ofstream(file) << "# NAME KEY\n\nteam-a sk-first-key\r\n  \t\nteam.b\t sk-second-key \n"
                         "team-a sk-other-key";
  const auto keys = ApiKeys::Load("openai_keys", file);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->NameOf("sk-first-key"), "team-a");
  EXPECT_EQ(keys->NameOf("sk-other-key"), "team-a");
  EXPECT_EQ(keys->NameOf("sk-second-key"), "team.b");
  for (const char* wrong : {"", "sk-first-ke", "sk-first-key ", "SK-FIRST-KEY", "team-a", "# NAME"})
    EXPECT_EQ(keys->NameOf(wrong), std::nullopt) << wrong;
}

TEST(ApiKeysTest, RefusesWhatIsNoFileOfKeys) {
  const auto error = [](const std::string& text) {
    const auto keys = ApiKeys::Parse("openai_keys", "k.txt", text);
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string message(keys.status().message());
    EXPECT_THAT(message, HasSubstr("--openai_keys=k.txt: "));
    EXPECT_THAT(message, Not(HasSubstr("sk-")));
    return message;
  };
  EXPECT_THAT(error(""), HasSubstr("holds no key"));
  EXPECT_THAT(error("# nothing\n\n"), HasSubstr("holds no key"));
  EXPECT_THAT(error("a sk-long-enough\nsk-long-enough"), HasSubstr("line 2 is not NAME KEY"));
  EXPECT_THAT(error("a sk-long-enough more"), HasSubstr("line 1 is not NAME KEY"));
  EXPECT_THAT(error("a/b sk-long-enough"), HasSubstr("line 1 is not NAME KEY"));
  EXPECT_THAT(error(std::string(65, 'n') + " sk-long-enough"), HasSubstr("is not NAME KEY"));
  EXPECT_THAT(error("a short"), HasSubstr("the key of a must have 8 to 256"));
  EXPECT_THAT(error("a " + std::string(257, 'k')), HasSubstr("must have 8 to 256"));
  EXPECT_THAT(error("a sk-\x01\x02\x03\x04\x05\x06"), HasSubstr("visible"));
  EXPECT_THAT(error("a sk-long-enough\nb sk-long-enough"),
              HasSubstr("line 2: the key of b is that of a too"));
}

TEST(ApiKeysTest, RefusesFilesItCannotRead) {
  const std::string folder = testing::TempDir();
  for (const std::string& file : {folder + "/none", folder, folder + "/large"}) {
    if (file == folder + "/large") std::ofstream(file) << std::string((1 << 20) + 1, '#');
    const auto keys = ApiKeys::Load("openai_keys", file);
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(keys.status().message()), HasSubstr("--openai_keys=" + file));
  }
}

TEST(BearerTokenTest, Finds) {
  EXPECT_EQ(BearerToken("Bearer sk-1"), "sk-1");
  EXPECT_EQ(BearerToken("bearer  sk-1 "), "sk-1");
  EXPECT_EQ(BearerToken("Bearer "), "");
  for (const char* other : {"", "Bearer", "Basic sk-1", "sk-1"}) {
    EXPECT_EQ(BearerToken(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace athanor
