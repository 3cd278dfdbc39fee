// The connections of clients: accepted on a thread of its own and handed to gRPC, so many at once
// at most, because gRPC 1.51 has no such bound.
//
//   auto connections = Connections::Start(std::move(listener), {.most = 4096, .take = ...});
//
// Who is refused is told nothing: to a client that was greeted and then sent away (GOAWAY), gRPC's
// own connects again at once, and its call never fails; one that is not greeted fails UNAVAILABLE.
//
// Whom a socket belongs to once it was handed over, it does not say when it closes it. What was
// handed over is looked at only when it seems too many: a descriptor that is closed, or another
// file's by now, counts no more.
#ifndef ATHANOR_SERVER_CONNECTIONS_H_
#define ATHANOR_SERVER_CONNECTIONS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listener.h"

namespace athanor {

// Sockets that somebody else closes. Used by one thread.
class OpenSockets {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OpenSockets(int64_t most) : most_(most) {}

  // Counts the socket; false: `most` are open. Asks which still are every 10 ms at most, so that
  // one that is closed may count until then.
  bool Add(int fd, Clock::time_point now);
  int64_t counted() const { return static_cast<int64_t>(sockets_.size()); }

 private:
  struct Socket {
    int fd;
    ino_t inode;  // of each socket another
  };

  const int64_t most_;
  std::vector<Socket> sockets_;
  Clock::time_point looked_{};
};

struct ConnectionOptions {
  int64_t most = 1;
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

#endif  // ATHANOR_SERVER_CONNECTIONS_H_
