#include "server/generate/reply.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckTokens(absl::string_view name, absl::Span<const int32_t> tokens,
                         int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, "[", i, "] is ", tokens[i], "; the model's tokens are 0 to ", vocabulary - 1));
  }
  return absl::OkStatus();
}

Detokenizer::Options OptionsOf(const GenerateInput& input) {
  return {.special = input.special_in_text, .continues = input.continues};
}

}  // namespace

int64_t TokensToChoose(int64_t vocabulary, const Tokenizer* tokenizer) {
  return tokenizer == nullptr ? vocabulary : std::min<int64_t>(vocabulary, tokenizer->size());
}

absl::Status CheckInput(const GenerateInput& input, int64_t vocabulary,
                        const Tokenizer* tokenizer) {
  const SequenceRequest& sequence = input.sequence;
  RETURN_IF_ERROR(CheckTokens("prompt", sequence.prompt, vocabulary));
  RETURN_IF_ERROR(CheckTokens("stop_tokens", sequence.stop_tokens, vocabulary));
  RETURN_IF_ERROR(input.sampling.Check(TokensToChoose(vocabulary, tokenizer)));
  RETURN_IF_ERROR(StopWatcher::Check(input.stop));
  if (!input.stop.empty() && tokenizer == nullptr) {
    return absl::InvalidArgumentError(
        "stop has texts, and the model has no tokenizer to make text of tokens; name stop_tokens");
  }
  return absl::OkStatus();
}

Reply::Reply(const GenerateInput& input, std::shared_ptr<const Tokenizer> tokenizer,
             std::shared_ptr<VersionMetrics> metrics, std::shared_ptr<Outbox> outbox,
             SequenceTime arrived)
    : sampling_(input.sampling),
      stop_tokens_(input.sequence.stop_tokens),
      min_tokens_(input.sequence.min_tokens),
      metrics_(std::move(metrics)),
      outbox_(std::move(outbox)),
      arrived_(arrived),
      counts_matter_(sampling_.repetition != 1 || sampling_.presence != 0 ||
                     sampling_.frequency != 0),
      watcher_(input.stop) {
  if (counts_matter_) counts_ = TokenCounts(input.sequence.prompt);
  if (tokenizer != nullptr) detokenizer_.emplace(std::move(tokenizer), OptionsOf(input));
  summary_.prompt_tokens = static_cast<int64_t>(input.sequence.prompt.size());
}

void Reply::Observe(Metric metric, SequenceTime::duration time) {
  if (metrics_ != nullptr) metrics_->cells.Observe(metric, time);
}

void Reply::CountEnd(FinishedReason reason) {
  if (metrics_ != nullptr) metrics_->cells.Count(Metric::kSequencesEnded, reason);
}

void Reply::Start(SequenceTime now) {
  if (summary_.started != SequenceTime()) return;
  summary_.started = now;
  Observe(Metric::kSequenceQueueSeconds, now - arrived_);
}

bool Reply::IsStopToken(int32_t token) const {
  return std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end();
}

Told Reply::Choose(absl::Span<const float> logits, int64_t position, Sampler* sampler) {
  const bool may_stop = summary_.generated_tokens >= min_tokens_;
  auto sampled = sampler->Sample(logits, sampling_, counts_, position,
                                 may_stop ? absl::Span<const int32_t>() : stop_tokens_);
  if (!sampled.ok()) return {.status = std::move(sampled).status()};
  Told told{.token = sampled->token};
  ++summary_.generated_tokens;
  if (counts_matter_) counts_.Add(told.token);
  if (IsStopToken(told.token)) {
    summary_.stop_token = told.token;
  } else if (detokenizer_.has_value()) {
    std::string piece;
    detokenizer_->Add(told.token, &piece);
    StopWatcher::Found found = watcher_.Add(piece);
    next_.text += found.text;
    told.stop = stopped_ = found.stop;
    summary_.stop_text = std::move(found.stop_text);
  }
  next_.tokens.push_back(*std::move(sampled));
  return told;
}

void Reply::NoteTime(SequenceTime now) {
  if (summary_.first_token == SequenceTime()) {
    summary_.first_token = now;
    Observe(Metric::kTimeToFirstToken, now - arrived_);
  } else {
    Observe(Metric::kInterTokenLatency, now - summary_.last_token);
  }
  summary_.last_token = now;
}

bool Reply::Send(SequenceTime now) {
  NoteTime(now);
  return outbox_->Put(std::exchange(next_, {}));
}

void Reply::Finish(enum Finish finish, const SequenceFacts& facts, SequenceTime now) {
  NoteTime(now);
  if (detokenizer_.has_value() && !stopped_) {
    std::string rest;
    detokenizer_->End(&rest);
    StopWatcher::Found found = watcher_.Add(rest);
    next_.text += found.text;
    if (!found.stop) next_.text += watcher_.End();
  }
  next_.finish = finish;
  CountEnd(finish == Finish::kStop ? FinishedReason::kStop : FinishedReason::kLength);
  Observe(Metric::kSequenceSeconds, now - arrived_);
  if (const int64_t gaps = summary_.generated_tokens - 1; gaps > 0) {
    Observe(Metric::kTimePerOutputToken, (now - summary_.first_token) / gaps);
  }
  summary_.plan_id = facts.plan_id;
  summary_.cached_tokens = facts.cached_tokens;
  summary_.preemptions = facts.preemptions;
  next_.summary = std::move(summary_);
  static_cast<void>(outbox_->Put(std::exchange(next_, {})));
  outbox_->Close(absl::OkStatus());
}

void Reply::Fail(const absl::Status& status) {
  next_ = {};
  const bool aborted = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  CountEnd(aborted ? FinishedReason::kAbort : FinishedReason::kError);
  outbox_->Close(status);
}

}  // namespace athanor
