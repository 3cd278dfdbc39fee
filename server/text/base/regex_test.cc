#include "server/text/base/regex.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

std::vector<TextRange> Find(std::string_view pattern, std::string_view text) {
  std::vector<TextRange> matches;
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (regex.ok()) EXPECT_TRUE(regex->FindAll(text, &matches).ok());
  return matches;
}

TEST(RegexTest, FindsWhatOnigurumaFinds) {
  using Ranges = std::vector<TextRange>;
  EXPECT_EQ(Find("a+", ""), Ranges());
  EXPECT_EQ(Find("a+", "aabaa"), (Ranges{{0, 2}, {3, 5}}));
  // Empty matches, but none right behind another match.
  EXPECT_EQ(Find("a*", "ba"), (Ranges{{0, 0}, {1, 2}}));
  EXPECT_EQ(Find(R"(\s+(?!\S))", "a  b "), (Ranges{{1, 2}, {4, 5}}));
  // U+180E is no white space; U+24B6 is a letter of words, U+4E00's script is Han.
  EXPECT_EQ(Find(R"(\s)", "\xE1\xA0\x8E \xE2\x80\xA8"), (Ranges{{3, 4}, {4, 7}}));
  EXPECT_EQ(Find(R"([\w]+)", "\xE2\x92\xB6_-"), (Ranges{{0, 4}}));
  // U+00B2 and U+00BE are of words, U+00B4 and U+2074 are not.
  EXPECT_EQ(Find(R"(\w\d)", "\xC2\xB2\x31\xC2\xBE\x31\xC2\xB4\x31\xE2\x81\xB4\x31"),
            (Ranges{{0, 3}, {3, 6}}));
  EXPECT_EQ(Find(R"(\p{Han}+)", "\xE4\xB8\x80x"), (Ranges{{0, 3}}));
  EXPECT_EQ(Find("(?i:'S)", "'s'S"), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(Find("(?i)a|b", "AB"), (Ranges{{0, 1}, {1, 2}}));
  EXPECT_EQ(Find("x|((?i)a|b)", "ABX"), (Ranges{{0, 1}, {1, 2}}));
  EXPECT_EQ(Find("x|(?i)a", "XA"), (Ranges{{1, 2}}));
  EXPECT_EQ(Find("a{1,2}?", "aa"), (Ranges{{0, 1}, {1, 2}}));
  // Ends are those of lines.
  EXPECT_EQ(Find(R"(\s+$)", "a  \nb "), (Ranges{{1, 3}, {5, 6}}));
  EXPECT_EQ(Find("^b?", "b\nb\n"), (Ranges{{0, 1}, {2, 3}}));
  EXPECT_EQ(Find("a$", "a\r\na"), (Ranges{{3, 4}}));
}

TEST(RegexTest, RefusesWhatMayMeanSomethingElse) {
  for (std::string_view pattern :
       {R"(\b)",      R"(\h)",   R"(\R)",    R"(\Ka)",     R"([a&&b])",
        R"([a[b]])",  R"([\W])", R"(a{,2})", R"(a{1,2}+)", R"((?<n>a))",
        R"((?s:.))",  "a{2}?",   "x(?i)a|b", "a|x(?i)a",   "(?i)x(?i)a",
        R"(\|(?i)a)", R"(\1)",   "\\",       "[]a]",       R"(\p{Script=Han})",
        R"(\C)"}) {
    const absl::Status status = Regex::Compile(pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << pattern << ": " << status;
  }
  for (std::string_view pattern : {"(", "[", "a**b(", R"(\p{Nothing})", "(?<=a+)b"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
  }
}

TEST(RegexTest, EndsMatchesThatTakeTooManySteps) {
  const absl::StatusOr<Regex> regex = Regex::Compile("(a+)+b");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> matches;
  EXPECT_EQ(regex->FindAll(std::string(100, 'a') + "cb", &matches).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(regex->FindAll("aab", &matches).ok());
}

}  // namespace
}  // namespace athanor
