// Tests how connections are accepted, refused and counted, without gRPC.
#include "server/net/connections.h"

#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Listener> ListenAt(const std::string& address) {
  auto listener = Listener::Open("listen", address);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

int ConnectTo(int family, int port) {
  const int end = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  v6.sin6_addr = in6addr_loopback;
  const bool six = family == AF_INET6;
  const auto* address =
      six ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (connect(end, address, six ? sizeof(v6) : sizeof(v4)) == 0) return end;
  close(end);
  return -1;
}

// Returns everything the other end sends until it closes.
std::string ReadAll(int end) {
  std::string all;
  char bytes[256];
  for (ssize_t got = 0; (got = read(end, bytes, sizeof(bytes))) > 0;) all.append(bytes, got);
  return all;
}

TEST(OpenSocketsTest, WhatIsClosedCountsNoMore) {
  OpenSockets open({.most = 2});
  int pairs[2][2];
  for (auto& pair : pairs) ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const OpenSockets::Clock::time_point now = OpenSockets::Clock::now();
  EXPECT_TRUE(open.Add(pairs[0][0], now));
  EXPECT_TRUE(open.Add(pairs[0][1], now));
  EXPECT_FALSE(open.Add(pairs[1][0], now));
  close(pairs[0][0]);
  // It checked the sockets just now.
  EXPECT_FALSE(open.Add(pairs[1][0], now + std::chrono::milliseconds(1)));
  EXPECT_TRUE(open.Add(pairs[1][0], now + std::chrono::milliseconds(20)));
  EXPECT_EQ(open.counted(), 2);
  for (const int fd : {pairs[0][1], pairs[1][0], pairs[1][1]}) close(fd);
}

TEST(OpenSocketsTest, ADescriptorThatIsAnotherFilesCountsNoMore) {
  OpenSockets open({.most = 1});
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const OpenSockets::Clock::time_point now = OpenSockets::Clock::now();
  EXPECT_TRUE(open.Add(pair[0], now));
  int other[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
  ASSERT_EQ(dup2(other[0], pair[0]), pair[0]);
  EXPECT_TRUE(open.Add(other[1], now));
  for (const int fd : {pair[0], pair[1], other[0], other[1]}) close(fd);
}

TEST(ConnectionsTest, TakesSoManyAndClosesOthers) {
  std::atomic<int> taken = -1, refused = 0;
  auto connections = Connections::Start(
      ListenAt("127.0.0.1:0"),
      {.limits = {.most = 1}, .take = [&](int fd) { taken = fd; }, .refused = [&] { ++refused; }});
  ASSERT_TRUE(connections.ok()) << connections.status();
  const int first = ConnectTo(AF_INET, (*connections)->port());
  while (taken < 0) std::this_thread::yield();
  const int second = ConnectTo(AF_INET, (*connections)->port());
  EXPECT_THAT(ReadAll(second), IsEmpty());
  EXPECT_EQ(refused, 1);
  for (const int fd : {first, second, taken.load()}) close(fd);
}

// A connection from one of this machine's own addresses, 127.0.0.`last`, and the server's end of
// it.
struct Link {
  explicit Link(const Listener& listener, int last = 1) {
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from{}, to{};
    from.sin_family = to.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + last);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(listener.port()));
    EXPECT_EQ(bind(client, reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    const int never = eventfd(0, EFD_CLOEXEC);
    server = listener.Accept(never);
    close(never);
  }
  ~Link() {
    close(client);
    close(server);
  }
  int port() const { return PeerOfSocket(server).port; }
  bool ended() const { return recv(server, &byte, 1, MSG_DONTWAIT) == 0; }

  int client = -1, server = -1;
  mutable char byte = 0;
};

class QuietConnectionsTest : public testing::Test {
 protected:
  bool Add(OpenSockets& open, const Link& link, int seconds) {
    return open.Add(link.server, now_ + std::chrono::seconds(seconds));
  }

  const std::unique_ptr<Listener> listener_ = ListenAt("127.0.0.1:0");
  const OpenSockets::Clock::time_point now_ = OpenSockets::Clock::now();
  ConnectionCalls calls_;
};

TEST_F(QuietConnectionsTest, TheQuietestGivesWay) {
  OpenSockets open({.most = 3, .quiet = std::chrono::seconds(2), .calls = &calls_});
  const Link called(*listener_), quietest(*listener_), quiet(*listener_), more(*listener_);
  calls_.Begin(called.port());
  EXPECT_TRUE(Add(open, called, 0));
  EXPECT_TRUE(Add(open, quietest, 1));
  EXPECT_TRUE(Add(open, quiet, 2));
  EXPECT_FALSE(Add(open, more, 2));
  EXPECT_FALSE(quietest.ended());
  EXPECT_TRUE(Add(open, more, 3));
  EXPECT_TRUE(quietest.ended());
  EXPECT_FALSE(called.ended());
  EXPECT_FALSE(quiet.ended());
  EXPECT_EQ(open.counted(), 3);
  calls_.End(called.port());
}

TEST_F(QuietConnectionsTest, NoPeerHoldsMoreThanItsShare) {
  OpenSockets open(
      {.most = 4, .peer_percent = 50, .quiet = std::chrono::seconds(2), .calls = &calls_});
  const Link a1(*listener_, 1), a2(*listener_, 1), a3(*listener_, 1), b1(*listener_, 2);
  EXPECT_TRUE(Add(open, b1, 0));
  EXPECT_TRUE(Add(open, a1, 0));
  EXPECT_TRUE(Add(open, a2, 0));
  EXPECT_FALSE(Add(open, a3, 1));
  // A connection of the same peer is replaced, not another peer's.
  EXPECT_TRUE(Add(open, a3, 9));
  EXPECT_FALSE(b1.ended());
  EXPECT_EQ(a1.ended() + a2.ended(), 1);
}

TEST_F(QuietConnectionsTest, WhoHoldsMostGivesWay) {
  OpenSockets open({.most = 3, .quiet = std::chrono::seconds(2), .calls = &calls_});
  const Link b1(*listener_, 2), a1(*listener_, 1), a2(*listener_, 1), c1(*listener_, 3);
  EXPECT_TRUE(Add(open, b1, 0));
  EXPECT_TRUE(Add(open, a1, 1));
  EXPECT_TRUE(Add(open, a2, 2));
  EXPECT_TRUE(Add(open, c1, 9));
  EXPECT_TRUE(a1.ended());
  EXPECT_FALSE(b1.ended());
}

// The descriptor belongs to another socket since the last look.
TEST_F(QuietConnectionsTest, OnlyTheSocketItselfIsShutDown) {
  OpenSockets open({.most = 2, .quiet = std::chrono::seconds(2), .calls = &calls_});
  const Link first(*listener_), second(*listener_), other(*listener_), more(*listener_);
  EXPECT_TRUE(Add(open, first, 0));
  EXPECT_TRUE(Add(open, second, 1));
  EXPECT_TRUE(Add(open, more, 9));
  EXPECT_TRUE(first.ended());
  ASSERT_EQ(dup2(other.server, second.server), second.server);
  EXPECT_TRUE(Add(open, other, 9));
  EXPECT_FALSE(other.ended());
}

TEST(ListenerTest, AHostIsListenedAtWithAllItsAddresses) {
  std::atomic<int> taken = 0;
  auto connections = Connections::Start(ListenAt("localhost:0"), {.limits = {.most = 9},
                                                                  .take =
                                                                      [&](int fd) {
                                                                        ++taken;
                                                                        close(fd);
                                                                      },
                                                                  .refused = [] {}});
  ASSERT_TRUE(connections.ok());
  int made = 0;
  for (const int family : {AF_INET, AF_INET6}) {  // a machine may have no IPv6
    const int end = ConnectTo(family, (*connections)->port());
    if (end < 0) continue;
    EXPECT_THAT(ReadAll(end), IsEmpty());
    close(end);
    ++made;
  }
  EXPECT_GE(made, 1);
  EXPECT_EQ(taken, made);
}

TEST(ListenerTest, APortIsOneServers) {
  const std::unique_ptr<Listener> first = ListenAt("127.0.0.1:0");
  const std::string taken = absl::StrCat("127.0.0.1:", first->port());
  const absl::Status second = Listener::Open("listen", taken).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("--listen=" + taken));
}

TEST(ListenerTest, WhatIsNoAddressIsRefused) {
  for (const char* wrong :
       {"8080", ":8080", "localhost:", "localhost:99999", "nowhere.invalid:1", "unix:"}) {
    const absl::Status refused = Listener::Open("listen", wrong).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("--listen=", wrong)));
  }
}

TEST(ListenerTest, ASocketFileIsOneServersAndGoesWithIt) {
  char folder[] = "/tmp/athanor-XXXXXX";  // the path of a socket must be short
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/athanor.sock";
  {
    const std::unique_ptr<Listener> first = ListenAt("unix:" + path);
    EXPECT_EQ(first->port(), 0);
    EXPECT_EQ(Listener::Open("listen", "unix:" + path).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  // A socket file left by a killed server does not get in the way.
  sockaddr_un left{};
  left.sun_family = AF_UNIX;
  std::strcpy(left.sun_path, path.c_str());
  const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&left), sizeof(left)), 0);
  close(dead);
  ListenAt("unix:" + path);
  rmdir(folder);
}

}  // namespace
}  // namespace athanor
