#include "server/http/client_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <utility>

namespace athanor {
namespace {

namespace asio = boost::asio;
using Socket = asio::basic_stream_socket<asio::ip::tcp, ClientStream::Strand>;

asio::ip::tcp ProtocolOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return name.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
}

std::vector<asio::const_buffer> BuffersOf(const std::vector<absl::string_view>& pieces) {
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(pieces.size());
  for (const absl::string_view piece : pieces) buffers.emplace_back(piece.data(), piece.size());
  return buffers;
}

void CloseSocket(Socket& socket, bool reset) {
  ClientStream::Error ignored;
  if (reset) socket.set_option(asio::socket_base::linger(true, 0), ignored);
  socket.close(ignored);
}

void AwaitError(Socket& socket, std::function<void()> done) {
  socket.async_wait(asio::socket_base::wait_error,
                    [done = std::move(done)](const ClientStream::Error& error) {
                      if (!error) done();
                    });
}

class PlainStream final : public ClientStream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  void Handshake(std::function<void(const Error&)> done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  std::shared_ptr<const PeerCertificate> Certificate() override { return nullptr; }
  void Read(const asio::mutable_buffer& buffer, Done done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void Write(const std::vector<absl::string_view>& pieces, Done done) override {
    asio::async_write(socket_, BuffersOf(pieces), std::move(done));
  }
  void EndWriting(std::shared_ptr<void>) override {
    Error ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  }
  void AwaitReset(std::function<void()> done) override { AwaitError(socket_, std::move(done)); }
  void Close(bool reset) override { CloseSocket(socket_, reset); }

 private:
  Socket socket_;
};

class TlsStream final : public ClientStream {
 public:
  TlsStream(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  void Handshake(std::function<void(const Error&)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  std::shared_ptr<const PeerCertificate> Certificate() override {
    SSL* const ssl = stream_.native_handle();
    X509* shown = SSL_get0_peer_certificate(ssl);
    return shown == nullptr ? nullptr : CertificateOfX509(shown, SSL_get_peer_cert_chain(ssl));
  }
  void Read(const asio::mutable_buffer& buffer, Done done) override {
    stream_.async_read_some(buffer, [done = std::move(done)](Error error, size_t bytes) {
      if (error == asio::ssl::error::stream_truncated) error = asio::error::eof;
      done(error, bytes);
    });
  }
  void Write(const std::vector<absl::string_view>& pieces, Done done) override {
    asio::async_write(stream_, BuffersOf(pieces), std::move(done));
  }
  void EndWriting(std::shared_ptr<void> owner) override {
    // Ends once the client has ended its side too.
    stream_.async_shutdown([owner = std::move(owner)](const Error&) {});
  }
  void AwaitReset(std::function<void()> done) override {
    AwaitError(stream_.next_layer(), std::move(done));
  }
  void Close(bool reset) override { CloseSocket(stream_.next_layer(), reset); }

 private:
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

std::unique_ptr<ClientStream> ClientStream::Make(const Strand& strand, int fd, SSL_CTX* tls) {
  Socket socket(strand);
  Error error;
  socket.assign(ProtocolOf(fd), fd, error);
  if (error) {
    close(fd);
    return nullptr;
  }
  if (tls == nullptr) return std::make_unique<PlainStream>(std::move(socket));
  try {
    SSL_CTX_up_ref(tls);
    asio::ssl::context context(tls);  // drops the reference; the stream has its own
    return std::make_unique<TlsStream>(std::move(socket), context);
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace athanor
