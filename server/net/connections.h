// Accepts clients' connections on a thread of its own and hands them to gRPC or the HTTP side, up
// to a limit, because gRPC 1.51 has no such limit.
//
//   auto connections = Connections::Start(std::move(listener), {.limits = {4096}, .take = ...});
//
// A refused client gets no greeting, so its call fails UNAVAILABLE. If it were greeted and then
// sent away (GOAWAY), gRPC's client would reconnect at once and its call would never fail.
//
// When places run short, because all are taken or a peer holds its share, a new connection replaces
// one that has had no call for `quiet`. It replaces one of the same peer, or else one of the peer
// that holds most; among these, the one that has been quiet longest.
//
// The owner of a socket that was handed over does not report when it closes it. So the sockets are
// checked only when they seem too many: a descriptor that is closed, or now belongs to another
// file, no longer counts.
#ifndef ATHANOR_SERVER_NET_CONNECTIONS_H_
#define ATHANOR_SERVER_NET_CONNECTIONS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/net/listener.h"
#include "server/net/peers.h"

namespace athanor {

struct ConnectionLimits {
  int64_t most = 1;
  int64_t peer_percent = 100;  // share of `most` that one peer may hold
  std::chrono::milliseconds quiet = std::chrono::hours(1);
  const ConnectionCalls* calls = nullptr;  // null: calls are unknown, and no connection is replaced
};

// Counts sockets that their owner closes unannounced. Used by one thread.
class OpenSockets {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OpenSockets(const ConnectionLimits& limits)
      : limits_(limits), shares_(limits.most, limits.peer_percent) {}

  // Counts the socket. Returns false if all places are taken and no connection is quiet. Checks
  // which sockets are open and quiet at most every 10 ms, so a closed one may count until then.
  bool Add(int fd, Clock::time_point now);
  int64_t counted() const { return static_cast<int64_t>(sockets_.size()); }

 private:
  struct Socket {
    int fd;
    Peer peer;
    Clock::time_point opened;
  };
  struct Quiet {
    ino_t inode;
    int64_t peer_holds;
    Clock::duration quiet;
  };

  bool Fits(const Peer& peer) const { return counted() < limits_.most && !shares_.full(peer.host); }
  // Forgets closed sockets and lists quiet ones, the first to be replaced first.
  void Look(Clock::time_point now);
  Clock::duration QuietFor(const Socket& socket, Clock::time_point now) const;
  // Makes room for `peer`, if possible, by shutting down one quiet connection and forgetting it.
  void MakeRoom(const Peer& peer, Clock::time_point now);
  void Forget(ino_t inode);

  const ConnectionLimits limits_;
  PeerShares shares_;
  absl::flat_hash_map<ino_t, Socket> sockets_;  // by the inode of the socket
  std::vector<Quiet> quiet_;                    // as of `looked_`
  Clock::time_point looked_{};
};

struct ConnectionOptions {
  ConnectionLimits limits;
  std::function<void(int)> take;  // takes ownership of the descriptor
  std::function<void()> refused;  // called once per refused connection
};

class Connections {
 public:
  static absl::StatusOr<std::unique_ptr<Connections>> Start(std::unique_ptr<Listener> listener,
                                                            ConnectionOptions options);
  ~Connections();  // accepts no more; accepted connections stay open

  int port() const { return listener_->port(); }

 private:
  Connections(std::unique_ptr<Listener> listener, ConnectionOptions options, int stop_fd);
  void Accept();

  const std::unique_ptr<Listener> listener_;
  const ConnectionOptions options_;
  OpenSockets open_;
  const int stop_fd_;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_CONNECTIONS_H_
