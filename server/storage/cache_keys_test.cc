#include "server/storage/cache_keys.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/ed25519_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

Ed25519Key Key(char seed) {
  return Ed25519Key::FromPem(Ed25519PrivatePem(std::string(32, seed))).value();
}

std::string PublicPem(char seed) { return Ed25519PublicPem(Key(seed).public_key()); }

std::string Error(const ServerOptions& options) {
  const absl::Status status = ReadCacheKeys(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CacheKeysTest, NoneByDefault) {
  absl::StatusOr<CacheKeys> keys = ReadCacheKeys({});
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_FALSE(keys->signing.has_value());
  EXPECT_THAT(keys->trusted, IsEmpty());
}

TEST(CacheKeysTest, AFileOrSeveralWithAKeyOrSeveral) {
  ServerOptions options;
  options.cache_signing_key = Write("signing.pem", Ed25519PrivatePem(std::string(32, 's')));
  options.cache_trusted_keys = absl::StrCat(
      Write("two.pem", absl::StrCat("# of the fleet\n", PublicPem('a'), PublicPem('b'))), ", ",
      Write("one.pem", PublicPem('c')));
  absl::StatusOr<CacheKeys> keys = ReadCacheKeys(options);
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_TRUE(keys->signing.has_value());
  EXPECT_EQ(keys->signing->public_key(), Key('s').public_key());
  EXPECT_THAT(keys->trusted,
              ElementsAre(Key('a').public_key(), Key('b').public_key(), Key('c').public_key()));
}

TEST(CacheKeysTest, ErrorsNameTheFlagAndTheFile) {
  ServerOptions options;
  options.cache_signing_key = "/nonexistent.pem";
  EXPECT_THAT(Error(options), AllOf(HasSubstr("--cache_signing_key: '/nonexistent.pem'"),
                                    HasSubstr("cannot be read")));
  options.cache_signing_key = Write("public.pem", PublicPem('a'));
  EXPECT_THAT(Error(options), HasSubstr("--cache_signing_key: '"));
  options.cache_signing_key = Write("other.pem", X25519PrivatePem(std::string(32, 'x')));
  EXPECT_THAT(Error(options), HasSubstr("other.pem': "));
  options = {};
  options.cache_trusted_keys = ::testing::TempDir();
  EXPECT_THAT(Error(options), HasSubstr("cannot be read"));
  options.cache_trusted_keys = Write("empty.pem", "");
  EXPECT_THAT(Error(options), HasSubstr("--cache_trusted_keys: '"));
  // The second key of a file is checked too.
  options.cache_trusted_keys =
      Write("private.pem", absl::StrCat(PublicPem('a'), Ed25519PrivatePem(std::string(32, 'b'))));
  EXPECT_THAT(Error(options), HasSubstr("private.pem': "));
}

}  // namespace
}  // namespace athanor
