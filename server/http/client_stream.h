// The bytes of a connection, plain or TLS, over Asio. Only session.cc includes it: Asio is slow to
// compile.
//
//   auto stream = ClientStream::Make(strand, fd, /*tls=*/nullptr);
//   stream->Read(buffer, [](const error_code& ec, size_t bytes) { ... });   // on the strand
//
// One read and one write may be open at a time. Used on its strand alone; its owner keeps it until
// each has called back.
#ifndef ATHANOR_SERVER_HTTP_CLIENT_STREAM_H_
#define ATHANOR_SERVER_HTTP_CLIENT_STREAM_H_

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/net/peer_certificate.h"

namespace athanor {

class ClientStream {
 public:
  using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
  using Error = boost::system::error_code;
  using Done = std::function<void(const Error& error, size_t bytes)>;

  // Takes ownership of `fd`, a connected socket. Returns null if there is no memory for TLS.
  static std::unique_ptr<ClientStream> Make(const Strand& strand, int fd, SSL_CTX* tls);
  virtual ~ClientStream() = default;

  virtual void Handshake(std::function<void(const Error& error)> done) = 0;
  // Returns the certificate that the client has shown and TLS has checked; null: none.
  virtual std::shared_ptr<const PeerCertificate> Certificate() = 0;
  // Reads some bytes. An end of the stream without TLS's own is an end too (asio::error::eof).
  virtual void Read(const boost::asio::mutable_buffer& buffer, Done done) = 0;
  // Writes all. The bytes must stay where they are until then.
  virtual void Write(const std::vector<absl::string_view>& pieces, Done done) = 0;
  // Calls back, behind an end of the stream, once the client's side is closed altogether: it resets
  // what it is sent. Not if the socket is closed here.
  virtual void AwaitReset(std::function<void()> done) = 0;
  // Tells the client that nothing more will come; it may go on sending. Keeps `owner`, who owns the
  // stream, until that is done or the socket is closed.
  virtual void EndWriting(std::shared_ptr<void> owner) = 0;
  // Closes the socket, which ends what is open. `reset`: the client sees an error, not an end.
  virtual void Close(bool reset) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_CLIENT_STREAM_H_
