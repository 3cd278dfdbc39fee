#include "server/http/connection.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

constexpr absl::string_view kHeaderEnd = "\r\n\r\n";

}  // namespace

Connection::Connection(int fd, SSL_CTX* tls, const HttpLimits& limits)
    : fd_(fd),
      limits_(limits),
      phase_(tls == nullptr ? Phase::kRequest : Phase::kHandshake),
      deadline_(began_ + limits.read) {
  if (tls == nullptr) return;
  tls_.reset(SSL_new(tls));
  if (tls_ == nullptr || SSL_set_fd(tls_.get(), fd_) != 1) phase_ = Phase::kEnd;
}

Connection::~Connection() {
  tls_.reset();
  close(fd_);
}

Connection::Wants Connection::Advance() {
  while (true) {
    const Phase before = phase_;
    const Wants wants = Step();
    if (phase_ == before) return wants;
  }
}

Connection::Wants Connection::Step() {
  switch (phase_) {
    case Phase::kHandshake:
      return Handshake();
    case Phase::kRequest:
      return Receive();
    case Phase::kAnswer:
      return Wants::kAnswer;
    case Phase::kSend:
      return Send();
    case Phase::kLinger:
      return Linger();
    case Phase::kEnd:
      break;
  }
  return Wants::kNothing;
}

Connection::Wants Connection::Answered() {
  phase_ = answer_.empty() ? Phase::kEnd : Phase::kSend;
  deadline_ = Clock::now() + limits_.write;
  return Advance();
}

void Connection::Refuse(absl::string_view status) {
  answer_ = absl::StrCat("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  phase_ = phase_ == Phase::kRequest ? Phase::kSend : Phase::kEnd;
  deadline_ = Clock::now() + limits_.write;
}

bool Connection::Expire() {
  if (phase_ != Phase::kRequest || request_.empty()) return false;
  Refuse("408 Request Timeout");
  return true;
}

Connection::Wants Connection::End() {
  phase_ = Phase::kEnd;
  return Wants::kNothing;
}

Connection::Wants Connection::Wanted(ssize_t result, Wants plain) const {
  if (tls_ == nullptr) return errno == EAGAIN || errno == EWOULDBLOCK ? plain : Wants::kNothing;
  switch (SSL_get_error(tls_.get(), static_cast<int>(result))) {
    case SSL_ERROR_WANT_READ:
      return Wants::kRead;
    case SSL_ERROR_WANT_WRITE:
      return Wants::kWrite;
    default:
      return Wants::kNothing;
  }
}

Connection::Wants Connection::Handshake() {
  ERR_clear_error();
  const int result = SSL_accept(tls_.get());
  if (result == 1) {
    phase_ = Phase::kRequest;
    return Wants::kRead;
  }
  const Wants wants = Wanted(result, Wants::kNothing);
  return wants == Wants::kNothing ? End() : wants;
}

Connection::Wants Connection::Receive() {
  std::array<char, 4096> buffer;
  while (request_.size() < limits_.max_request_bytes) {
    const size_t most = std::min(buffer.size(), limits_.max_request_bytes - request_.size());
    ERR_clear_error();
    const ssize_t got = tls_ != nullptr
                            ? SSL_read(tls_.get(), buffer.data(), static_cast<int>(most))
                            : recv(fd_, buffer.data(), most, 0);
    if (got > 0) {
      // The end marker may have begun in the bytes before.
      const size_t from = request_.size() - std::min(request_.size(), kHeaderEnd.size() - 1);
      request_.append(buffer.data(), static_cast<size_t>(got));
      if (!absl::StrContains(absl::string_view(request_).substr(from), kHeaderEnd)) continue;
      phase_ = Phase::kAnswer;
      return Wants::kAnswer;
    }
    if (tls_ == nullptr && got == 0) return End();
    if (tls_ == nullptr && errno == EINTR) continue;
    const Wants wants = Wanted(got, Wants::kRead);
    return wants == Wants::kNothing ? End() : wants;
  }
  Refuse("431 Request Header Fields Too Large");
  return Wants::kWrite;
}

Connection::Wants Connection::Send() {
  while (sent_ < answer_.size()) {
    const char* data = answer_.data() + sent_;
    const int most = static_cast<int>(std::min<size_t>(answer_.size() - sent_, 1 << 20));
    ERR_clear_error();
    const ssize_t sent = tls_ != nullptr ? SSL_write(tls_.get(), data, most)
                                         : send(fd_, data, static_cast<size_t>(most), MSG_NOSIGNAL);
    if (sent > 0) {
      sent_ += static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && tls_ == nullptr && errno == EINTR) continue;
    const Wants wants = Wanted(sent, Wants::kWrite);
    return wants == Wants::kNothing ? End() : wants;
  }
  return BeginLinger();
}

// If a connection is closed with bytes unread, it is reset and the answer is lost on the way. So
// stop sending, then read until the client closes.
Connection::Wants Connection::BeginLinger() {
  std::string().swap(answer_);
  ERR_clear_error();
  if (tls_ != nullptr) SSL_shutdown(tls_.get());
  shutdown(fd_, SHUT_WR);
  phase_ = Phase::kLinger;
  deadline_ = Clock::now() + limits_.linger;
  return Wants::kRead;
}

Connection::Wants Connection::Linger() {
  std::array<char, 4096> buffer;
  while (dropped_ < 16 * limits_.max_request_bytes) {
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      dropped_ += static_cast<size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      const bool more = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      return more ? Wants::kRead : End();
    }
  }
  return End();
}

ssize_t Connection::read(char* data, size_t size) {
  const size_t n = std::min(size, request_.size() - read_);
  std::memcpy(data, request_.data() + read_, n);
  read_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* data, size_t size) {
  answer_.append(data, size);
  return static_cast<ssize_t>(size);
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
