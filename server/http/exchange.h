// A request over HTTP and the answer to it, as a handler sees them.
//
//   void Hello(std::shared_ptr<HttpExchange> exchange) {
//     exchange->Answer(200, "text/plain", absl::StrCat("hello ", exchange->client(), "\n"));
//   }
//   // Or a stream, of any thread's pieces, one at a time:
//   exchange->Watch(self);                     // a std::weak_ptr<HttpExchange::Watcher>
//   exchange->Begin(200, "text/event-stream");
//   exchange->Write("data: 1\n\n");            // ... self->Written() ... the next piece
//   exchange->End("data: [DONE]\n\n");
//
// Threads: the handler and the watcher are called on an I/O thread, which serves other clients too:
// neither may wait. Everything here may be called on any thread, under any lock: bytes are handed
// to the connection's strand, which calls the watcher later. Only Watch may call back at once.
//
// An exchange is shared by those who answer it and outlives its connection: what is sent after the
// client has left goes nowhere. The connection does not keep it. The last owner that drops it
// without an answer has 500 sent; a begun stream, or one whose client has left, is cut.
#ifndef ATHANOR_SERVER_HTTP_EXCHANGE_H_
#define ATHANOR_SERVER_HTTP_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/access/access.h"
#include "server/memory/server_ledger.h"

namespace athanor {

class Trace;
class Tracer;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // empty: the head did not parse
  std::string path;    // without the query, percent-decoded
  std::string query;   // as sent, without "?"
  std::string body;
  std::string peer;  // as gRPC writes it: "ipv4:10.0.0.7:43210"
  HttpHeaders headers;
  std::shared_ptr<const PeerCertificate> certificate = nullptr;  // null: the client showed none

  // Returns the first header of that name, in any case; null if there is none.
  const std::string* Header(absl::string_view name) const;
};

struct HttpHead {
  int status = 200;
  std::string type;  // Content-Type
  HttpHeaders more;
};

// Carries the answers: a connection, or a fake (exchange_testing.h). Thread-safe; never calls
// the exchange back before it returns.
class HttpWire {
 public:
  // A piece with a head that is the last too is a whole answer, and has a Content-Length.
  struct Piece {
    std::optional<HttpHead> head;
    std::string bytes;
    bool last = false;
    std::vector<std::shared_ptr<void>> kept = {};  // until it is written or the client has left
  };
  virtual ~HttpWire() = default;
  virtual void Send(Piece piece) = 0;
  // Cuts the connection if it is still at the request of that number.
  virtual void Cut(uint64_t number) = 0;
};

class HttpExchange {
 public:
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // The client's socket has taken the piece of the last Answer, Write or End. Begin has none.
    virtual void Written() = 0;
    // The client has left or has read too slowly before it had all. Called once; nothing follows.
    virtual void Left() = 0;
  };

  // `number`: of the request, on its connection.
  HttpExchange(HttpRequest request, std::weak_ptr<HttpWire> wire, uint64_t number = 0)
      : request_(std::move(request)),
        wire_(std::move(wire)),
        number_(number),
        request_id_(IdOf(request_)) {}
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // The handler's alone. It may move the body out, and drop the memory held for it.
  HttpRequest& request() { return request_; }
  const HttpRequest& request() const { return request_; }
  ServerLedger::Reservation& memory() { return memory_; }

  // Names who asks: the name of the key, else the peer's host. Admit sets it.
  const std::string& client() const { return client_; }
  void set_client(std::string client) { client_ = std::move(client); }

  // The caller's x-request-id, or one made here: on each answer, and in each line of the log.
  const std::string& request_id() const { return request_id_; }
  // Reports whether the client has left: nobody reads an answer.
  bool left() const;

  // Says what the caller may do, and counts it until the answer is sent. Admit sets it.
  const Caller& caller() const { return caller_; }
  void set_caller(Caller caller) { caller_ = std::move(caller); }

  // Has a request that was admitted to the route of that path recorded if `tracer` says so; null:
  // it is not. Called once, ahead of all that follows.
  void Record(Tracer* tracer, absl::string_view route);
  // Null: it is not recorded.
  const std::shared_ptr<Trace>& trace() const { return trace_; }

  // Keeps `kept` until the answer is sent or, where the client has left, the exchange goes.
  void Keep(std::shared_ptr<void> kept);

  // Sends a whole answer.
  void Answer(int status, std::string type, std::string body, HttpHeaders more = {});
  // Begins a stream: chunked, or to the end of the connection for HTTP/1.0.
  void Begin(int status, std::string type, HttpHeaders more = {});
  // Sends a piece of the stream; the next one must wait for Written.
  void Write(std::string piece);
  // Sends the last piece and the stream's end in one write.
  void End(std::string last = "");
  // Cuts the connection unless the answer is ended: the client sees that it is not whole. Nothing
  // is called any more.
  void Break();
  // Calls Left at once if the client has left already. Replaces an earlier watcher.
  void Watch(std::weak_ptr<Watcher> watcher);

  // Called by the connection. `last`: everything is sent.
  void Written(bool last);
  void Leave();

 private:
  enum class State : uint8_t { kAsked, kBegun, kEnded };

  static std::string IdOf(const HttpRequest& request);
  void NoteStatus(int status);
  // Ends the trace of an answer that will not be whole.
  void EndTrace(absl::string_view why);
  // Moves on to `next` and returns true if the state is `from`.
  bool Advance(State from, State next);
  void Send(HttpWire::Piece piece);

  HttpRequest request_;
  const std::weak_ptr<HttpWire> wire_;
  const uint64_t number_;
  const std::string request_id_;
  std::shared_ptr<Trace> trace_;
  ServerLedger::Reservation memory_;
  std::string client_;
  Caller caller_;
  mutable Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kAsked;
  bool left_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;  // all sent, cut or left: nobody is called any more
  std::weak_ptr<Watcher> watcher_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<void>> kept_ ABSL_GUARDED_BY(mu_);
};

// Logs what a client was told that got no good answer.
void LogFailedRequest(const HttpExchange& exchange, const absl::Status& told);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_EXCHANGE_H_
