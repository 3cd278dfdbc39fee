#include "server/http/host_names.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns the status of the refusal, 0 if accepted.
int StatusOf(const HostNames& hosts, const std::string& header) {
  const auto refused = hosts.Check({header}, /*needed=*/true);
  return refused ? refused->status : 0;
}

TEST(HostNamesTest, NamesOfThisServer) {
  const HostNames hosts("Box.example:8080", {"other.example", "Third"});
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  for (const std::string& name :
       {std::string("box.example"), std::string("BOX.example."), std::string("other.example"),
        std::string("third"), std::string("localhost"), std::string("a.localhost"),
        std::string("127.0.0.1"), std::string("10.1.2.3"), std::string("[::1]"),
        std::string("[fe80::1]"), std::string(own)}) {
    EXPECT_EQ(StatusOf(hosts, name), 0) << name;
    EXPECT_EQ(StatusOf(hosts, name + ":8080"), 0) << name;
    EXPECT_EQ(StatusOf(hosts, name + ":1"), 0) << name;  // a forwarded port
    EXPECT_EQ(StatusOf(hosts, name + ":"), 0) << name;
  }
}

TEST(HostNamesTest, OtherNamesAreMisdirected) {
  const HostNames hosts("127.0.0.1:8080", {});
  for (const char* name :
       {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example",
        "notlocalhost", "127.0.0.1x", "127.1", "0x7f000001", "1.2.3.4.5", "_", "xn--a"}) {
    EXPECT_EQ(StatusOf(hosts, name), 421) << name;
  }
  EXPECT_EQ(hosts.Check({"evil.example:80"}, true)->text,
            "evil.example is not a known name of this server; if it is one, add it to "
            "--http_hosts");
}

TEST(HostNamesTest, WhatIsNoHostIsWrong) {
  const HostNames hosts("[::1]:8080", {});
  for (const std::string& name : {std::string(),
                                  std::string(":80"),
                                  std::string("a b"),
                                  std::string("a/b"),
                                  std::string("http://localhost"),
                                  std::string("localhost:x"),
                                  std::string("localhost:65536"),
                                  std::string("localhost:-1"),
                                  std::string("[::1"),
                                  std::string("[::1]x"),
                                  std::string("[::1]x:1"),
                                  std::string("::1"),
                                  std::string("[localhost]"),
                                  std::string("[]"),
                                  std::string("a\0b", 3),
                                  std::string("<script>"),
                                  std::string("user@localhost"),
                                  std::string("localhost,localhost"),
                                  std::string(300, 'a'),
                                  std::string("\xc3\xa4")}) {
    EXPECT_EQ(StatusOf(hosts, name), 400) << name;
  }
}

TEST(HostNamesTest, OneHostWhereOneIsNeeded) {
  const HostNames hosts("127.0.0.1:8080", {});
  EXPECT_EQ(hosts.Check({}, /*needed=*/true)->status, 400);
  EXPECT_FALSE(hosts.Check({}, /*needed=*/false).has_value());
  for (const bool needed : {false, true}) {
    EXPECT_EQ(hosts.Check({"localhost", "localhost"}, needed)->status, 400);
    EXPECT_EQ(hosts.Check({"evil.example"}, needed)->status, 421);
  }
}

}  // namespace
}  // namespace athanor
