// Who is at the other end of a connection, what one peer may hold of what all share, and since when
// a connection has had no call.
//
//   const Peer peer = PeerOfCall(context.peer());         // {"10.0.0.7", 43210}
//   PeerShares shares(16, 75);
//   if (!shares.Take(peer.host)) ... it holds 12 ...
//
// A peer is an address; of IPv6 the first 64 bits, since whoever has one of those has them all.
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
  std::string host;  // empty: of a Unix socket, where peers are not told apart
  int port = 0;
};

Peer PeerOfSocket(int fd);
// `peer` as gRPC writes it: "ipv4:10.0.0.7:43210", "ipv6:%5B2001:db8::1%5D:43210", "unix:".
Peer PeerOfCall(absl::string_view peer);
// Of that text, without the rest.
int PortOfCall(absl::string_view peer);

// How many places each peer holds, and that none holds more than its share of `most`: `percent` of
// them, rounded up. Thread-safe.
class PeerShares {
 public:
  PeerShares(int64_t most, int64_t percent);

  // False: `host` holds its share. Peers of a Unix socket are not bounded.
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

// Calls by connection, which its peer's port stands for: where two peers have connections from one
// port, a call of either counts for both. Two atomic additions a call. Thread-safe.
class ConnectionCalls {
 public:
  using Clock = std::chrono::steady_clock;

  ConnectionCalls();
  void Begin(int port);
  void End(int port);
  // How long the connection, open since `opened`, has had no call; 0: it has one.
  Clock::duration QuietFor(int port, Clock::time_point opened, Clock::time_point now) const;

 private:
  struct Port {
    std::atomic<uint32_t> calls{0};
    std::atomic<uint32_t> ended{0};  // milliseconds since the beginning; goes round in 49 days
  };
  uint32_t Milliseconds(Clock::time_point at) const;

  const Clock::time_point begin_ = Clock::now();
  const std::unique_ptr<Port[]> ports_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_PEERS_H_
