// Identifies the peer of a connection, limits each peer's share of a common resource, and tells how
// long a connection has had no call.
//
//   const Peer peer = PeerOfCall(context.peer());         // {"10.0.0.7", 43210}
//   PeerShares shares(16, 75);
//   if (!shares.Take(peer.host)) ... it holds 12 ...
//
// A peer is an address; for IPv6 its first 64 bits, since the owner of one such prefix has all
// addresses in it.
#ifndef ATHANOR_SERVER_NET_PEERS_H_
#define ATHANOR_SERVER_NET_PEERS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"

namespace athanor {

struct Peer {
  std::string host;  // empty: a Unix socket, whose peers are not told apart
  int port = 0;
};

Peer PeerOfSocket(int fd);
// Returns the socket's peer as gRPC writes it; "unix:" if it has no address, "unknown:" if the peer
// has left.
std::string PeerTextOfSocket(int fd);
// Parses `peer` as gRPC writes it: "ipv4:10.0.0.7:43210", "ipv6:%5B2001:db8::1%5D:43210", "unix:".
Peer PeerOfCall(absl::string_view peer);
// Reports whether such a text names a client on this machine: of a Unix socket, or of a loopback
// address.
bool IsLocalPeer(absl::string_view peer);
// Parses only the port of such a text.
int PortOfCall(absl::string_view peer);

// Counts the places that each peer holds. No peer may hold more than its share of `most`: `percent`
// of them, rounded up. Thread-safe.
class PeerShares {
 public:
  PeerShares(int64_t most, int64_t percent);

  // Returns false if `host` holds its share already. Peers of a Unix socket are not limited.
  bool Take(const std::string& host);
  void Drop(const std::string& host);
  bool full(const std::string& host) const;
  int64_t held(const std::string& host) const;
  int64_t share() const { return share_; }

 private:
  const int64_t share_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, int64_t> held_ ABSL_GUARDED_BY(mu_);
};

// Counts running calls per connection, identified by its peer's port. If two peers have connections
// from the same port, a call of either counts for both. Costs two atomic additions per call.
// Thread-safe.
class ConnectionCalls {
 public:
  using Clock = std::chrono::steady_clock;

  ConnectionCalls();
  void Begin(int port);
  void End(int port);
  // Returns how long the connection, open since `opened`, has had no call; 0 if it has one.
  Clock::duration QuietFor(int port, Clock::time_point opened, Clock::time_point now) const;

 private:
  struct Port {
    std::atomic<uint32_t> calls{0};
    std::atomic<uint32_t> ended{0};  // milliseconds since begin_; wraps around after 49 days
  };
  uint32_t Milliseconds(Clock::time_point at) const;

  const Clock::time_point begin_ = Clock::now();
  const std::unique_ptr<Port[]> ports_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_PEERS_H_
