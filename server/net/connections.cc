#include "server/net/connections.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

// Returns 0 if `fd` is not an open socket. By fstatat, because ThreadSanitizer takes an fstat of a
// descriptor that its owner closes meanwhile for a race.
ino_t InodeOf(int fd) {
  struct stat about{};
  return fstatat(fd, "", &about, AT_EMPTY_PATH) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

// Shuts the connection down, so that its owner finds it ended and closes it. Works on a duplicate,
// since the owner's descriptor may become another file's at any time.
void ShutDown(int fd, ino_t inode) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  if (InodeOf(own) == inode) shutdown(own, SHUT_RDWR);
  close(own);
}

}  // namespace

bool OpenSockets::Add(int fd, Clock::time_point now) {
  const Socket socket{fd, PeerOfSocket(fd), now};
  if (!Fits(socket.peer) && now - looked_ >= kLookAgain) Look(now);
  if (!Fits(socket.peer)) MakeRoom(socket.peer, now);
  if (!Fits(socket.peer)) return false;
  const ino_t inode = InodeOf(fd);
  Forget(inode);
  shares_.Take(socket.peer.host);
  sockets_.emplace(inode, socket);
  return true;
}

void OpenSockets::Forget(ino_t inode) {
  const auto at = sockets_.find(inode);
  if (at == sockets_.end()) return;
  shares_.Drop(at->second.peer.host);
  sockets_.erase(at);
}

OpenSockets::Clock::duration OpenSockets::QuietFor(const Socket& socket,
                                                   Clock::time_point now) const {
  // Peers of a Unix socket have no port, so their calls are not counted.
  if (limits_.calls == nullptr || socket.peer.host.empty()) return {};
  return limits_.calls->QuietFor(socket.peer.port, socket.opened, now);
}

void OpenSockets::Look(Clock::time_point now) {
  looked_ = now;
  std::vector<ino_t> closed;
  for (const auto& [inode, socket] : sockets_) {
    if (InodeOf(socket.fd) != inode) closed.push_back(inode);
  }
  for (const ino_t inode : closed) Forget(inode);
  quiet_.clear();
  for (const auto& [inode, socket] : sockets_) {
    const Clock::duration quiet = QuietFor(socket, now);
    if (quiet < limits_.quiet || quiet == Clock::duration::zero()) continue;
    quiet_.push_back({inode, shares_.held(socket.peer.host), quiet});
  }
  std::sort(quiet_.begin(), quiet_.end(), [](const Quiet& a, const Quiet& b) {
    return std::pair(a.peer_holds, a.quiet) > std::pair(b.peer_holds, b.quiet);
  });
}

void OpenSockets::MakeRoom(const Peer& peer, Clock::time_point now) {
  const bool of_peer = shares_.full(peer.host);
  for (auto at = quiet_.begin(); at != quiet_.end(); ++at) {
    const auto found = sockets_.find(at->inode);
    if (found == sockets_.end()) continue;
    const Socket& socket = found->second;
    if (of_peer && socket.peer.host != peer.host) continue;
    if (QuietFor(socket, now) < limits_.quiet) continue;  // it has had a call since the last look
    ShutDown(socket.fd, at->inode);
    Forget(at->inode);
    quiet_.erase(at);
    return;
  }
}

absl::StatusOr<std::unique_ptr<Connections>> Connections::Start(std::unique_ptr<Listener> listener,
                                                                ConnectionOptions options) {
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0)
    return absl::ResourceExhaustedError("no descriptor is left to accept connections with");
  return std::unique_ptr<Connections>(
      new Connections(std::move(listener), std::move(options), stop_fd));
}

Connections::Connections(std::unique_ptr<Listener> listener, ConnectionOptions options, int stop_fd)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      open_(options_.limits),
      stop_fd_(stop_fd) {
  thread_ = std::thread([this] { Accept(); });
  pthread_setname_np(thread_.native_handle(), "connections");
}

Connections::~Connections() {
  const uint64_t one = 1;
  while (write(stop_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
  close(stop_fd_);
}

void Connections::Accept() {
  for (int fd = listener_->Accept(stop_fd_); fd >= 0; fd = listener_->Accept(stop_fd_)) {
    if (open_.Add(fd, OpenSockets::Clock::now())) {
      options_.take(fd);
    } else {
      options_.refused();
      close(fd);
    }
  }
}

}  // namespace athanor
