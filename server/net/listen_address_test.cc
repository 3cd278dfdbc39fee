#include "server/net/listen_address.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(ListenAddressTest, HostsAndPorts) {
  for (const char* right : {"127.0.0.1:0", "localhost:65535", "[::1]:8080", "0.0.0.0:1",
                            "[fe80::1%eth0]:1", "a-host.example:50051"}) {
    EXPECT_EQ(CheckListenAddress("--listen", right, false), absl::OkStatus());
  }
  const auto wrong = [](absl::string_view address, absl::string_view why) {
    const absl::Status status = CheckListenAddress("--http_listen", address, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("--http_listen=", address, ": ", why)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("give host:port, such as 127.0.0.1:8080"));
  };
  wrong("", "it has no port");
  wrong("8080", "it has no port");
  wrong("localhost", "it has no port");
  wrong(":8080", "it has no host");
  wrong("127.0.0.1:99999", "'99999' is not a port from 0 to 65535");
  wrong("localhost:-1", "'-1' is not a port");
  wrong("localhost:+1", "'+1' is not a port");
  wrong("localhost: 1", "' 1' is not a port");
  wrong("localhost:http", "'http' is not a port");
  wrong("localhost:", "'' is not a port");
  wrong("localhost:99999999999999999999", "'99999999999999999999' is not a port");
  wrong("::1:8080", "'::1' is not a host; put IPv6 addresses, and only those, in brackets");
  wrong("[::1:8080", "'[::1' is not a host");
  wrong("[]:8080", "'[]' is not a host");
  wrong("[localhost]:8080", "'[localhost]' is not a host");
  wrong("http://localhost:8080", "'http://localhost' is not a host");
  wrong("unix:/tmp/athanor", "'/tmp/athanor' is not a port");
}

TEST(ListenAddressTest, PathsOnlyWhereTheyAreTaken) {
  EXPECT_EQ(CheckListenAddress("--listen", "unix:/tmp/athanor", true), absl::OkStatus());
  EXPECT_EQ(CheckListenAddress("--listen", "127.0.0.1:1", true), absl::OkStatus());
  const std::string none(CheckListenAddress("--listen", "unix:", true).message());
  EXPECT_THAT(none, HasSubstr("--listen=unix:: it has no path; give host:port"));
  EXPECT_THAT(none, HasSubstr(", or unix:path"));
}

TEST(ListenAddressTest, WhatOthersCannotReach) {
  for (const char* own : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1", "unix:/tmp/a"}) {
    EXPECT_TRUE(IsLoopback(own)) << own;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "127.example.com:1", "host:1"}) {
    EXPECT_FALSE(IsLoopback(open)) << open;
  }
}

}  // namespace
}  // namespace athanor
