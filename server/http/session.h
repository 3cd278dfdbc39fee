// A connection of the HTTP side: TLS, requests one after another, and the answers to them.
//
//   auto session = HttpSession::Make(io, fd, setup);      // on any thread
//   sessions.Add(session);
//   session->Begin();
//
// All of a session runs on its strand: reads, limits of time and size, the handler's call, writes.
// It is kept by Sessions until it is closed, and by what is open on its socket. Answers come over
// HttpWire and are handed to the strand. While a request is answered, the session keeps a small
// read open: who leaves is noticed, and what is sent ahead waits.
#ifndef ATHANOR_SERVER_HTTP_SESSION_H_
#define ATHANOR_SERVER_HTTP_SESSION_H_

#include <memory>

#include "server/http/body_limits.h"
#include "server/http/exchange.h"
#include "server/http/host_names.h"
#include "server/http/routes.h"
#include "server/memory/server_ledger.h"
#include "server/net/peers.h"
#include "server/net/tls.h"

namespace boost::asio {
class io_context;
}

namespace athanor {

class Sessions;

// Holds what all sessions of a server share. Outlives them.
struct SessionSetup {
  HttpLimits limits;
  HostNames hosts;
  Routes routes;
  Admit admit, enter;                   // null: everybody
  ErrorBody error_body;                 // null: plain text
  std::shared_ptr<TlsCertificate> tls;  // null: no TLS
  ServerLedger* ledger = nullptr;       // counts bodies
  ConnectionCalls* calls = nullptr;     // counts what is being answered
  Sessions* sessions = nullptr;
  Tracer* tracer = nullptr;  // null: requests are not recorded
};

class HttpSession : public HttpWire {
 public:
  // Takes ownership of `fd`, non-blocking. Returns null if there is no memory for TLS.
  static std::shared_ptr<HttpSession> Make(boost::asio::io_context& io, int fd,
                                           const SessionSetup* setup);

  virtual void Begin() = 0;
  // Closes the connection; who answers is told that the client has left.
  virtual void Close() = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_SESSION_H_
