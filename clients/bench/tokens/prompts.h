// Prompts of a load of language models: random tokens, or texts of a file.
//
//   Prompt prompt = MakePrompt(options, seed, number);   // always the same for the same numbers
//
// Each call has tokens of its own, so that a server that keeps prompts' states finds none of them
// again; what prompts share is said: `prefix_tokens` of a group, the blocks of a trace. Pure and
// thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/tokens/lengths.h"
#include "clients/bench/tokens/trace.h"

namespace athanor::bench {

struct PromptOptions {
  Lengths input = Lengths(128), output = Lengths(128);
  std::vector<std::string> texts;  // used in rotation instead of random tokens; `input` is unused
  bool chat = false;               // the text is the message of a chat's user
  // Random prompts begin with these many tokens, which are the same for the calls of a group, in
  // every run with the seed: calls belong to groups in rotation.
  int64_t prefix_tokens = 0, prefix_groups = 1;
  uint64_t prefix_seed = 0;
  int turns = 1;                       // of a conversation (conversation.h)
  std::shared_ptr<const Trace> trace;  // lengths and blocks, in rotation, instead of the others
  int64_t vocabulary = 0;              // random tokens are below it
  std::vector<int32_t> not_drawn;      // tokens that end a sequence
  // Most tokens of prompt and output together; longer ones are cut, the output first down to
  // 1. 0: no limit.
  int64_t max_model_len = 0;
};

struct Prompt {
  std::vector<int32_t> tokens;      // empty: `text`
  std::vector<std::string> before;  // of a chat: what user and assistant said before, in turn
  std::string text;
  int64_t output_tokens = 0;  // to ask for
};

// A call's own part: without a prefix of its group, and not cut.
Prompt DrawPrompt(const PromptOptions& options, uint64_t seed, int64_t number);
// Returns the tokens that the prompts of the call's group begin with.
std::vector<int32_t> DrawPrefix(const PromptOptions& options, int64_t number);
// Returns tokens to stand for an answer whose tokens are not known.
std::vector<int32_t> DrawAnswer(const PromptOptions& options, uint64_t seed, int64_t number,
                                int64_t tokens);
// Returns a call that stands alone, as long as the model takes it.
Prompt MakePrompt(const PromptOptions& options, uint64_t seed, int64_t number);

// Reads prompts from a file of JSON lines, each a string or an object with "prompt".
// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

// INVALID_ARGUMENT names a flag whose value makes no prompt.
absl::Status CheckPrompts(const PromptOptions& options);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_
