// The connections of clients: accepted on a thread of its own and handed to gRPC, so many at once
// at most, because gRPC 1.51 has no such bound.
//
//   auto connections = Connections::Start(std::move(listener), {.limits = {4096}, .take = ...});
//
// Who is refused is told nothing: to a client that was greeted and then sent away (GOAWAY), gRPC's
// own connects again at once, and its call never fails; one that is not greeted fails UNAVAILABLE.
//
// Where places are short, because all are taken or a peer has its share, a connection that has had
// no call for a while (`quiet`) gives its place to the new one: of the same peer, or of the one
// that has most, the one that is quiet the longest.
//
// Whom a socket belongs to once it was handed over, it does not say when it closes it. What was
// handed over is looked at only when it seems too many: a descriptor that is closed, or another
// file's by now, counts no more.
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
  int64_t peer_percent = 100;  // of them, that one peer may hold
  std::chrono::milliseconds quiet = std::chrono::hours(1);
  const ConnectionCalls* calls = nullptr;  // null: nothing is known of calls, and none gives way
};

// Sockets that somebody else closes. Used by one thread.
class OpenSockets {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OpenSockets(const ConnectionLimits& limits)
      : limits_(limits), shares_(limits.most, limits.peer_percent) {}

  // Counts the socket; false: there is no place for it, and none is quiet. Asks which are open and
  // quiet every 10 ms at most, so that one that is closed may count until then.
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
  // Forgets what is closed, and lists what is quiet, first who gives way first.
  void Look(Clock::time_point now);
  Clock::duration QuietFor(const Socket& socket, Clock::time_point now) const;
  // Shuts one down, and forgets it, so that there is a place for `peer`, if it can.
  void MakeRoom(const Peer& peer, Clock::time_point now);
  void Forget(ino_t inode);

  const ConnectionLimits limits_;
  PeerShares shares_;
  absl::flat_hash_map<ino_t, Socket> sockets_;  // of each socket another
  std::vector<Quiet> quiet_;                    // as of `looked_`
  Clock::time_point looked_{};
};

struct ConnectionOptions {
  ConnectionLimits limits;
  std::function<void(int)> take;  // owns the descriptor
  std::function<void()> refused;  // one more
};

class Connections {
 public:
  static absl::StatusOr<std::unique_ptr<Connections>> Start(std::unique_ptr<Listener> listener,
                                                            ConnectionOptions options);
  ~Connections();  // takes none from here on; those taken stay

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
