#include "server/http/connection.h"

#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace athanor {

Connection::Connection(int fd, SSL_CTX* tls, int stop_fd, const HttpLimits& limits)
    : fd_(fd), stop_fd_(stop_fd), limits_(limits), deadline_(Clock::now() + limits.read) {
  if (tls != nullptr) {
    tls_.reset(SSL_new(tls));
    if (tls_ != nullptr) SSL_set_fd(tls_.get(), fd_);
    if (tls_ == nullptr) failure_ = Failure::kClosed;
  }
}

Connection::~Connection() {
  Linger();
  tls_.reset();
  close(fd_);
}

short Connection::Wanted(ssize_t result, short plain) const {
  if (tls_ == nullptr) return errno == EAGAIN || errno == EWOULDBLOCK ? plain : 0;
  switch (SSL_get_error(tls_.get(), static_cast<int>(result))) {
    case SSL_ERROR_WANT_READ:
      return POLLIN;
    case SSL_ERROR_WANT_WRITE:
      return POLLOUT;
    default:
      return 0;
  }
}

bool Connection::Wait(short events) {
  pollfd waits[] = {{fd_, events, 0}, {stop_fd_, POLLIN, 0}};
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left < 0) return false;
    const int ready = poll(waits, 2, static_cast<int>(std::min<int64_t>(left + 1, 1'000'000)));
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return waits[1].revents == 0;
  }
}

bool Connection::Accept() {
  if (failure_ != Failure::kNone) return false;
  if (tls_ == nullptr) return true;
  while (true) {
    ERR_clear_error();
    const int result = SSL_accept(tls_.get());
    if (result == 1) return true;
    const short wanted = Wanted(result, 0);
    if (wanted == 0 || !Wait(wanted)) {
      failure_ = Failure::kClosed;
      return false;
    }
  }
}

ssize_t Connection::Fill() {
  if (failure_ != Failure::kNone) return -1;
  if (taken_ >= limits_.max_request_bytes) {
    failure_ = Failure::kTooLarge;
    return -1;
  }
  const size_t most = std::min(buffer_.size(), limits_.max_request_bytes - taken_);
  while (true) {
    ERR_clear_error();
    const ssize_t got = tls_ != nullptr
                            ? SSL_read(tls_.get(), buffer_.data(), static_cast<int>(most))
                            : recv(fd_, buffer_.data(), most, 0);
    if (got > 0) {
      taken_ += static_cast<size_t>(got);
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      return got;
    }
    if (got == 0 && tls_ == nullptr) return 0;
    if (got < 0 && tls_ == nullptr && errno == EINTR) continue;
    const short wanted = Wanted(got, POLLIN);
    if (wanted == 0) {
      failure_ = Failure::kClosed;
      return -1;
    }
    if (!Wait(wanted)) {
      failure_ = Failure::kTooSlow;
      return -1;
    }
  }
}

ssize_t Connection::read(char* data, size_t size) {
  if (begin_ == end_) {
    const ssize_t filled = Fill();
    if (filled <= 0) return filled;
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::Send(const char* data, size_t size) {
  if (!answering_) {
    answering_ = true;
    deadline_ = Clock::now() + limits_.write;
  }
  const int most = static_cast<int>(std::min<size_t>(size, 1 << 20));
  while (true) {
    ERR_clear_error();
    const ssize_t sent = tls_ != nullptr ? SSL_write(tls_.get(), data, most)
                                         : send(fd_, data, static_cast<size_t>(most), MSG_NOSIGNAL);
    if (sent > 0) return sent;
    if (sent < 0 && tls_ == nullptr && errno == EINTR) continue;
    const short wanted = Wanted(sent, POLLOUT);
    if (wanted == 0 || !Wait(wanted)) {
      failure_ = Failure::kClosed;
      return -1;
    }
  }
}

ssize_t Connection::write(const char* data, size_t size) {
  if (failure_ != Failure::kNone) return -1;
  if (size == 0) return 0;
  return Send(data, size);
}

void Connection::Refuse(absl::string_view status) {
  const std::string answer =
      absl::StrCat("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  size_t sent = 0;
  while (sent < answer.size()) {
    const ssize_t n = Send(answer.data() + sent, answer.size() - sent);
    if (n < 0) return;
    sent += static_cast<size_t>(n);
  }
}

void Connection::RefuseIfFailed() {
  if (answering_ || taken_ == 0) return;
  if (failure_ == Failure::kTooSlow) Refuse("408 Request Timeout");
  if (failure_ == Failure::kTooLarge) Refuse("431 Request Header Fields Too Large");
}

// A connection closed with bytes unread is reset, and the answer lost on the way.
void Connection::Linger() {
  if (!answering_ || failure_ == Failure::kClosed) return;
  if (tls_ != nullptr) SSL_shutdown(tls_.get());
  shutdown(fd_, SHUT_WR);
  deadline_ = Clock::now() + limits_.linger;
  size_t dropped = 0;
  while (dropped < 16 * limits_.max_request_bytes) {
    const ssize_t n = recv(fd_, buffer_.data(), buffer_.size(), 0);
    if (n > 0) {
      dropped += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !Wait(POLLIN)) {
      return;
    }
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace athanor
