// Where the server is reached: sockets that listen, and the connections that come.
//
//   std::unique_ptr<Listener> listener = Listener::Open("http_listen", "127.0.0.1:8080").value();
//   while ((fd = listener->Accept(stop_fd)) >= 0) ...
//
// Neither cpp-httplib's nor gRPC's own: those share their port with other processes or know no
// bound on connections, and cpp-httplib's ends at the first connection that cannot be accepted and
// hands its sockets to child processes.
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
  // `address`: "host:port", "[::1]:port", port 0 any free one; all addresses of the host. Or
  // "unix:path", where it has no port. INVALID_ARGUMENT:
  // it is none. FAILED_PRECONDITION: nobody can listen there. Both name the flag.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(absl::string_view flag,
                                                        const std::string& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }  // 0: it has none
  // The next connection, non-blocking and closed in children; -1 once `stop_fd` is readable. Waits
  // while the process has no descriptor left. By one thread.
  int Accept(int stop_fd) const;

 private:
  Listener() = default;
  absl::Status ListenAt(absl::string_view flag, const std::string& address);
  absl::Status ListenAtPath(absl::string_view flag, const std::string& path);

  std::vector<int> fds_;
  std::string path_;  // to be removed
  int port_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_NET_LISTENER_H_
