#include "server/http/session.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/answer_text.h"
#include "server/http/client_stream.h"
#include "server/http/outgoing.h"
#include "server/http/refusal.h"
#include "server/http/sessions.h"

namespace athanor {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Error = ClientStream::Error;
using Got = RequestReader::Got;

constexpr size_t kSmallRead = size_t{4} << 10;
constexpr size_t kBodyRead = size_t{16} << 10;
constexpr size_t kMostDropped = size_t{16} << 20;  // behind a request that is refused

class Session final : public HttpSession, public std::enable_shared_from_this<Session> {
 public:
  Session(const ClientStream::Strand& strand, std::unique_ptr<ClientStream> stream,
          std::string peer, const SessionSetup* setup)
      : place_(setup->sessions),
        setup_(*setup),
        peer_(std::move(peer)),
        strand_(strand),
        stream_(std::move(stream)),
        timer_(strand),
        reader_(setup->limits.head),
        read_(kSmallRead, '\0') {}

  void Begin() override {
    asio::post(strand_, [self = shared_from_this()] { self->Open(); });
  }
  void Close() override {
    asio::post(strand_, [self = shared_from_this()] { self->Drop(); });
  }
  void Send(Piece piece) override {
    asio::post(strand_, [self = shared_from_this(), piece = std::move(piece)]() mutable {
      self->Put(std::move(piece));
    });
  }
  void Cut(uint64_t number) override {
    asio::post(strand_, [self = shared_from_this(), number] {
      if (self->number_ != number) return;
      // An end would look like the answer's where nothing else ends it.
      if (self->phase_ == Phase::kAnswer) self->Drop(/*reset=*/self->framing_.http_1_0);
    });
  }

 private:
  // kIdle: nothing of the next request has come. kAnswer: a handler or a refusal answers.
  enum class Phase : uint8_t { kHandshake, kIdle, kHeader, kBody, kAnswer, kLinger, kClosed };

  void Open();
  void Drop(bool reset = false);
  void Leave() {
    if (const auto exchange = exchange_.lock()) exchange->Leave();
  }
  void EndCall() {
    if (std::exchange(in_call_, false)) setup_.calls->End(PortOfCall(peer_));
  }

  void Within(std::chrono::milliseconds time) { Until(Clock::now() + time); }
  void Until(Clock::time_point deadline);
  void Expire();

  void Read();
  void ReadBody();
  void OnRead(const Error& error, size_t bytes);
  void Parse();
  bool OnHead();
  bool HoldBody(size_t more);
  void OnEnd();
  // Reports whether the client sends no more, and has sent nothing behind this request.
  bool AtEnd() const { return ended_ && reader_.held() == 0; }
  bool OnMore();
  void OnWhole();

  void Refuse(HttpRefusal refusal);
  void Put(Piece piece);
  void SendContinue() {
    outgoing_.PutInterim("HTTP/1.1 100 Continue\r\n\r\n");
    WriteOut();
  }
  void WriteOut();
  void OnWritten(const Error& error, size_t bytes);
  void Finish();
  void BeginLinger();

  const Sessions::Place place_;  // first: it goes last
  const SessionSetup& setup_;
  const std::string peer_;
  const ClientStream::Strand strand_;
  const std::unique_ptr<ClientStream> stream_;
  std::shared_ptr<const PeerCertificate> certificate_;  // set by the handshake
  asio::steady_timer timer_;
  Phase phase_ = Phase::kHandshake;
  bool first_ = true;  // of the connection's requests

  RequestReader reader_;
  std::string read_;  // what the open read fills
  bool reading_ = false;
  bool ended_ = false;  // the client sends no more
  size_t dropped_ = 0;

  // Belong to the present request.
  uint64_t number_ = 0;
  const Route* route_ = nullptr;
  std::shared_ptr<HttpExchange> asked_;  // until the handler has it
  std::weak_ptr<HttpExchange> exchange_;
  Framing framing_;
  bool head_only_ = false;  // HEAD: no body is sent
  bool answering_ = false;  // a head was sent
  bool in_call_ = false;
  Clock::time_point body_began_;

  Outgoing outgoing_;
  bool writing_ = false;
};

void Session::Open() {
  if (phase_ == Phase::kClosed) return;
  Within(setup_.limits.header);
  stream_->Handshake([self = shared_from_this()](const Error& error) {
    if (self->phase_ == Phase::kClosed) return;
    if (error) return self->Drop();
    self->certificate_ = self->stream_->Certificate();
    self->phase_ = Phase::kIdle;
    self->Read();
  });
}

void Session::Drop(bool reset) {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  EndCall();
  timer_.cancel();
  stream_->Close(reset);
  setup_.sessions->Remove(shared_from_this());
  Leave();
  asked_.reset();
}

void Session::Until(Clock::time_point deadline) {
  timer_.expires_at(deadline);
  if (deadline == Clock::time_point::max()) return;
  timer_.async_wait([self = shared_from_this()](const Error& error) {
    // It may have been set anew behind this call.
    if (!error && self->timer_.expiry() <= Clock::now()) self->Expire();
  });
}

void Session::Expire() {
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      return Refuse({408, "the request took too long to arrive"});
    default:
      return Drop();
  }
}

void Session::Read() {
  if (reading_ || ended_) return;
  // Leaves in the socket what is sent ahead of an answer.
  if (phase_ == Phase::kAnswer && reader_.held() >= kSmallRead) return;
  if (phase_ == Phase::kBody && reader_.lacking() > 0) return ReadBody();
  size_t most = read_.size();
  if (phase_ != Phase::kLinger) most = std::min(most, reader_.room());
  reading_ = true;
  stream_->Read(asio::buffer(read_.data(), most),
                [self = shared_from_this()](const Error& error, size_t bytes) {
                  self->OnRead(error, bytes);
                });
}

// Reads a body of known length to its place, each time as much again as has come.
void Session::ReadBody() {
  const size_t twice = std::max(kBodyRead, reader_.came());
  const size_t most = std::min<uint64_t>(reader_.lacking(), twice);
  if (!HoldBody(most)) return;
  reading_ = true;
  stream_->Read(asio::buffer(reader_.GrowBody(most), most),
                [self = shared_from_this()](const Error& error, size_t came) {
                  self->reader_.Came(came);
                  self->OnRead(error, 0);
                });
}

void Session::OnRead(const Error& error, size_t bytes) {
  reading_ = false;
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kLinger) {
    dropped_ += bytes;
    return error || dropped_ > kMostDropped ? Drop() : Read();
  }
  reader_.Feed(absl::string_view(read_).substr(0, bytes));
  if (!error) return phase_ == Phase::kAnswer ? Read() : Parse();
  if (error != asio::error::eof || phase_ != Phase::kAnswer) return Drop();
  OnEnd();
}

// The client sends no more. It may have closed, or have ended its own side alone and wait for its
// answer, which looks the same until it is sent something: a closed socket resets. So sends an
// interim answer, which clients skip, where nothing of the answer is on its way.
void Session::OnEnd() {
  ended_ = true;
  stream_->AwaitReset([self = shared_from_this()] { self->Drop(); });
  if (!answering_ && !framing_.http_1_0) SendContinue();
}

void Session::Parse() {
  while (phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    if (phase_ == Phase::kBody && !HoldBody(reader_.held())) return;
    switch (reader_.Advance()) {
      case Got::kMore:
        if (!OnMore()) return;
        return ended_ ? Drop() : Read();
      case Got::kHead:
        if (!OnHead()) return;
        break;
      case Got::kWhole:
        return OnWhole();
      case Got::kRefused:
        return Refuse({reader_.refusal().status, reader_.refusal().message});
    }
  }
}

// Returns false if the request was refused.
bool Session::OnMore() {
  if (phase_ == Phase::kIdle && reader_.begun()) {
    phase_ = Phase::kHeader;
    if (!first_) Within(setup_.limits.header);
  }
  if (phase_ != Phase::kBody) return true;
  Until(BodyDeadline(setup_.limits, body_began_, reader_.came()));
  if (std::cmp_less_equal(reader_.came(), route_->most_body)) return true;
  Refuse(TooLong(*route_));
  return false;
}

// Returns false if the request was refused.
bool Session::OnHead() {
  phase_ = Phase::kBody;
  first_ = false;
  HttpRequest request = std::move(reader_.head());
  request.peer = peer_;
  request.certificate = certificate_;
  head_only_ = request.method == "HEAD";
  answering_ = false;
  framing_ = {.http_1_0 = reader_.http_1_0(), .closes = !reader_.keeps_alive()};
  asked_ = std::make_shared<HttpExchange>(std::move(request), weak_from_this(), ++number_);
  asked_->set_client(PeerOfCall(peer_).host);
  exchange_ = asked_;
  in_call_ = true;
  setup_.calls->Begin(PortOfCall(peer_));
  const std::optional<uint64_t> bytes = reader_.body_bytes();
  auto judged =
      JudgeHead(asked_.get(), framing_.http_1_0, bytes, setup_.hosts, setup_.routes, setup_.admit);
  if (auto* refusal = std::get_if<HttpRefusal>(&judged)) {
    Refuse(std::move(*refusal));
    return false;
  }
  route_ = std::get<const Route*>(judged);
  asked_->Record(setup_.tracer, route_->path);
  body_began_ = Clock::now();
  if (bytes == 0u) return true;
  if (!bytes.has_value() && !reading_) read_.resize(kBodyRead);
  if (reader_.expects_continue() && reader_.held() == 0) SendContinue();
  return true;
}

// Reserves memory for so many more bytes of the body at most. Returns false if the request was
// refused.
bool Session::HoldBody(size_t more) {
  const std::optional<uint64_t> bytes = reader_.body_bytes();
  if (bytes == 0u) return true;
  std::string& body = reader_.body();
  const absl::Status held =
      athanor::HoldBody(*setup_.ledger, reader_.came() + more, bytes, &body, &asked_->memory());
  if (!held.ok()) Refuse(RefusalOf(held));
  return held.ok();
}

void Session::OnWhole() {
  if (!OnMore()) return;
  asked_->request().body = std::move(reader_.body());
  if (setup_.enter != nullptr) {
    const absl::Status entered = setup_.enter(*route_, asked_.get());
    if (!entered.ok()) return Refuse(RefusalOf(entered));
  }
  phase_ = Phase::kAnswer;
  Until(Clock::time_point::max());
  if (!reading_) {
    read_.resize(kSmallRead);
    read_.shrink_to_fit();
  }
  Read();
  route_->handler(std::move(asked_));
}

void Session::Refuse(HttpRefusal refusal) {
  const bool in_body = phase_ == Phase::kBody;
  // Closes where the rest of the request would be taken for the next one.
  if (!in_body || !(reader_.whole() || reader_.body_bytes() == 0u)) framing_.closes = true;
  phase_ = Phase::kAnswer;
  Until(Clock::time_point::max());  // the request's time is over with it
  auto [type, text] =
      BodyOf(refusal, setup_.error_body, asked_ != nullptr ? asked_->request().path : "");
  if (asked_ == nullptr) {
    // Nothing of the request is known but who sends it.
    head_only_ = false;
    framing_ = {.closes = true};
    asked_ =
        std::make_shared<HttpExchange>(HttpRequest{.peer = peer_}, weak_from_this(), ++number_);
  }
  LogFailedRequest(*asked_, StatusOf(refusal));
  std::exchange(asked_, nullptr)
      ->Answer(refusal.status, std::move(type), std::move(text), std::move(refusal.more));
  Read();
}

void Session::Put(Piece piece) {
  if (phase_ != Phase::kAnswer) return;
  const bool last = piece.last;
  if (piece.head.has_value()) {
    framing_.closes = framing_.closes || AtEnd();
    answering_ = true;
  }
  outgoing_.Put(std::move(piece), head_only_, &framing_);
  if (last) EndCall();
  WriteOut();
}

void Session::WriteOut() {
  if (writing_ || outgoing_.empty()) return;
  writing_ = true;
  // Who writes a stream has a limit of its own for clients that do not read, which comes first.
  const int times = framing_.length.has_value() ? 1 : 2;
  if (phase_ == Phase::kAnswer) Within(times * setup_.limits.write);
  stream_->Write(outgoing_.Next(), [self = shared_from_this()](const Error& error, size_t written) {
    self->OnWritten(error, written);
  });
}

void Session::OnWritten(const Error& error, size_t bytes) {
  writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return Drop();
  if (phase_ == Phase::kAnswer) Until(Clock::time_point::max());
  const auto exchange = exchange_.lock();
  bool ended = false;
  for (const bool last : outgoing_.Written(bytes)) {
    ended = ended || last;
    if (exchange != nullptr) exchange->Written(last);
  }
  if (ended) return Finish();
  WriteOut();
}

void Session::Finish() {
  exchange_.reset();
  if (framing_.closes || AtEnd()) return BeginLinger();
  reader_.Next();
  phase_ = Phase::kIdle;
  Within(setup_.limits.idle);
  Parse();
}

// If a connection is closed with bytes unread, it is reset and the answer is lost on the way. So
// the session ends its own side, then reads until the client closes.
void Session::BeginLinger() {
  if (ended_) return Drop();
  phase_ = Phase::kLinger;
  Within(setup_.limits.linger);
  stream_->EndWriting(shared_from_this());
  Read();
}

}  // namespace

std::shared_ptr<HttpSession> HttpSession::Make(asio::io_context& io, int fd,
                                               const SessionSetup* setup) {
  std::string peer = PeerTextOfSocket(fd);
  const ClientStream::Strand strand = asio::make_strand(io);
  const auto tls = setup->tls == nullptr ? nullptr : setup->tls->Now();
  auto stream = ClientStream::Make(strand, fd, tls == nullptr ? nullptr : tls->context.get());
  if (stream == nullptr) return nullptr;
  return std::make_shared<Session>(strand, std::move(stream), std::move(peer), setup);
}

}  // namespace athanor
