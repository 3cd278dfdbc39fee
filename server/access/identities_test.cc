#include "server/access/identities.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Digests by `printf %s first | sha256sum`.
constexpr char kFirst[] = "sha256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e";
constexpr char kSecond[] =
    "sha256:16367AACB67A4A017C8DA8AB95682CCB390863780F7114DDA0A0E0C55644C7C4";

absl::StatusOr<Identities::Ptr> Parse(const std::string& text) {
  return Identities::Parse("auth", "auth.conf", text);
}
std::string Wrong(const std::string& text) {
  const auto parsed = Parse(text);
  if (parsed.ok()) return "no error";
  EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
  return std::string(parsed.status().message());
}
std::string WithLines(const std::string& lines) {
  return absl::StrCat("[a]\nroles = infer\nmodels = *\ntoken = ", kFirst, "\n", lines);
}

TEST(IdentitiesTest, ReadsAFile) {
  const auto read = Parse(absl::StrCat(
      "# who may call\n\n[team-a]\n  roles = infer ,upload\r\nmodels = team-a/*, shared\n",
      "token = ", kFirst, "\ntoken = ", kSecond, " until 2027-01-31\n",
      "calls_per_second = 50\nconcurrent_calls=8\nupload_rate = 10MiB\nmax_models = 20\n",
      "[ops]\nroles=admin\ntoken=sha256:", std::string(64, '0')));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->size(), 2);
  EXPECT_EQ((*read)->tokens(), 3);
  const auto a = (*read)->OfToken("first", absl::Now());
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ((*a)->name, "team-a");
  EXPECT_EQ((*a)->roles.Text(), "infer, upload");
  EXPECT_THAT((*a)->models, ElementsAre("team-a/*", "shared"));
  EXPECT_EQ((*a)->quotas.calls_per_second, 50);
  EXPECT_EQ((*a)->quotas.concurrent_calls, 8);
  EXPECT_EQ((*a)->quotas.upload_rate, 10 << 20);
  EXPECT_EQ((*a)->quotas.max_models, 20);
}

TEST(IdentitiesTest, TokensExpire) {
  const auto read = Parse(absl::StrCat("[a]\nroles = infer\nmodels = *\ntoken = ", kFirst,
                                       " until 2027-01-31T12:00:00Z\ntoken = ", kSecond));
  ASSERT_TRUE(read.ok()) << read.status();
  absl::Time until;
  std::string error;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, "2027-01-31T12:00:00Z", &until, &error));
  EXPECT_TRUE((*read)->OfToken("first", until - absl::Seconds(1)).ok());
  const auto late = (*read)->OfToken("first", until);
  EXPECT_TRUE(absl::IsUnauthenticated(late.status()));
  EXPECT_THAT(std::string(late.status().message()),
              HasSubstr("a has expired, on 2027-01-31T12:00"));
  EXPECT_TRUE((*read)->OfToken("second", until).ok()) << "tokens of one identity rotate";
}

TEST(IdentitiesTest, OtherTokensAreNobodys) {
  const auto read = Parse(WithLines(""));
  ASSERT_TRUE(read.ok()) << read.status();
  for (const std::string& token :
       {std::string(), std::string("First"), std::string("first "), std::string(kFirst),
        std::string("first\0", 6), std::string(1 << 20, 'x')}) {
    const auto found = (*read)->OfToken(token, absl::Now());
    EXPECT_TRUE(absl::IsUnauthenticated(found.status()));
    EXPECT_EQ(found.status().message(), "the token is none of this server's");
  }
}

TEST(IdentitiesTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(Wrong(""), StartsWith("--auth=auth.conf: names no identity"));
  EXPECT_THAT(Wrong("roles = infer"), HasSubstr("auth.conf:1: stands ahead of the first [NAME]"));
  EXPECT_THAT(Wrong("[a b]"), HasSubstr("\"a b\"] is not a name"));
  EXPECT_THAT(Wrong("[a"), HasSubstr("lacks its ]"));
  EXPECT_THAT(Wrong("[]"), HasSubstr("is not a name"));
  EXPECT_THAT(Wrong(absl::StrCat("[", std::string(65, 'a'), "]")), HasSubstr("is not a name"));
  EXPECT_THAT(Wrong("[a]\nwhat"), HasSubstr(":2: is neither"));
  EXPECT_THAT(Wrong("[a]\nrole = infer"), HasSubstr("unknown key \"role\""));
  EXPECT_THAT(Wrong("[a]\nroles = infer, root"), HasSubstr("unknown role \"root\""));
  EXPECT_THAT(Wrong("[a]\nroles ="), HasSubstr("unknown role \"\""));
  EXPECT_THAT(Wrong("[a]\nroles = infer,infer"), HasSubstr("role infer is there twice"));
  EXPECT_THAT(Wrong("[a]\nmodels = x,,y"), HasSubstr("has 0 bytes"));
  EXPECT_THAT(Wrong(WithLines("roles = upload")), HasSubstr(":5: \"roles\" is there twice in [a]"));
  EXPECT_THAT(Wrong(WithLines("[b]\n[a]")), HasSubstr(":6: [a] is there twice, first in line 1"));
  EXPECT_THAT(Wrong(WithLines(absl::StrCat("[b]\ntoken = ", kFirst))),
              HasSubstr(":6: the token of b is that of a too"));
  EXPECT_THAT(Wrong(WithLines("calls_per_second = 0")), HasSubstr("leave it out for no limit"));
  EXPECT_THAT(Wrong(WithLines("calls_per_second = -1")), HasSubstr("not a whole number"));
  EXPECT_THAT(Wrong(WithLines("calls_per_second = 1e9")), HasSubstr("not a whole number"));
  EXPECT_THAT(Wrong(WithLines("concurrent_calls = 99999999999999999999")),
              HasSubstr("not a whole"));
  EXPECT_THAT(Wrong("[a]\nroles = upload\nupload_rate = fast"), HasSubstr("not a size"));
}

TEST(IdentitiesTest, RefusesContradictions) {
  const std::string token = absl::StrCat("token = ", kFirst, "\n");
  EXPECT_THAT(Wrong("[a]\n" + token), HasSubstr(":1: [a] has no roles"));
  EXPECT_THAT(Wrong("[a]\nroles = infer\nmodels = *"),
              HasSubstr("has no token and no certificate"));
  EXPECT_THAT(Wrong("[a]\nroles = admin, infer\nmodels = *\n" + token),
              HasSubstr("admin has every role: give it alone"));
  EXPECT_THAT(Wrong("[a]\nroles = infer\n" + token), HasSubstr("has no models"));
  EXPECT_THAT(Wrong("[a]\nroles = monitor\nmodels = *\n" + token), HasSubstr("do nothing"));
  EXPECT_THAT(Wrong("[a]\nroles = admin\nmodels = *\n" + token), HasSubstr("do nothing"));
  EXPECT_THAT(Wrong(WithLines("upload_rate = 1MiB")), HasSubstr("but not the role upload"));
  EXPECT_THAT(Wrong(WithLines("max_models = 1")), HasSubstr("but not the role upload"));
}

TEST(IdentitiesTest, ReadsCertificates) {
  const std::string digest(64, 'a');
  const auto read = Parse(absl::StrCat(
      "[a]\nroles = infer\nmodels = *\n", "certificate = subject:CN=a\\, b, O=c\n",
      "certificate = dns:A.test\n[b]\nroles = admin\n", "certificate = sha256:", digest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->certificates(), 3);
  EXPECT_EQ((*read)->tokens(), 0);
  const auto owner = [&](const std::string& name) {
    const auto found =
        (*read)->OfCertificate({{name}, absl::InfinitePast(), absl::InfiniteFuture()}, absl::Now());
    return found.ok() ? (*found)->name
                      : std::string(absl::StatusCodeToString(found.status().code()));
  };
  EXPECT_EQ(owner("subject:CN=a\\, b, O=c"), "a");
  EXPECT_EQ(owner("dns:a.test"), "a");
  EXPECT_EQ(owner("sha256:" + digest), "b");
  EXPECT_EQ(owner("uri:a.test"), "UNAUTHENTICATED");
  EXPECT_THAT(Wrong(WithLines("certificate = a.test")),
              HasSubstr(":5: certificate = \"a.test\": must be sha256:DIGEST, subject:DN"));
  EXPECT_THAT(Wrong(WithLines("certificate = sha256:12")), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(Wrong(WithLines("certificate = dns:a\n[b]\ncertificate = dns:A")),
              HasSubstr(":7: the certificate \"dns:A\" of b is that of a too"));
}

TEST(IdentitiesTest, CacheGroups) {
  const auto read = Parse(
      absl::StrCat(WithLines(""), "[b]\nroles = admin\ncache_group = all\n", "token = ", kSecond));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*(*read)->OfToken("first", absl::Now()))->cache_group, "=a") << "its own";
  EXPECT_EQ((*(*read)->OfToken("second", absl::Now()))->cache_group, "all");
  EXPECT_THAT(Wrong(WithLines("cache_group = a b")),
              HasSubstr("leave it out to share with nobody"));
  EXPECT_THAT(Wrong("[a]\nroles = monitor\ncache_group = b\ntoken = " + std::string(kFirst)),
              HasSubstr("has cache_group, but not the role infer"));
}

TEST(IdentitiesTest, NeverShowsWhatMayBeAToken) {
  for (const char* value : {"geheim-1234", "sha256:geheim-1234", "sha256: geheim-1234", "",
                            "sha1:a7937b64b8caa58f03721bb6bacf5c78cb235feb"}) {
    const std::string error = Wrong(absl::StrCat("[a]\ntoken = ", value));
    EXPECT_THAT(error, HasSubstr(":2: token is not sha256: and 64 hexadecimal digits"));
    EXPECT_THAT(error, Not(HasSubstr("geheim")));
  }
  for (const char* time : {"until", "until geheim", "geheim", "until 2027-02-30", "until 1 2"}) {
    const std::string error = Wrong(absl::StrCat("[a]\ntoken = ", kFirst, " ", time));
    EXPECT_THAT(error, HasSubstr("there may be `until` and a time"));
    EXPECT_THAT(error, Not(HasSubstr("geheim")));
  }
}

TEST(IdentitiesTest, HoldsAtMostAThousandTokens) {
  std::string text = "[a]\nroles = admin\n";
  for (int i = 0; i < 1'000; ++i) {
    absl::StrAppend(&text, "token = ", TokenDigestText(absl::StrCat("t", i)), "\n");
  }
  ASSERT_TRUE(Parse(text).ok());
  EXPECT_THAT(Wrong(absl::StrCat(text, "token = ", kFirst)), HasSubstr("more than 1000 tokens"));
}

TEST(IdentitiesTest, ReadsKeys) {
  const auto read = Identities::ParseKeys("openai_keys", "keys",
                                          "# ours\na first-key\n\nb\tsecond-key\na third-key");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->size(), 2);
  for (const auto& [key, name] :
       {std::pair("first-key", "a"), std::pair("second-key", "b"), std::pair("third-key", "a")}) {
    const auto found = (*read)->OfToken(key, absl::Now());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ((*found)->name, name);
    EXPECT_EQ((*found)->roles.Text(), "infer");
    EXPECT_TRUE((*found)->MayUse("any/model"));
  }
  const auto wrong = [](const std::string& text) {
    return std::string(Identities::ParseKeys("openai_keys", "keys", text).status().message());
  };
  EXPECT_THAT(wrong(""), HasSubstr("--openai_keys=keys: holds no key"));
  EXPECT_THAT(wrong("a"), HasSubstr("--openai_keys=keys:1: is not NAME KEY"));
  EXPECT_THAT(wrong("a b c"), HasSubstr("is not NAME KEY"));
  EXPECT_THAT(wrong("a/b long-enough"), HasSubstr("is not NAME KEY"));
  EXPECT_THAT(wrong("a short"), HasSubstr("the key of a must have 8 to 256"));
  EXPECT_THAT(wrong("a same-key-1\nb same-key-1"),
              HasSubstr(":2: the token of b is that of a too"));
  EXPECT_THAT(wrong("a same-key-1\nb same-key-1"), Not(HasSubstr("same-key")));
}

TEST(IdentitiesTest, CountsGoOn) {
  const auto before = Parse(WithLines("")), now = Parse(WithLines("calls_per_second = 9"));
  const auto joined = Identities::WithUseOf(**before, **now);
  const auto old = (*before)->OfToken("first", absl::Now());
  const auto same = joined->OfToken("first", absl::Now());
  EXPECT_EQ((*same)->use, (*old)->use);
  EXPECT_EQ((*same)->quotas.calls_per_second, 9);
}

TEST(IdentitiesTest, MakesTokens) {
  const std::string token = MakeToken();
  EXPECT_EQ(token.size(), 4u + 43u);
  EXPECT_NE(token, MakeToken());
  EXPECT_EQ(TokenDigestText("first"), kFirst);
  const auto read = Parse("[a]\nroles = admin\ntoken = " + TokenDigestText(token));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE((*read)->OfToken(token, absl::Now()).ok());
}

TEST(IdentitiesTest, BearerTokens) {
  EXPECT_EQ(BearerToken("Bearer abc"), "abc");
  EXPECT_EQ(BearerToken("bearer  abc "), "abc");
  EXPECT_EQ(BearerToken("Basic abc"), "");
  EXPECT_EQ(BearerToken("Bearer"), "");
  EXPECT_EQ(BearerToken(""), "");
  EXPECT_EQ(BasicPassword("Basic bWU6c2VjcmV0OjE="), "secret:1");  // me:secret:1
  EXPECT_EQ(BasicPassword("basic OmE="), "a");
  EXPECT_EQ(BasicPassword("Basic bWU="), "") << "no colon";
  EXPECT_EQ(BasicPassword("Basic !"), "");
  EXPECT_EQ(BasicPassword("Bearer abc"), "");
}

TEST(PatternTest, StarsStandForAnything) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("team-a/*", "team-a/m"));
  EXPECT_TRUE(MatchesPattern("team-a/*", "team-a/"));
  EXPECT_FALSE(MatchesPattern("team-a/*", "team-b/m"));
  EXPECT_FALSE(MatchesPattern("team-a/*", "team-a"));
  EXPECT_FALSE(MatchesPattern("team-a/*", "x/team-a/m"));
  EXPECT_TRUE(MatchesPattern("*-large", "a-large"));
  EXPECT_FALSE(MatchesPattern("*-large", "a-largest"));
  EXPECT_TRUE(MatchesPattern("a*b*c", "a/b/b/c"));
  EXPECT_FALSE(MatchesPattern("a*b*c", "acb"));
  EXPECT_TRUE(MatchesPattern("**", "x"));
  EXPECT_TRUE(MatchesPattern("exact", "exact"));
  EXPECT_FALSE(MatchesPattern("exact", "Exact"));
  EXPECT_FALSE(MatchesPattern("", "x"));
  EXPECT_FALSE(MatchesPattern("a?", "ab")) << "only stars are special";
  EXPECT_FALSE(MatchesPattern(std::string(200, '*') + "b", std::string(100'000, 'a')));
}

}  // namespace
}  // namespace athanor
