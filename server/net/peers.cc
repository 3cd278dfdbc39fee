#include "server/net/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

constexpr int kPorts = 1 << 16;

std::string HostOf(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return text;
}

std::string HostOf(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    in_addr v4;
    std::memcpy(&v4, address.s6_addr + 12, sizeof(v4));
    return HostOf(v4);
  }
  in6_addr network = address;
  std::memset(network.s6_addr + 8, 0, 8);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &network, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

}  // namespace

Peer PeerOfSocket(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    return {HostOf(v4.sin_addr), ntohs(v4.sin_port)};
  }
  if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    return {HostOf(v6.sin6_addr), ntohs(v6.sin6_port)};
  }
  return {};
}

std::string PeerTextOfSocket(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return "unknown:";
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    return absl::StrCat("ipv4:", HostOf(v4.sin_addr), ":", ntohs(v4.sin_port));
  }
  if (name.ss_family != AF_INET6) return "unix:";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return absl::StrCat("ipv4:", HostOf(v6.sin6_addr), ":", ntohs(v6.sin6_port));
  }
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(v6.sin6_port));
}

bool IsLocalPeer(absl::string_view peer) {
  if (absl::StartsWith(peer, "unix:")) return true;
  const std::string host = PeerOfCall(peer).host;
  return absl::StartsWith(host, "127.") || host == "::/64";  // ::1; the rest is not routed
}

int PortOfCall(absl::string_view peer) {
  int port = 0;
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(peer.substr(colon + 1), &port))
    return 0;
  return port >= 0 && port < kPorts ? port : 0;
}

Peer PeerOfCall(absl::string_view peer) {
  absl::string_view host = peer.substr(0, peer.rfind(':'));
  if (absl::ConsumePrefix(&host, "ipv4:")) return {std::string(host), PortOfCall(peer)};
  if (!absl::ConsumePrefix(&host, "ipv6:")) return {};
  std::string text =
      absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}, {"%3A", ":"}});
  text = text.substr(0, text.find('%'));  // a zone: the name of a network interface
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return {};
  return {HostOf(address), PortOfCall(peer)};
}

PeerShares::PeerShares(int64_t most, int64_t percent)
    : share_(std::max<int64_t>(1, (most * percent + 99) / 100)) {}

bool PeerShares::Take(const std::string& host) {
  MutexLock lock(mu_);
  int64_t& held = held_[host];
  if (!host.empty() && held >= share_) return false;
  ++held;
  return true;
}

void PeerShares::Drop(const std::string& host) {
  MutexLock lock(mu_);
  const auto at = held_.find(host);
  if (at != held_.end() && --at->second == 0) held_.erase(at);
}

bool PeerShares::full(const std::string& host) const {
  return !host.empty() && held(host) >= share_;
}

int64_t PeerShares::held(const std::string& host) const {
  MutexLock lock(mu_);
  const auto at = held_.find(host);
  return at == held_.end() ? 0 : at->second;
}

ConnectionCalls::ConnectionCalls() : ports_(std::make_unique<Port[]>(kPorts)) {}

uint32_t ConnectionCalls::Milliseconds(Clock::time_point at) const {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(at - begin_).count());
}

void ConnectionCalls::Begin(int port) {
  ports_[port].calls.fetch_add(1, std::memory_order_relaxed);
}

void ConnectionCalls::End(int port) {
  ports_[port].ended.store(Milliseconds(Clock::now()), std::memory_order_relaxed);
  ports_[port].calls.fetch_sub(1, std::memory_order_release);
}

ConnectionCalls::Clock::duration ConnectionCalls::QuietFor(int port, Clock::time_point opened,
                                                           Clock::time_point now) const {
  if (ports_[port].calls.load(std::memory_order_acquire) > 0) return {};
  const uint32_t ended = ports_[port].ended.load(std::memory_order_relaxed);
  // A call may have ended after `now` was taken; the difference would wrap to 49 days.
  const uint32_t at_now = Milliseconds(std::max(now, Clock::now()));
  const auto since_call = std::chrono::milliseconds(uint32_t{at_now - ended});
  return std::max<Clock::duration>(std::min<Clock::duration>(now - opened, since_call), {});
}

}  // namespace athanor
