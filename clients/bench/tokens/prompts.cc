#include "clients/bench/tokens/prompts.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {
namespace {

using nlohmann::json;

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Draws below `vocabulary` until the token is one that may be drawn; CheckPrompts sees to it that
// there is one.
int32_t DrawToken(const PromptOptions& options, std::mt19937_64* random) {
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(options.vocabulary - 1));
  for (;;) {
    const int32_t drawn = token(*random);
    if (!absl::c_linear_search(options.not_drawn, drawn)) return drawn;
  }
}

// Streams of random numbers for different ends; a call's own has no number of this kind.
enum class Stream : uint32_t { kPrefix = 1, kBlock = 2, kAnswer = 3 };

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

std::mt19937_64 RandomOf(uint64_t seed, int64_t number) {
  const auto of = static_cast<uint64_t>(number);
  std::seed_seq mixed{Low(seed), High(seed), Low(of), High(of)};
  return std::mt19937_64(mixed);
}

std::mt19937_64 RandomOf(Stream stream, uint64_t seed, int64_t number) {
  const auto of = static_cast<uint64_t>(number);
  std::seed_seq mixed{Low(seed), High(seed), Low(of), High(of), static_cast<uint32_t>(stream)};
  return std::mt19937_64(mixed);
}

void AppendTokens(const PromptOptions& options, int64_t count, std::mt19937_64 random,
                  std::vector<int32_t>* tokens) {
  tokens->reserve(tokens->size() + static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) tokens->push_back(DrawToken(options, &random));
}

Prompt PromptOfTrace(const PromptOptions& options, uint64_t seed, int64_t number) {
  const TraceCall& call = (*options.trace)[InRotation(number, options.trace->size())];
  Prompt prompt;
  prompt.output_tokens = call.output_tokens;
  int64_t left = call.input_tokens;
  for (const int64_t block : call.blocks) {
    const int64_t tokens = std::min(left, kTraceBlock);
    AppendTokens(options, tokens, RandomOf(Stream::kBlock, seed, block), &prompt.tokens);
    left -= tokens;
  }
  return prompt;
}

}  // namespace

Prompt DrawPrompt(const PromptOptions& options, uint64_t seed, int64_t number) {
  if (options.trace != nullptr) return PromptOfTrace(options, seed, number);
  std::mt19937_64 random = RandomOf(seed, number);
  const int64_t input = options.input.Draw(&random, number);
  Prompt prompt;
  prompt.output_tokens = options.output.Draw(&random, number);
  if (options.texts.empty()) {
    AppendTokens(options, input, random, &prompt.tokens);
  } else {
    prompt.text = options.texts[InRotation(number, options.texts.size())];
  }
  return prompt;
}

std::vector<int32_t> DrawPrefix(const PromptOptions& options, int64_t number) {
  const size_t group = InRotation(number, static_cast<size_t>(options.prefix_groups));
  std::vector<int32_t> tokens;
  AppendTokens(options, options.prefix_tokens,
               RandomOf(Stream::kPrefix, options.prefix_seed, static_cast<int64_t>(group)),
               &tokens);
  return tokens;
}

std::vector<int32_t> DrawAnswer(const PromptOptions& options, uint64_t seed, int64_t number,
                                int64_t tokens) {
  std::vector<int32_t> answer;
  AppendTokens(options, tokens, RandomOf(Stream::kAnswer, seed, number), &answer);
  return answer;
}

Prompt MakePrompt(const PromptOptions& options, uint64_t seed, int64_t number) {
  Prompt prompt = DrawPrompt(options, seed, number);
  if (!prompt.tokens.empty() && options.prefix_tokens > 0) {
    std::vector<int32_t> whole = DrawPrefix(options, number);
    whole.insert(whole.end(), prompt.tokens.begin(), prompt.tokens.end());
    prompt.tokens = std::move(whole);
  }
  if (options.max_model_len == 0) return prompt;
  const auto most = static_cast<size_t>(options.max_model_len - 1);
  if (prompt.tokens.size() > most) prompt.tokens.resize(most);
  // The tokens of a text are the server's to count: at least one.
  const auto input = std::max<int64_t>(static_cast<int64_t>(prompt.tokens.size()), 1);
  prompt.output_tokens = std::min(prompt.output_tokens, options.max_model_len - input);
  return prompt;
}

absl::StatusOr<std::vector<std::string>> ReadPrompts(const std::string& path) {
  ASSIGN_OR_RETURN(std::string bytes, client::ReadFile(path));
  std::vector<std::string> prompts;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(bytes, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object() && row.contains("prompt")) row = json(row["prompt"]);
    if (!row.is_string() || row.get<std::string>().empty()) {
      return Bad(absl::StrCat("--prompts ", path, ": line ", line_number,
                              " must be a JSON string that is not empty, or an object with one as "
                              "\"prompt\""));
    }
    prompts.push_back(row.get<std::string>());
  }
  if (prompts.empty()) return Bad(absl::StrCat("--prompts ", path, ": holds no prompt"));
  return prompts;
}

absl::Status CheckPrompts(const PromptOptions& options) {
  if (options.max_model_len < 0 || options.max_model_len == 1) {
    return Bad(absl::StrCat("--max_model_len ", options.max_model_len,
                            ": must be at least 2, a token of the prompt and one that follows"));
  }
  const int64_t fixed = options.prefix_tokens + std::max<int64_t>(options.input.fixed(), 1) +
                        std::max<int64_t>(options.output.fixed(), 1);
  if (options.max_model_len > 0 && fixed > options.max_model_len && options.texts.empty() &&
      options.trace == nullptr) {
    return Bad(absl::StrCat(options.prefix_tokens > 0 ? "--shared_prefix, " : "",
                            "--input_tokens and --output_tokens are ", fixed,
                            " tokens together; the model takes ", options.max_model_len));
  }
  if (!options.texts.empty()) return absl::OkStatus();
  if (options.vocabulary < 1 || options.vocabulary > int64_t{1} << 31) {
    return Bad(absl::StrCat("--vocabulary ", options.vocabulary,
                            ": must be the model's number of tokens; the server does not tell it"));
  }
  int64_t may_be_drawn = options.vocabulary;
  std::vector<int32_t> ends = options.not_drawn;
  absl::c_sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (int32_t token : ends) may_be_drawn -= token >= 0 && token < options.vocabulary;
  if (may_be_drawn > 0) return absl::OkStatus();
  return Bad(
      absl::StrCat("--vocabulary ", options.vocabulary, ": each of its tokens ends a sequence"));
}

}  // namespace athanor::bench
