// A raw connection that sends exactly the bytes of a test.
//
//   Wire wire(server->port());
//   wire.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
//   wire.HearUntil("</html>");
#ifndef ATHANOR_SERVER_HTTP_WIRE_TESTING_H_
#define ATHANOR_SERVER_HTTP_WIRE_TESTING_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace athanor {

class Wire {
 public:
  explicit Wire(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Wire() { close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int fd() const { return fd_; }
  // Returns false once the server has closed the connection.
  bool Say(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Sends bytes until the server has closed; reads nothing.
  void AwaitClosed() {
    while (Say("x")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void EndSaying() { shutdown(fd_, SHUT_WR); }
  // Closes with an error that the server sees at once.
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(std::exchange(fd_, -1));
  }

  // Returns everything that arrives until the server closes.
  std::string Hear() {
    while (HearMore()) {
    }
    return std::exchange(heard_, "");
  }
  // Returns what arrives up to and with `text`; everything there was if the server closes before.
  std::string HearUntil(const std::string& text) {
    size_t at = 0;
    while ((at = heard_.find(text)) == std::string::npos) {
      if (!HearMore()) return std::exchange(heard_, "");
    }
    std::string heard = heard_.substr(0, at + text.size());
    heard_.erase(0, at + text.size());
    return heard;
  }

 private:
  bool HearMore() {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n > 0) heard_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  int fd_;
  std::string heard_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_WIRE_TESTING_H_
