#include "server/rpc/generate/response_message.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

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

void AddToken(const Sampled& token, const StreamFacts& facts, v1::GenerateResponse* message) {
  message->add_tokens(token.token);
  if (!facts.logprobs) return;
  const auto set = [tokenizer = facts.tokenizer.get()](int32_t id, float logprob,
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

void AddSummary(const SequenceSummary& summary, const StreamFacts& facts,
                v1::GenerateResponse* message) {
  v1::Usage* usage = message->mutable_usage();
  usage->set_prompt_tokens(summary.prompt_tokens);
  usage->set_cached_tokens(summary.cached_tokens);
  usage->set_generated_tokens(summary.generated_tokens);
  usage->set_preemptions(summary.preemptions);
  usage->set_seed(facts.seed);
  usage->set_model_version(facts.model_version);
  usage->set_plan_id(summary.plan_id);
  if (summary.stop_token.has_value()) usage->set_stop_token(*summary.stop_token);
  usage->set_stop_text(summary.stop_text);
  v1::GenerateTimes* times = message->mutable_times();
  times->set_started_us(MicrosecondsFrom(facts.arrived, summary.started));
  if (summary.generated_tokens == 0) return;
  times->set_first_token_us(MicrosecondsFrom(facts.arrived, summary.first_token));
  times->set_last_token_us(MicrosecondsFrom(facts.arrived, summary.last_token));
}

}  // namespace

v1::GenerateResponse ResponseMessage(std::vector<GenerateEvent> events, const StreamFacts& facts) {
  v1::GenerateResponse message;
  message.set_text(std::move(events.front().text));
  for (size_t i = 0; i < events.size(); ++i) {
    const GenerateEvent& event = events[i];
    if (i > 0) message.mutable_text()->append(event.text);
    for (const Sampled& token : event.tokens) AddToken(token, facts, &message);
    if (event.finish == Finish::kNone) continue;
    message.set_finish(ReasonOf(event.finish));
    if (event.summary.has_value()) AddSummary(*event.summary, facts, &message);
  }
  return message;
}

}  // namespace athanor
