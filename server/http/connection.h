// A connection of the HTTP side, plain or TLS, as the stream that cpp-httplib reads and writes.
// It never blocks: each call goes on as far as possible and returns what the connection waits for.
//
//   Connection connection(fd, /*tls=*/nullptr, limits);
//   // Each time `fd` is ready for what it wanted last (at first: reading):
//   Connection::Wants wants = connection.Advance();
//   if (wants == Connection::Wants::kAnswer) {
//     process_request(connection, ...);  // reads the request, writes into memory
//     wants = connection.Answered();
//   }
//
// Limits how long and how much a client may send, which cpp-httplib does not (its time limit
// restarts with each byte, and its lines have no maximum length). Owns and closes the descriptor,
// which must be non-blocking. Used by one thread at a time.
#ifndef ATHANOR_SERVER_HTTP_CONNECTION_H_
#define ATHANOR_SERVER_HTTP_CONNECTION_H_

#include <httplib.h>
#include <openssl/ssl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace athanor {

struct HttpLimits {
  std::chrono::milliseconds read{10'000};   // for the whole request, including the TLS handshake
  std::chrono::milliseconds write{30'000};  // for the whole answer
  std::chrono::milliseconds linger{1'000};  // for the client to read the answer and close
  size_t max_request_bytes = size_t{64} << 10;
  size_t threads = 4;
  // Most connections that wait for their clients; beyond that, the oldest is closed. As many more
  // may wait for a thread; beyond that, new connections are refused.
  size_t most_waiting = 64;
  // Most waiting connections with an unread answer, which is held in memory; beyond that, the
  // oldest is closed.
  size_t most_unread = 8;
};

class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;
  // kAnswer: its request is complete. kNothing: it has ended.
  enum class Wants : uint8_t { kRead, kWrite, kAnswer, kNothing };

  // `limits` must outlive it; `tls` may be null.
  Connection(int fd, SSL_CTX* tls, const HttpLimits& limits);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  Clock::time_point began() const { return began_; }
  // When to call Expire.
  Clock::time_point deadline() const { return deadline_; }

  Wants Advance();
  // Ends the answer: everything written so far is sent.
  Wants Answered();
  // Makes `status`, such as "503 Service Unavailable", the whole answer; there is none before the
  // TLS handshake is done. Advance sends it.
  void Refuse(absl::string_view status);
  // Handles the deadline. Returns true if the client is being told, and Advance must be called;
  // false if the connection can be dropped.
  bool Expire();

  // Reads from the complete request; returns 0 at its end.
  ssize_t read(char* data, size_t size) override;
  // Appends to the answer in memory; Advance sends it.
  ssize_t write(const char* data, size_t size) override;
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // Not used here, but cpp-httplib answers 500 if the number is too large for select().
  socket_t socket() const override { return 0; }

 private:
  enum class Phase : uint8_t { kHandshake, kRequest, kAnswer, kSend, kLinger, kEnd };

  // Advances one phase, to its end (`phase_` is then the next) or until it must wait.
  Wants Step();
  Wants Handshake();
  Wants Receive();
  Wants Send();
  Wants Linger();
  Wants BeginLinger();
  Wants End();
  // Returns what to wait for after a call on the socket returned `result`; kNothing: it failed.
  Wants Wanted(ssize_t result, Wants plain) const;

  const int fd_;
  const HttpLimits& limits_;
  const Clock::time_point began_ = Clock::now();
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
  Phase phase_;
  Clock::time_point deadline_;
  std::string request_;
  size_t read_ = 0;  // bytes of the request read so far
  std::string answer_;
  size_t sent_ = 0;     // bytes of the answer sent so far
  size_t dropped_ = 0;  // bytes that followed the request and were dropped
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_H_
