#include "clients/bench/tokens/prompts.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/cpp/text_input.h"
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

}  // namespace

Prompt MakePrompt(const PromptOptions& options, uint64_t seed, int64_t number) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](uint64_t value) { return static_cast<uint32_t>(value >> 32); };
  const uint64_t call = static_cast<uint64_t>(number);
  std::seed_seq mixed{low(seed), high(seed), low(call), high(call)};
  std::mt19937_64 random(mixed);
  int64_t input = options.input.Draw(&random, number);
  Prompt prompt;
  prompt.output_tokens = options.output.Draw(&random, number);
  if (!options.texts.empty()) {
    // The prompt's tokens are the server's to count.
    if (options.max_model_len > 0) {
      prompt.output_tokens = std::min(prompt.output_tokens, options.max_model_len - 1);
    }
    prompt.text = options.texts[InRotation(number, options.texts.size())];
    return prompt;
  }
  if (options.max_model_len > 0) {
    input = std::min(input, options.max_model_len - 1);
    prompt.output_tokens = std::min(prompt.output_tokens, options.max_model_len - input);
  }
  prompt.tokens.reserve(static_cast<size_t>(input));
  while (static_cast<int64_t>(prompt.tokens.size()) < input) {
    prompt.tokens.push_back(DrawToken(options, &random));
  }
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
  const int64_t fixed = options.input.fixed() + options.output.fixed();
  if (options.max_model_len > 0 && fixed > options.max_model_len && options.texts.empty()) {
    return Bad(absl::StrCat("--input_tokens and --output_tokens are ", fixed,
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
