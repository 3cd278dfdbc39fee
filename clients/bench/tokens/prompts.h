// Prompts of a load of language models: random tokens, or texts of a file.
//
//   Prompt prompt = MakePrompt(options, seed, number);   // always the same for the same numbers
//
// Each call has its own prompt, so that a server that keeps prompts' states finds none of them
// again. Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_
#define ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/bench/tokens/lengths.h"

namespace athanor::bench {

struct PromptOptions {
  Lengths input = Lengths(128), output = Lengths(128);
  std::vector<std::string> texts;  // used in rotation instead of random tokens; `input` is unused
  bool chat = false;               // the text is the message of a chat's user
  int64_t vocabulary = 0;          // random tokens are below it
  std::vector<int32_t> not_drawn;  // tokens that end a sequence
  // Most tokens of prompt and output together; longer ones are cut, the output first down to
  // 1. 0: no limit.
  int64_t max_model_len = 0;
};

struct Prompt {
  std::vector<int32_t> tokens;  // empty: `text`
  std::string text;
  int64_t output_tokens = 0;  // to ask for
};

Prompt MakePrompt(const PromptOptions& options, uint64_t seed, int64_t number);

// Reads prompts from a file of JSON lines, each a string or an object with "prompt".
// INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path);

// INVALID_ARGUMENT names a flag whose value makes no prompt.
absl::Status CheckPrompts(const PromptOptions& options);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_TOKENS_PROMPTS_H_
