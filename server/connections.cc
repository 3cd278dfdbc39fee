#include "server/connections.h"

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

// 0: not open.
ino_t InodeOf(int fd) {
  struct stat about{};
  return fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

}  // namespace

bool OpenSockets::Add(int fd, Clock::time_point now) {
  if (counted() >= most_ && now - looked_ >= kLookAgain) {
    looked_ = now;
    std::erase_if(sockets_, [](const Socket& s) { return InodeOf(s.fd) != s.inode; });
  }
  if (counted() >= most_) return false;
  sockets_.push_back({fd, InodeOf(fd)});
  return true;
}

absl::StatusOr<std::unique_ptr<Connections>> Connections::Start(std::unique_ptr<Listener> listener,
                                                                ConnectionOptions options) {
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0) return absl::ResourceExhaustedError("--listen: no descriptor left");
  return std::unique_ptr<Connections>(
      new Connections(std::move(listener), std::move(options), stop_fd));
}

Connections::Connections(std::unique_ptr<Listener> listener, ConnectionOptions options, int stop_fd)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      open_(options_.most),
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
