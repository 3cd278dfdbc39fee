#include "server/net/collector_address.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CollectorAddressTest, NamesAHostAPortAndWhetherTls) {
  const auto expect = [](absl::string_view url, const std::string& target, bool tls) {
    const auto address = ParseCollectorAddress("--otlp_endpoint", url);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->target, target);
    EXPECT_EQ(address->tls, tls);
  };
  expect("http://localhost:4317", "localhost:4317", false);
  expect("http://localhost:4317/", "localhost:4317", false);
  expect("http://collector", "collector:4317", false);
  expect("https://collector.example", "collector.example:4317", true);
  expect("https://collector.example:443", "collector.example:443", true);
  expect("http://[::1]", "[::1]:4317", false);
  expect("http://[::1]:9", "[::1]:9", false);
}

TEST(CollectorAddressTest, OtherUrlsAreRefused) {
  const auto expect = [](absl::string_view url, const std::string& why) {
    const absl::Status status = ParseCollectorAddress("--otlp_endpoint", url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--otlp_endpoint=" + std::string(url) + ": " + why));
    EXPECT_THAT(std::string(status.message()), HasSubstr("give http://HOST:PORT"));
  };
  expect("", "it begins with neither");
  expect("localhost:4317", "it begins with neither");
  expect("grpc://localhost:4317", "it begins with neither");
  expect("HTTP://localhost:4317", "it begins with neither");
  expect("http://localhost:4318/v1/traces", "it has a path");
  expect("http://", "it does not name a host and a port");
  expect("http://:4317", "it does not name a host and a port");
  expect("http://localhost:", "it does not name a host and a port");
  expect("http://localhost:0", "it does not name a host and a port");
  expect("http://localhost:66000", "it does not name a host and a port");
  expect("http://::1:4317", "it does not name a host and a port");
}

TEST(CollectorAddressTest, SecretsAreRefusedAndNotRepeated) {
  const auto expect = [](absl::string_view url, const std::string& why) {
    const absl::Status status = ParseCollectorAddress("--otlp_endpoint", url).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  };
  const std::string user = "has a user or a password";
  for (const char* url : {"http://user:secret@localhost:4317", "grpc://user:secret@localhost:4317",
                          "user:secret@localhost:4317", "https://secret@", "HTTP://u:secret@a/b",
                          "http://user:secret@localhost:4317/v1/traces"}) {
    expect(url, user);
  }
  expect("http://localhost:4317?key=secret", "http://localhost:4317: it has a path");
  expect("localhost:4317#secret", "localhost:4317: it begins with neither");
}

}  // namespace
}  // namespace athanor
