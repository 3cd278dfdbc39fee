#include "server/http/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

constexpr int kBacklog = 64;
constexpr int kRetryMs = 100;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http_listen=", address, ": give host:port, such as 127.0.0.1:8080 or [::1]:8080"));
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http_listen=", address, ": ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

// -1 with errno.
int Listen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address) {
  absl::StatusOr<AddressList> addresses = Resolve(address);
  if (!addresses.ok()) return addresses.status();
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = addresses->get(); each != nullptr; each = each->ai_next) {
    if (const int fd = Listen(*each); fd >= 0) {
      return std::unique_ptr<Listener>(new Listener(fd, PortOf(fd)));
    }
    error = errno;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--http_listen=", address, ": cannot listen there: ", std::strerror(error)));
}

Listener::~Listener() { close(fd_); }

int Listener::Accept(int stop_fd) const {
  while (true) {
    pollfd waits[] = {{stop_fd, POLLIN, 0}, {fd_, POLLIN, 0}};
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[0].revents != 0) return -1;
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return fd;
    // Whoever was there is gone, or has to wait.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      poll(waits, 1, kRetryMs);
    }
  }
}

}  // namespace athanor
