// The server's listening sockets, which accept connections.
//
//   std::unique_ptr<Listener> listener = Listener::Open("http_listen", "127.0.0.1:8080").value();
//   while ((fd = listener->Accept(stop_fd)) >= 0) ...
//
// Replaces gRPC's own listeners, which share their port with other processes and have no limit on
// connections.
#ifndef ATHANOR_SERVER_NET_LISTENER_H_
#define ATHANOR_SERVER_NET_LISTENER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

class Listener {
 public:
  // Listens at all addresses of the host. `address` is "host:port", "[::1]:port" (port 0: any free
  // port) or "unix:path", which has no port. Returns INVALID_ARGUMENT if it is none of these and
  // FAILED_PRECONDITION if listening there fails. Both name the flag.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(absl::string_view flag,
                                                        const std::string& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }  // 0: no port
  // Returns the next connection, non-blocking and close-on-exec; -1 once `stop_fd` is readable.
  // Waits while the process has no free descriptor. Call it from one thread.
  int Accept(int stop_fd) const;

 private:
  Listener() = default;
  absl::Status ListenAt(absl::string_view flag, const std::string& address);
  absl::Status ListenAtPath(absl::string_view flag, const std::string& path);

  std::vector<int> fds_;
  std::string path_;  // file to remove
  int port_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_LISTENER_H_
