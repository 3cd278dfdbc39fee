// Fakes the connection below an HttpExchange.
//
//   FakeClient client({.method = "POST", .path = "/v1/completions", .body = "{}"});
//   handler(client.Ask());
//   const FakeClient::Answer answer = client.AwaitEnd();   // answer.status, answer.body()
//
// A thread of its own reports each piece as written (HttpExchange::Watcher), as a connection does,
// unless Hold() has stopped it. Thread-safe.
#ifndef ATHANOR_SERVER_HTTP_EXCHANGE_TESTING_H_
#define ATHANOR_SERVER_HTTP_EXCHANGE_TESTING_H_

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/http/exchange.h"

namespace athanor {

class FakeClient {
 public:
  struct Answer {
    int status = 0;  // 0: no head has come
    std::string type;
    HttpHeaders headers;
    std::vector<std::string> pieces;  // one for each Answer, Write and End
    bool whole = false;               // by Answer, not by Begin
    bool ended = false;
    bool cut = false;

    std::string body() const { return absl::StrJoin(pieces, ""); }
  };

  explicit FakeClient(HttpRequest request, std::string name = "tester")
      : wire_(std::make_shared<Wire>()),
        exchange_(std::make_shared<HttpExchange>(std::move(request), wire_)) {
    exchange_->set_client(std::move(name));
    exchange_->set_caller(Caller::Anybody());
    wire_->exchange = exchange_;
    thread_ = std::thread([wire = wire_] { wire->Report(); });
  }
  ~FakeClient() {
    {
      MutexLock lock(wire_->mu);
      wire_->stopping = true;
      wire_->cv.NotifyAll();
    }
    thread_.join();
  }
  FakeClient(const FakeClient&) = delete;
  FakeClient& operator=(const FakeClient&) = delete;

  // Returns the exchange for a handler. Call it once: as in a server, nobody else keeps it.
  std::shared_ptr<HttpExchange> Ask() { return std::move(exchange_); }

  // Waits until the answer is ended or cut.
  Answer AwaitEnd() {
    MutexLock lock(wire_->mu);
    while (!wire_->answer.ended && !wire_->answer.cut) wire_->cv.Wait(lock);
    return wire_->answer;
  }
  // Waits until that many pieces have come, or the answer is ended or cut.
  Answer AwaitPieces(size_t count) {
    MutexLock lock(wire_->mu);
    while (wire_->answer.pieces.size() < count && !wire_->answer.ended && !wire_->answer.cut) {
      wire_->cv.Wait(lock);
    }
    return wire_->answer;
  }
  Answer Now() {
    MutexLock lock(wire_->mu);
    return wire_->answer;
  }

  // Stops and resumes reading: no piece is reported as written in between.
  void Hold(bool held = true) {
    MutexLock lock(wire_->mu);
    wire_->held = held;
    wire_->cv.NotifyAll();
  }
  // Leaves, as a client does that closes its socket.
  void Leave() {
    if (const auto exchange = wire_->exchange.lock()) exchange->Leave();
  }

 private:
  struct Wire final : HttpWire {
    void Send(Piece piece) override {
      MutexLock lock(mu);
      if (piece.head.has_value()) {
        answer.status = piece.head->status;
        answer.type = std::move(piece.head->type);
        answer.headers = std::move(piece.head->more);
        answer.whole = piece.last;
      }
      if (answer.whole || !piece.head.has_value()) {
        answer.pieces.push_back(std::move(piece.bytes));
        unreported.push_back({piece.last, std::move(piece.kept)});
      }
      answer.ended = answer.ended || piece.last;
      cv.NotifyAll();
    }
    void Cut(uint64_t) override {
      MutexLock lock(mu);
      answer.cut = true;
      cv.NotifyAll();
    }
    void Report() {
      MutexLock lock(mu);
      while (!stopping) {
        if (unreported.empty() || held) {
          cv.Wait(lock);
          continue;
        }
        Unreported piece = std::move(unreported.front());
        unreported.pop_front();
        lock.Unlock();
        if (const auto asked = exchange.lock()) asked->Written(piece.last);
        piece.kept.clear();
        lock.Lock();
      }
    }

    struct Unreported {
      bool last;
      std::vector<std::shared_ptr<void>> kept;
    };
    std::weak_ptr<HttpExchange> exchange;
    Mutex mu;
    CondVar cv;
    Answer answer ABSL_GUARDED_BY(mu);
    std::deque<Unreported> unreported ABSL_GUARDED_BY(mu);
    bool held ABSL_GUARDED_BY(mu) = false;
    bool stopping ABSL_GUARDED_BY(mu) = false;
  };

  const std::shared_ptr<Wire> wire_;
  std::shared_ptr<HttpExchange> exchange_;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_EXCHANGE_TESTING_H_
