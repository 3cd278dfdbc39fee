// The calls of one caller: each stands alone, or goes on with what was said before.
//
//   Conversation conversation(&options);
//   const Prompt& prompt = conversation.Next(seed, number);
//   conversation.Keep(answer);                       // once the call was answered
//
// With `turns` above 1 a call begins with the prompt and the answer of the one before it, and adds
// a part of its own: random tokens, or the next text of the file. A conversation ends after its
// turns, with a call that fails, or where its next turn would not fit into the model's length; then
// the caller begins another. Not thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_CONVERSATION_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_CONVERSATION_H_

#include <cstdint>

#include "clients/bench/tokens/prompts.h"
#include "clients/bench/tokens/stream_collector.h"

namespace athanor::bench {

class Conversation {
 public:
  // `options` outlives this.
  explicit Conversation(const PromptOptions* options) : options_(*options) {}

  // Returns the next call's prompt, which stays until the next Next. Calls of equal seeds and
  // numbers that begin a conversation have equal prompts.
  const Prompt& Next(uint64_t seed, int64_t number);
  // Reports whether the answer is of use: another turn may follow.
  bool keeps() const { return turn_ < options_.turns; }
  // Goes on with the answer: without it, the next call begins a conversation. Random tokens stand
  // for an answer whose tokens are not told where the prompt is one of tokens.
  void Keep(Answer answer);

 private:
  // Adds the turn's own part to what was said; false if it would be too long.
  bool GoOn(uint64_t seed, int64_t number);

  const PromptOptions& options_;
  Prompt prompt_;
  int turn_ = 0;  // of the prompt, from 1
  bool kept_ = false;
  Answer answer_;
  uint64_t seed_ = 0;  // of the prompt, with its number
  int64_t number_ = 0;
};

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_CONVERSATION_H_
