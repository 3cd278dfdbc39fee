#include "server/net/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::seconds;

TEST(PeerTest, AsGrpcWritesIt) {
  const Peer v4 = PeerOfCall("ipv4:10.0.0.7:43210");
  EXPECT_EQ(v4.host, "10.0.0.7");
  EXPECT_EQ(v4.port, 43210);
  EXPECT_EQ(PeerOfCall("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:99").host, "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOfCall("ipv6:%5B2001%3Adb8%3A1%3A2%3A%3A9%5D:99").host, "2001:db8:1:2::/64");
  EXPECT_EQ(PeerOfCall("ipv6:[fe80::1%25eth0]:99").host, "fe80::/64");
  EXPECT_EQ(PeerOfCall("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:99").port, 99);
  EXPECT_EQ(PeerOfCall("ipv6:%5B::ffff:10.0.0.7%5D:99").host, "10.0.0.7");
  for (const char* none : {"", "unix:", "unix:/tmp/socket", "ipv6:nothing:1", "fd:9"}) {
    EXPECT_EQ(PeerOfCall(none).host, "") << none;
  }
  for (const char* none : {"", "unix:", "unix:/tmp/a", "ipv4:1.2.3.4:70000", "ipv4:1.2.3.4:-5"}) {
    EXPECT_EQ(PortOfCall(none), 0) << none;
  }
}

TEST(PeerTest, LocalOnes) {
  for (const char* local :
       {"unix:", "unix:/tmp/socket", "ipv4:127.0.0.1:80", "ipv4:127.9.9.9:80", "ipv6:%5B::1%5D:80",
        "ipv6:[::1]:80", "ipv6:%5B::ffff:127.0.0.1%5D:80"}) {
    EXPECT_TRUE(IsLocalPeer(local)) << local;
  }
  for (const char* other : {"", "unknown:", "ipv4:10.0.0.7:80", "ipv4:12.7.0.1:80", "fd:9",
                            "ipv6:%5B2001:db8::1%5D:80", "ipv6:%5B::ffff:10.0.0.7%5D:80"}) {
    EXPECT_FALSE(IsLocalPeer(other)) << other;
  }
}

TEST(PeerTest, OfAUnixSocketThereIsNone) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_EQ(PeerOfSocket(pair[0]).host, "");
  EXPECT_EQ(PeerOfSocket(-1).host, "");
  EXPECT_EQ(PeerTextOfSocket(pair[0]), "unix:");
  EXPECT_EQ(PeerTextOfSocket(-1), "unknown:") << "one that has left is not local";
  for (const int fd : pair) close(fd);
}

// A listener at :: sees clients of both kinds.
TEST(PeerTest, OfASocketAsGrpcWritesIt) {
  const int listener = socket(AF_INET6, SOCK_STREAM, 0);
  const int no = 0;
  setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  socklen_t size = sizeof(at);
  if (bind(listener, reinterpret_cast<sockaddr*>(&at), size) != 0) GTEST_SKIP() << "no IPv6";
  ASSERT_EQ(listen(listener, 2), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  at.sin6_addr = in6addr_loopback;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = at.sin6_port;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto text_of = [&](int family, const sockaddr* address, socklen_t bytes) {
    const int client = socket(family, SOCK_STREAM, 0);
    EXPECT_EQ(connect(client, address, bytes), 0);
    const int server = accept(listener, nullptr, nullptr);
    const std::string text = PeerTextOfSocket(server);
    EXPECT_EQ(PeerOfCall(text).host, PeerOfSocket(server).host);
    EXPECT_EQ(PeerOfCall(text).port, PeerOfSocket(server).port);
    close(client);
    close(server);
    return text.substr(0, text.rfind(':'));
  };
  EXPECT_EQ(text_of(AF_INET, reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), "ipv4:127.0.0.1");
  EXPECT_EQ(text_of(AF_INET6, reinterpret_cast<sockaddr*>(&at), sizeof(at)), "ipv6:%5B::1%5D");
  close(listener);
}

TEST(PeerSharesTest, NoPeerHoldsMoreThanItsShare) {
  PeerShares shares(10, 25);
  EXPECT_EQ(shares.share(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(shares.Take("a"));
  EXPECT_FALSE(shares.Take("a"));
  EXPECT_TRUE(shares.full("a"));
  EXPECT_TRUE(shares.Take("b"));
  shares.Drop("a");
  EXPECT_EQ(shares.held("a"), 2);
  EXPECT_TRUE(shares.Take("a"));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(shares.Take(""));
  EXPECT_FALSE(shares.full(""));
  EXPECT_EQ(PeerShares(1, 1).share(), 1);
}

TEST(ConnectionCallsTest, QuietSinceItWasOpenedOrSinceItsLastCall) {
  ConnectionCalls calls;
  const auto now = ConnectionCalls::Clock::now();
  EXPECT_EQ(calls.QuietFor(7, now, now), seconds(0));
  EXPECT_GE(calls.QuietFor(7, now, now + seconds(9)), seconds(8));
  calls.Begin(7);
  calls.Begin(7);
  calls.End(7);
  EXPECT_EQ(calls.QuietFor(7, now, now + seconds(9)), seconds(0));
  EXPECT_GE(calls.QuietFor(8, now, now + seconds(9)), seconds(8));
  calls.End(7);
  EXPECT_GE(calls.QuietFor(7, now, now + seconds(9)), seconds(8));
  EXPECT_LE(calls.QuietFor(7, now - seconds(9), now + seconds(9)), seconds(9));
  EXPECT_EQ(calls.QuietFor(9, now + seconds(1), now), seconds(0));
}

}  // namespace
}  // namespace athanor
