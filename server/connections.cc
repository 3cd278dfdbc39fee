#include "server/connections.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kLookAgain{10};

// 0: not open.
ino_t InodeOf(int fd) {
  struct stat about{};
  return fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

// What an HTTP/2 server says that closes at once: its settings, and GOAWAY (RFC 9113, 6.8), whose
// text clients show.
std::string GoAway(int64_t most) {
  constexpr char kEnhanceYourCalm = 0xb;
  const std::string text =
      absl::StrCat(most, " connections are open, the most allowed (--max_connections)");
  const size_t size = 8 + text.size();
  std::string frames("\0\0\0\4\0\0\0\0\0", 9);  // SETTINGS
  frames += {0, static_cast<char>(size >> 8), static_cast<char>(size), 7, 0, 0, 0, 0, 0};
  frames += {0, 0, 0, 0, 0, 0, 0, kEnhanceYourCalm};
  return frames + text;
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
      Refuse(fd);
    }
  }
}

// Waits for nobody: what does not go at once does not go.
void Connections::Refuse(int fd) const {
  options_.refused();
  if (options_.plain) {
    const std::string frames = GoAway(options_.most);
    (void)!send(fd, frames.data(), frames.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    // Closed with bytes unread, the connection would be reset and take the text with it.
    char bytes[256];
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
  }
  close(fd);
}

}  // namespace athanor
