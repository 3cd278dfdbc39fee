// Connections that are accepted, refused and counted, without gRPC.
#include "server/connections.h"

#include <netinet/in.h>
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

// What the other side says until it closes.
std::string ReadAll(int end) {
  std::string all;
  char bytes[256];
  for (ssize_t got = 0; (got = read(end, bytes, sizeof(bytes))) > 0;) all.append(bytes, got);
  return all;
}

TEST(OpenSocketsTest, WhatIsClosedCountsNoMore) {
  OpenSockets open(2);
  int pairs[2][2];
  for (auto& pair : pairs) ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const OpenSockets::Clock::time_point now = OpenSockets::Clock::now();
  EXPECT_TRUE(open.Add(pairs[0][0], now));
  EXPECT_TRUE(open.Add(pairs[0][1], now));
  EXPECT_FALSE(open.Add(pairs[1][0], now));
  close(pairs[0][0]);
  // It has looked just now.
  EXPECT_FALSE(open.Add(pairs[1][0], now + std::chrono::milliseconds(1)));
  EXPECT_TRUE(open.Add(pairs[1][0], now + std::chrono::milliseconds(20)));
  EXPECT_EQ(open.counted(), 2);
  for (const int fd : {pairs[0][1], pairs[1][0], pairs[1][1]}) close(fd);
}

TEST(OpenSocketsTest, ADescriptorThatIsAnotherFilesCountsNoMore) {
  OpenSockets open(1);
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
      {.most = 1, .take = [&](int fd) { taken = fd; }, .refused = [&] { ++refused; }});
  ASSERT_TRUE(connections.ok()) << connections.status();
  const int first = ConnectTo(AF_INET, (*connections)->port());
  while (taken < 0) std::this_thread::yield();
  const int second = ConnectTo(AF_INET, (*connections)->port());
  EXPECT_THAT(ReadAll(second), IsEmpty());
  EXPECT_EQ(refused, 1);
  for (const int fd : {first, second, taken.load()}) close(fd);
}

TEST(ListenerTest, AHostIsListenedAtWithAllItsAddresses) {
  std::atomic<int> taken = 0;
  auto connections = Connections::Start(ListenAt("localhost:0"), {.most = 9,
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
  char folder[] = "/tmp/athanor-XXXXXX";  // a path of a socket is short
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/athanor.sock";
  {
    const std::unique_ptr<Listener> first = ListenAt("unix:" + path);
    EXPECT_EQ(first->port(), 0);
    EXPECT_EQ(Listener::Open("listen", "unix:" + path).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  // One that a killed server left behind is in nobody's way.
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
