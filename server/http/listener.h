// Where the HTTP side is reached: a socket that listens, and the connections that come.
//
//   std::unique_ptr<Listener> listener = Listener::Open("127.0.0.1:8080").value();
//   while ((fd = listener->Accept(stop_fd)) >= 0) ...
//
// Not cpp-httplib's own: that shares its port with other processes (SO_REUSEPORT), ends at the
// first connection that cannot be accepted, and hands its sockets to child processes.
#ifndef ATHANOR_SERVER_HTTP_LISTENER_H_
#define ATHANOR_SERVER_HTTP_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace athanor {

class Listener {
 public:
  // `address`: "host:port", "[::1]:port"; port 0 is any free one. INVALID_ARGUMENT: it is none.
  // FAILED_PRECONDITION: nobody can listen there. Both name the flag.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // The next connection, non-blocking and closed in children; -1 once `stop_fd` is readable. Waits
  // while the process has no descriptor left. By one thread.
  int Accept(int stop_fd) const;

 private:
  Listener(int fd, int port) : fd_(fd), port_(port) {}

  const int fd_;
  const int port_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_LISTENER_H_
