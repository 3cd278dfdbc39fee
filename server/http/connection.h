// One connection of the HTTP side, as cpp-httplib reads and writes it: in plain or under TLS, with
// an end to how long and how much a client may send, which cpp-httplib alone does not have (its
// time limit starts again with each byte, its lines have no largest length).
//
//   Connection connection(fd, /*tls=*/nullptr, stop_fd, limits);
//   if (connection.Accept()) ... process_request(connection, ...) ...
//   connection.RefuseIfFailed();
//
// Closes the descriptor, which is non-blocking. Used by one thread.
#ifndef ATHANOR_SERVER_HTTP_CONNECTION_H_
#define ATHANOR_SERVER_HTTP_CONNECTION_H_

#include <httplib.h>
#include <openssl/ssl.h>

#include <array>
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
  size_t most_waiting = 64;  // connections that no thread has taken up yet; more are refused
};

class Connection final : public httplib::Stream {
 public:
  // `limits` outlive it, and so does `tls` unless it is null. Once `stop_fd` is readable, what
  // waits ends.
  Connection(int fd, SSL_CTX* tls, int stop_fd, const HttpLimits& limits);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The TLS handshake; false: there will be no request.
  bool Accept();
  // Answers with `status`, such as "503 Service Unavailable", and nothing else.
  void Refuse(absl::string_view status);
  // The same for a request that came too slowly (408) or was too large (431), whatever was made of
  // it meanwhile; nothing for one that was answered, or never began.
  void RefuseIfFailed();

  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // cpp-httplib answers 500 where this is beyond what select() takes; poll() is used here.
  socket_t socket() const override { return 0; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Failure : uint8_t { kNone, kTooSlow, kTooLarge, kClosed };

  ssize_t Fill();
  ssize_t Send(const char* data, size_t size);
  // What a call on the socket that returned `result` waits for: POLLIN, POLLOUT; 0: it failed.
  short Wanted(ssize_t result, short plain) const;
  // False when the deadline passed, or the server stops.
  bool Wait(short events);
  void Linger();

  const int fd_;
  const int stop_fd_;
  const HttpLimits& limits_;
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{nullptr, &SSL_free};
  Clock::time_point deadline_;
  bool answering_ = false;
  Failure failure_ = Failure::kNone;
  size_t taken_ = 0;  // bytes of the request
  std::array<char, 4096> buffer_;
  size_t begin_ = 0;  // of what is in the buffer
  size_t end_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CONNECTION_H_
