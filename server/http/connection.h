// One connection of the HTTP side, as cpp-httplib reads and writes it, in plain or under TLS. It
// never waits: whoever has it goes on with it as far as that is possible, and is told for what it
// has to be waited.
//
//   Connection connection(fd, /*tls=*/nullptr, limits);
//   // Each time `fd` is ready for what it wanted last, which is to be read from at first:
//   Connection::Wants wants = connection.Advance();
//   if (wants == Connection::Wants::kAnswer) {
//     process_request(connection, ...);  // reads what is here, writes into memory
//     wants = connection.Answered();
//   }
//
// With an end to how long and how much a client may send, which cpp-httplib alone does not have
// (its time limit starts again with each byte, its lines have no largest length). Closes the
// descriptor, which is non-blocking. Used by one thread at a time.
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
  std::chrono::milliseconds read{10'000};   // for the whole request, TLS handshake included
  std::chrono::milliseconds write{30'000};  // for the whole answer
  std::chrono::milliseconds linger{1'000};  // for the client to read it and close
  size_t max_request_bytes = size_t{64} << 10;
  size_t threads = 4;
  // Connections whose clients are waited for: beyond, the oldest is closed. As many more may wait
  // for a thread; beyond, who comes is refused.
  size_t most_waiting = 64;
  size_t most_unread = 8;  // of them with an answer, held in memory; beyond, the oldest is closed
};

class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;
  // kAnswer: its request is whole. kNothing: it is over.
  enum class Wants : uint8_t { kRead, kWrite, kAnswer, kNothing };

  // `limits` outlive it; `tls` may be null.
  Connection(int fd, SSL_CTX* tls, const HttpLimits& limits);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  Clock::time_point began() const { return began_; }
  // When Expire is due.
  Clock::time_point deadline() const { return deadline_; }

  Wants Advance();
  // What was written is the answer.
  Wants Answered();
  // The answer is `status`, such as "503 Service Unavailable", and nothing else; none where TLS is
  // not there yet. Advance sends it.
  void Refuse(absl::string_view status);
  // True: it is told so, and goes on with Advance. False: it can be dropped.
  bool Expire();

  // Of the request that is whole; 0 at its end.
  ssize_t read(char* data, size_t size) override;
  // Into memory: Advance sends it.
  ssize_t write(const char* data, size_t size) override;
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // cpp-httplib answers 500 where this is beyond what select() takes; it is not used for that here.
  socket_t socket() const override { return 0; }

 private:
  enum class Phase : uint8_t { kHandshake, kRequest, kAnswer, kSend, kLinger, kEnd };

  // One phase, to its end (`phase_` is the next) or until it has to be waited for.
  Wants Step();
  Wants Handshake();
  Wants Receive();
  Wants Send();
  Wants Linger();
  Wants BeginLinger();
  Wants End();
  // After a call on the socket that returned `result`: what for to try again; kNothing: it failed.
  Wants Wanted(ssize_t result, Wants plain) const;

  const int fd_;
  const HttpLimits& limits_;
  const Clock::time_point began_ = Clock::now();
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
  Phase phase_;
  Clock::time_point deadline_;
  std::string request_;
  size_t read_ = 0;  // of the request
  std::string answer_;
  size_t sent_ = 0;     // of the answer
  size_t dropped_ = 0;  // bytes that came behind the request
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_H_
