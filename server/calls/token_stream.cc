#include "server/calls/token_stream.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
void TokenStream::Open(Engine* engine, Engine::Started started) {
  MutexLock lock(mu_);
  engine_ = engine;
  started_ = std::move(started);
  longest_write_ = engine->options().scheduler.longest_pause;
  if (!cancelled_.ok()) {
    Abandon(cancelled_);
    EndLocked(cancelled_);
    return;
  }
  LookLocked();
}

void TokenStream::Refuse(const absl::Status& status) {
  // The sink may go, and with it the last other reference, before the lock is free.
  const std::shared_ptr<TokenStream> self = shared_from_this();
  MutexLock lock(mu_);
  EndLocked(cancelled_.ok() ? status : cancelled_);
}

void TokenStream::Written(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (sink_ == nullptr || ended_) return;
  if (ok) {
    LookLocked();
    return;
  }
  const absl::Status left = absl::CancelledError("the client left");
  Abandon(left);
  EndLocked(left);
}

void TokenStream::Cancel(const absl::Status& status) {
  MutexLock lock(mu_);
  cancelled_ = status;
  if (engine_ == nullptr) return;
  Abandon(status);
  EndLocked(status);
}

absl::Status TokenStream::cancelled() const {
  MutexLock lock(mu_);
  return cancelled_;
}

void TokenStream::Leave() {
  MutexLock lock(mu_);
  sink_ = nullptr;
  Abandon(absl::CancelledError("the call has ended"));
  if (watch_ != 0) timer_.Cancel(watch_);
}

void TokenStream::Look() {
  MutexLock lock(mu_);
  LookLocked();
}

void TokenStream::LookLocked() {
  if (sink_ == nullptr || engine_ == nullptr) return;
  if (writing_) {
    WatchWrite();
    return;
  }
  Outbox::Content content = started_.outbox->Take();
  if (!content.events.empty() || content.end.has_value()) Send(std::move(content));
}

void TokenStream::Send(Outbox::Content content) {
  std::optional<absl::Status> end = std::move(content.end);
  if (!content.events.empty() && content.events.back().finish != Finish::kNone) {
    end = absl::OkStatus();
  } else if (end.has_value() && end->ok()) {
    end = absl::InternalError("the sequence ended without a reason");
  }
  if (end.has_value()) {
    engine_ = nullptr;
    started_ = {};
  }
  if (content.events.empty()) {
    EndLocked(*end);
    return;
  }
  ++writes_;
  if (!end.has_value()) {
    writing_ = sink_->Write(std::move(content.events));
    return;
  }
  ended_ = true;
  writing_ = sink_->WriteLast(std::move(content.events), *end);
  if (writing_) WatchWrite();
}

void TokenStream::EndLocked(const absl::Status& status) {
  if (sink_ == nullptr || ended_) return;
  ended_ = true;
  sink_->End(status);
}

void TokenStream::WatchWrite() {
  if (watch_ != 0) return;
  watch_ = timer_.At(Timer::Clock::now() + longest_write_,
                     [self = shared_from_this(), write = writes_] { self->BreakIfPending(write); });
}

void TokenStream::BreakIfPending(int64_t write) {
  MutexLock lock(mu_);
  watch_ = 0;
  if (sink_ == nullptr || !writing_) return;
  if (writes_ != write) {
    WatchWrite();
    return;
  }
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(longest_write_);
  const absl::Status why = absl::ResourceExhaustedError(
      absl::StrCat("the client has read nothing for ", waited.count(), " ms"));
  Abandon(why);
  sink_->Break(why);
  EndLocked(why);
}

void TokenStream::Abandon(const absl::Status& why) {
  if (engine_ == nullptr) return;
  started_.outbox->Abandon();
  engine_->Cancel(started_.id, why);
  engine_ = nullptr;
  started_ = {};
}

}  // namespace athanor
