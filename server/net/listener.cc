#include "server/net/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/net/listen_address.h"

namespace athanor {
namespace {

constexpr int kRetryMs = 100;
constexpr absl::string_view kUnix = "unix:";

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(absl::string_view flag, const std::string& address) {
  ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(absl::StrCat("--", flag), address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(parsed.host.c_str(), absl::StrCat(parsed.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", address, ": ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

// Returns -1 and sets errno on failure.
int Listen(const sockaddr* address, socklen_t size) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1, no = 0;
  if (address->sa_family != AF_UNIX) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // accepted connections inherit it
  }
  if (address->sa_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (bind(fd, address, size) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

in_port_t* PortField(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(*PortField(reinterpret_cast<sockaddr*>(&name)));
}

// Reports whether `address` is a socket file that nobody listens at any more.
bool IsLeftOver(const sockaddr_un& address) {
  struct stat there{};
  if (lstat(address.sun_path, &there) != 0 || !S_ISSOCK(there.st_mode)) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool refused =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  close(fd);
  return refused;
}

absl::Status CannotListen(absl::string_view flag, absl::string_view address, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("--", flag, "=", address, ": cannot listen there: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(absl::string_view flag,
                                                         const std::string& address) {
  std::unique_ptr<Listener> listener(new Listener());
  absl::string_view path = address;
  absl::Status s = absl::ConsumePrefix(&path, kUnix)
                       ? listener->ListenAtPath(flag, std::string(path))
                       : listener->ListenAt(flag, address);
  if (!s.ok()) return s;
  return listener;
}

absl::Status Listener::ListenAt(absl::string_view flag, const std::string& address) {
  ASSIGN_OR_RETURN(AddressList addresses, Resolve(flag, address));
  int error = EADDRNOTAVAIL;
  for (addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    in_port_t* port = PortField(each->ai_addr);
    const bool any_port = *port == 0;
    if (any_port) *port = htons(static_cast<uint16_t>(port_));  // the port of the first
    const int fd = Listen(each->ai_addr, each->ai_addrlen);
    if (fd >= 0) {
      fds_.push_back(fd);
      port_ = PortOf(fd);
      continue;
    }
    error = errno;
    // A machine may lack IPv4 or IPv6. But the server must have the port on all addresses or on
    // none.
    if (error == EADDRINUSE && !any_port) return CannotListen(flag, address, error);
  }
  return fds_.empty() ? CannotListen(flag, address, error) : absl::OkStatus();
}

absl::Status Listener::ListenAtPath(absl::string_view flag, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", kUnix, path,
                                                   ": a path has 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (IsLeftOver(address)) unlink(path.c_str());
  const int fd = Listen(reinterpret_cast<sockaddr*>(&address), sizeof(address));
  if (fd < 0) return CannotListen(flag, absl::StrCat(kUnix, path), errno);
  fds_.push_back(fd);
  path_ = path;
  return absl::OkStatus();
}

Listener::~Listener() {
  for (const int fd : fds_) close(fd);
  if (!path_.empty()) unlink(path_.c_str());
}

int Listener::Accept(int stop_fd) const {
  std::vector<pollfd> waits = {{stop_fd, POLLIN, 0}};
  for (const int fd : fds_) waits.push_back({fd, POLLIN, 0});
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) return -1;
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      const int fd = accept4(waits[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) return fd;
      // The client may have gone; without descriptors or memory, retry after a pause.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        poll(waits.data(), 1, kRetryMs);
      }
    }
  }
}

}  // namespace athanor
