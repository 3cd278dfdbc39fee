#include "server/calls/token_stream.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

int64_t MicrosecondsFrom(SequenceTime arrived, SequenceTime time) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(time - arrived);
  return std::max<int64_t>(passed.count(), 0);
}

v1::FinishReason ReasonOf(Finish finish) {
  switch (finish) {
    case Finish::kNone:
      return v1::FINISH_UNSPECIFIED;
    case Finish::kStop:
      return v1::FINISH_STOP;
    case Finish::kLength:
      return v1::FINISH_LENGTH;
  }
  return v1::FINISH_UNSPECIFIED;
}

}  // namespace

void TokenStream::Open(Engine* engine, Engine::Started started, StreamFacts facts) {
  MutexLock lock(mu_);
  engine_ = engine;
  started_ = std::move(started);
  facts_ = std::move(facts);
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
  const v1::GenerateResponse message = MessageOf(std::move(content.events));
  ++writes_;
  writing_ = true;
  if (!end.has_value()) {
    sink_->Write(message);
    return;
  }
  ended_ = true;
  sink_->WriteLast(message, *end);
  WatchWrite();
}

v1::GenerateResponse TokenStream::MessageOf(std::vector<GenerateEvent> events) const {
  v1::GenerateResponse message;
  message.set_text(std::move(events.front().text));
  for (size_t i = 0; i < events.size(); ++i) {
    const GenerateEvent& event = events[i];
    if (i > 0) message.mutable_text()->append(event.text);
    for (const Sampled& token : event.tokens) AddToken(token, &message);
    if (event.finish == Finish::kNone) continue;
    message.set_finish(ReasonOf(event.finish));
    if (event.summary.has_value()) AddSummary(*event.summary, &message);
  }
  return message;
}

void TokenStream::AddToken(const Sampled& token, v1::GenerateResponse* message) const {
  message->add_tokens(token.token);
  if (!facts_.logprobs) return;
  const auto set = [tokenizer = facts_.tokenizer.get()](int32_t id, float logprob,
                                                        v1::TokenLogprob* row) {
    row->set_token(id);
    row->set_logprob(logprob);
    if (tokenizer == nullptr) return;
    const std::string_view bytes = tokenizer->BytesOf(id);
    row->set_text(bytes.data(), bytes.size());
  };
  v1::Logprobs* logprobs = message->add_logprobs();
  set(token.token, token.logprob, logprobs->mutable_chosen());
  for (const TokenLogprob& likely : token.likeliest) {
    set(likely.token, likely.logprob, logprobs->add_likeliest());
  }
}

void TokenStream::AddSummary(const SequenceSummary& summary, v1::GenerateResponse* message) const {
  v1::Usage* usage = message->mutable_usage();
  usage->set_prompt_tokens(summary.prompt_tokens);
  usage->set_cached_tokens(summary.cached_tokens);
  usage->set_generated_tokens(summary.generated_tokens);
  usage->set_seed(facts_.seed);
  usage->set_model_version(facts_.model_version);
  usage->set_plan_id(summary.plan_id);
  if (summary.stop_token.has_value()) usage->set_stop_token(*summary.stop_token);
  usage->set_stop_text(summary.stop_text);
  v1::GenerateTimes* times = message->mutable_times();
  times->set_started_us(MicrosecondsFrom(facts_.arrived, summary.started));
  if (summary.generated_tokens == 0) return;
  times->set_first_token_us(MicrosecondsFrom(facts_.arrived, summary.first_token));
  times->set_last_token_us(MicrosecondsFrom(facts_.arrived, summary.last_token));
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
