#include "clients/bench/llm_flags.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clients/bench/tokens/openai_backend.h"
#include "clients/cpp/inputs/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

constexpr int kMostTurns = 1000;

absl::Status Bad(absl::string_view flag, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, ": ", what));
}

// Returns the value for server `i`: its own, or the only one.
const std::string& Of(const std::vector<std::string>& values, size_t i) {
  return values[std::min(i, values.size() - 1)];
}

absl::Status CheckCount(absl::string_view flag, const std::vector<std::string>& values,
                        size_t servers) {
  if (values.size() == 1 || values.size() == servers) return absl::OkStatus();
  return Bad(flag, absl::StrCat("(given ", values.size(), " times)"),
             "must be given once, or once for each --address");
}

absl::StatusOr<Protocol> ParseProtocol(const std::string& text) {
  if (text == kGrpcBackend) return Protocol::kGrpc;
  if (text == kOpenAiBackend) return Protocol::kOpenAi;
  return Bad("--backend", text, "must be grpc (Athanor's GenerateService) or openai");
}

// A call of OpenAI's protocol in progress is a thread.
absl::Status LimitToThreads(RunPlan* run) {
  LoadOptions& load = run->load;
  if (load.connections != 1) {
    return Bad("--connections", absl::StrCat(load.connections),
               "is for gRPC; with --backend openai each call has a connection of its own");
  }
  for (const Phase& phase : load.phases) {
    if (load.arrival == Arrival::kClosed && phase.concurrency > kMostOpenAiCalls) {
      return Bad(
          "--concurrency", absl::StrCat(phase.concurrency),
          absl::StrCat("--backend openai has at most ", kMostOpenAiCalls, " calls in progress"));
    }
  }
  load.most_outstanding = std::min(load.most_outstanding, kMostOpenAiCalls);
  return absl::OkStatus();
}

// "1000" or "1000:4"
absl::Status ParsePrefix(const std::string& text, uint64_t seed, PromptOptions* prompts) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const auto read = [](const std::string& part, int64_t* value) {
    return absl::SimpleAtoi(part, value) && *value >= 1 && *value <= kMostTokens;
  };
  if (parts.size() > 2 || !read(parts[0], &prompts->prefix_tokens) ||
      (parts.size() == 2 && !read(parts[1], &prompts->prefix_groups))) {
    return Bad(
        "--shared_prefix", text,
        absl::StrCat("must be a number of tokens, or TOKENS:GROUPS, each from 1 to ", kMostTokens));
  }
  if (!prompts->texts.empty()) {
    return Bad("--shared_prefix", text, "is for random prompts; those of --prompts are whole");
  }
  prompts->prefix_seed = seed;
  return absl::OkStatus();
}

absl::Status ParseTurns(const LlmFlags& flags, const RunPlan& run, PromptOptions* prompts) {
  if (!flags.turns.has_value()) return absl::OkStatus();
  const std::string text = absl::StrCat(*flags.turns);
  if (*flags.turns < 1 || *flags.turns > kMostTurns) {
    return Bad("--turns", text, absl::StrCat("must be 1 to ", kMostTurns));
  }
  if (run.load.arrival != Arrival::kClosed) {
    return Bad("--turns", text,
               "a conversation waits for its answers: give --concurrency instead of a rate");
  }
  prompts->turns = *flags.turns;
  return absl::OkStatus();
}

// A trace says what is sent and when.
absl::Status CheckTrace(const LlmFlags& flags) {
  const std::pair<const char*, std::string> others[] = {
      {"--input_tokens", flags.input_tokens},
      {"--output_tokens", flags.output_tokens},
      {"--prompts", flags.prompts},
      {"--shared_prefix", flags.shared_prefix},
      {"--turns", flags.turns.has_value() ? absl::StrCat(*flags.turns) : ""}};
  for (const auto& [flag, text] : others) {
    if (!text.empty()) return Bad(flag, text, "--trace says what is sent; leave one out");
  }
  return absl::OkStatus();
}

absl::Status ParseLengths(const LlmFlags& flags, PromptOptions* prompts) {
  if (!flags.prompts.empty()) {
    if (!flags.input_tokens.empty()) {
      return Bad("--input_tokens", flags.input_tokens,
                 "is for random prompts; those of --prompts have their own lengths");
    }
    ASSIGN_OR_RETURN(prompts->texts, ReadPrompts(flags.prompts));
  }
  if (!flags.input_tokens.empty()) {
    ASSIGN_OR_RETURN(prompts->input,
                     Lengths::Parse("--input_tokens", flags.input_tokens, kInputKey));
  }
  if (!flags.output_tokens.empty()) {
    ASSIGN_OR_RETURN(prompts->output,
                     Lengths::Parse("--output_tokens", flags.output_tokens, kOutputKey));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareRunFlags(const LlmFlags& flags, RunFlags* run, LlmPlan* plan) {
  run->answers = Answers::kTokens;
  const size_t servers = run->servers.size();
  RETURN_IF_ERROR(CheckCount("--model", flags.models, servers));
  if (!flags.backends.empty()) {
    RETURN_IF_ERROR(CheckCount("--backend", flags.backends, servers));
  }
  run->model = flags.models[0];
  if (flags.trace.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckTrace(flags));
  ASSIGN_OR_RETURN(Trace trace, ReadTrace(flags.trace));
  for (const TraceCall& call : trace) run->due.push_back(call.seconds);
  plan->prompts.trace = std::make_shared<const Trace>(std::move(trace));
  return absl::OkStatus();
}

absl::Status ParseLlmFlags(const LlmFlags& flags, RunPlan* run, LlmPlan* plan) {
  std::vector<std::string> addresses = {run->load.address};
  if (!run->second_server.empty()) addresses.push_back(run->second_server);
  const std::vector<std::string> backends =
      flags.backends.empty() ? std::vector<std::string>{kGrpcBackend} : flags.backends;
  bool any_openai = false;
  for (size_t i = 0; i < addresses.size(); ++i) {
    ASSIGN_OR_RETURN(Protocol protocol, ParseProtocol(Of(backends, i)));
    any_openai = any_openai || protocol == Protocol::kOpenAi;
    plan->servers.push_back({protocol, addresses[i], Of(flags.models, i)});
  }
  if (any_openai) {
    RETURN_IF_ERROR(LimitToThreads(run));
  }
  if (!(flags.temperature >= 0 && flags.temperature <= 2)) {
    return Bad("--temperature", absl::StrCat(flags.temperature), "must be 0 to 2");
  }
  PromptOptions* prompts = &plan->prompts;
  RETURN_IF_ERROR(ParseLengths(flags, prompts));
  RETURN_IF_ERROR(ParsePrefix(flags.shared_prefix, run->load.seed, prompts));
  RETURN_IF_ERROR(ParseTurns(flags, *run, prompts));
  prompts->chat = flags.chat;
  if (flags.vocabulary.has_value()) {
    if (*flags.vocabulary < 1) {
      return Bad("--vocabulary", absl::StrCat(*flags.vocabulary), "must be a number of tokens");
    }
    prompts->vocabulary = *flags.vocabulary;
  }
  if (flags.max_model_len.has_value()) {
    if (*flags.max_model_len < 2) {
      return Bad("--max_model_len", absl::StrCat(*flags.max_model_len),
                 "must be at least 2, a token of the prompt and one that follows");
    }
    prompts->max_model_len = *flags.max_model_len;
  }
  if (flags.chat && prompts->texts.empty()) {
    return absl::InvalidArgumentError("--chat: a message is text; give texts with --prompts FILE");
  }
  return absl::OkStatus();
}

absl::Status FitPrompts(absl::Span<const ModelFacts> servers, PromptOptions* prompts) {
  const auto least = [](int64_t a, int64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; };
  int64_t vocabulary = 0;
  for (const ModelFacts& facts : servers) {
    vocabulary = least(vocabulary, facts.vocabulary);
    prompts->max_model_len = least(prompts->max_model_len, facts.max_model_len);
    prompts->not_drawn.insert(prompts->not_drawn.end(), facts.end_tokens.begin(),
                              facts.end_tokens.end());
  }
  prompts->vocabulary = least(prompts->vocabulary, vocabulary);
  return CheckPrompts(*prompts);
}

}  // namespace athanor::bench
