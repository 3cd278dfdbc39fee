#include "server/http/exchange.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/call_log.h"
#include "server/net/peers.h"
#include "server/tracing/tracer.h"

namespace athanor {
namespace {

// Returns all of that name as one, as HTTP says of lists.
std::string ListOf(const HttpRequest& request, absl::string_view name) {
  std::string all;
  for (const auto& [key, value] : request.headers) {
    if (absl::EqualsIgnoreCase(key, name)) absl::StrAppend(&all, all.empty() ? "" : ",", value);
  }
  return all;
}

}  // namespace

const std::string* HttpRequest::Header(absl::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return &value;
  }
  return nullptr;
}

HttpExchange::~HttpExchange() {
  bool answers = false, cuts = false;
  {
    MutexLock lock(mu_);
    answers = state_ == State::kAsked && !left_;
    cuts = state_ != State::kEnded && !answers;
  }
  if (answers) Answer(500, "text/plain; charset=utf-8", "500: the request was dropped\n");
  if (!cuts) return;
  if (const auto wire = wire_.lock()) wire->Cut(number_);
}

std::string HttpExchange::IdOf(const HttpRequest& request) {
  const std::string* given = request.Header(kRequestIdKey);
  return RequestIdFor(given == nullptr ? "" : *given);
}

void HttpExchange::Record(Tracer* tracer, absl::string_view route) {
  if (tracer == nullptr) return;
  const std::string* parent = request_.Header("traceparent");
  std::string traceparent, tracestate;
  if (parent != nullptr) {
    traceparent = ListOf(request_, "traceparent");  // several are malformed together
    tracestate = ListOf(request_, "tracestate");
  }
  trace_ =
      tracer->Begin({traceparent, tracestate}, request_.method, std::chrono::steady_clock::now());
  if (trace_ == nullptr) return;
  trace_->Rename(absl::StrCat(request_.method, " ", route));
  trace_->Set("http.request.method", request_.method);
  trace_->Set("http.route", route);
  trace_->Set("url.path", request_.path);
  trace_->Set("client.address", PeerOfCall(request_.peer).host);
  trace_->Set("athanor.request_id", request_id_);
  if (!caller_.name().empty()) trace_->Set("enduser.id", caller_.name());
}

void HttpExchange::NoteStatus(int status) {
  if (trace_ == nullptr) return;
  trace_->Set("http.response.status_code", int64_t{status});
  if (status >= 500) trace_->Fail(absl::StrCat(status), "");
}

void HttpExchange::EndTrace(absl::string_view why) {
  if (trace_ == nullptr) return;
  trace_->Fail("cut", why);
  trace_->End();
}

bool HttpExchange::left() const {
  MutexLock lock(mu_);
  return left_;
}

bool HttpExchange::Advance(State from, State next) {
  MutexLock lock(mu_);
  if (state_ != from) return false;
  state_ = next;
  return true;
}

void HttpExchange::Send(HttpWire::Piece piece) {
  if (piece.last) {
    caller_.End();  // ahead of the client, whose next request is not one too many
    MutexLock lock(mu_);
    piece.kept.swap(kept_);
  }
  if (piece.last && trace_ != nullptr) trace_->End();
  if (const auto wire = wire_.lock()) wire->Send(std::move(piece));
}

void HttpExchange::Keep(std::shared_ptr<void> kept) {
  MutexLock lock(mu_);
  kept_.push_back(std::move(kept));
}

void HttpExchange::Answer(int status, std::string type, std::string body, HttpHeaders more) {
  if (!Advance(State::kAsked, State::kEnded)) return;
  NoteStatus(status);
  more.emplace_back(kRequestIdKey, request_id_);
  Send({HttpHead{status, std::move(type), std::move(more)}, std::move(body), true});
}

void HttpExchange::Begin(int status, std::string type, HttpHeaders more) {
  if (!Advance(State::kAsked, State::kBegun)) return;
  NoteStatus(status);
  more.emplace_back(kRequestIdKey, request_id_);
  Send({HttpHead{status, std::move(type), std::move(more)}, "", false});
}

void HttpExchange::Write(std::string piece) {
  if (Advance(State::kBegun, State::kBegun)) Send({std::nullopt, std::move(piece), false});
}

void HttpExchange::End(std::string last) {
  if (Advance(State::kBegun, State::kEnded)) Send({std::nullopt, std::move(last), true});
}

void HttpExchange::Break() {
  {
    MutexLock lock(mu_);
    if (over_) return;
    over_ = true;
    state_ = State::kEnded;
  }
  EndTrace("the answer was broken off");
  if (const auto wire = wire_.lock()) wire->Cut(number_);
}

void HttpExchange::Watch(std::weak_ptr<Watcher> watcher) {
  std::shared_ptr<Watcher> told;
  {
    MutexLock lock(mu_);
    watcher_ = watcher;
    if (left_) told = watcher.lock();
  }
  if (told != nullptr) told->Left();
}

void HttpExchange::Written(bool last) {
  std::shared_ptr<Watcher> watcher;
  {
    MutexLock lock(mu_);
    if (over_) return;
    over_ = last;
    watcher = watcher_.lock();
  }
  if (watcher != nullptr) watcher->Written();
}

void HttpExchange::Leave() {
  std::shared_ptr<Watcher> watcher;
  {
    MutexLock lock(mu_);
    if (over_) return;
    over_ = left_ = true;
    watcher = watcher_.lock();
  }
  EndTrace("the client left");
  if (watcher != nullptr) watcher->Left();
}

void LogFailedRequest(const HttpExchange& exchange, const absl::Status& told) {
  const HttpRequest& request = exchange.request();
  const std::string method =
      request.method.empty() ? "HTTP" : absl::StrCat(request.method, " ", request.path);
  const std::shared_ptr<Trace>& trace = exchange.trace();
  LogFailedCall({exchange.request_id(), method, request.peer, exchange.caller().name(),
                 trace == nullptr ? absl::string_view() : trace->id()},
                told);
}

}  // namespace athanor
