#include "clients/bench/tokens/conversation.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace athanor::bench {
namespace {

// Most tokens that a chat's template adds around two messages.
constexpr int64_t kTemplateTokens = 64;

void Append(const std::vector<int32_t>& tokens, std::vector<int32_t>* all) {
  all->insert(all->end(), tokens.begin(), tokens.end());
}

}  // namespace

const Prompt& Conversation::Next(uint64_t seed, int64_t number) {
  if (kept_ && GoOn(seed, number)) {
    ++turn_;
  } else {
    prompt_ = MakePrompt(options_, seed, number);
    turn_ = 1;
  }
  kept_ = false;
  seed_ = seed;
  number_ = number;
  return prompt_;
}

void Conversation::Keep(Answer answer) {
  if (!keeps()) return;
  if (!prompt_.tokens.empty() && answer.tokens.empty()) {
    answer.tokens = DrawAnswer(options_, seed_, number_, answer.output_tokens);
  }
  answer_ = std::move(answer);
  kept_ = true;
}

bool Conversation::GoOn(uint64_t seed, int64_t number) {
  Prompt next = DrawPrompt(options_, seed, number);
  // A text has at most a token for each byte.
  const int64_t before = prompt_.tokens.empty()
                             ? answer_.input_tokens + answer_.output_tokens + kTemplateTokens
                             : static_cast<int64_t>(prompt_.tokens.size() + answer_.tokens.size());
  const auto own = static_cast<int64_t>(next.tokens.size() + next.text.size());
  if (options_.max_model_len > 0 && before + own + next.output_tokens > options_.max_model_len) {
    return false;
  }
  if (!prompt_.tokens.empty()) {
    Append(answer_.tokens, &prompt_.tokens);
    Append(next.tokens, &prompt_.tokens);
  } else if (options_.chat) {
    prompt_.before.push_back(std::move(prompt_.text));
    prompt_.before.push_back(std::move(answer_.text));
    prompt_.text = std::move(next.text);
  } else {
    absl::StrAppend(&prompt_.text, answer_.text, next.text);
  }
  prompt_.output_tokens = next.output_tokens;
  return true;
}

}  // namespace athanor::bench
