#include "clients/bench/llm_flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/bench/tokens/openai_backend.h"
#include "clients/cpp/text_input.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::bench {
namespace {

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
             "must be given once, or once for each --server");
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

absl::Status PrepareRunFlags(const LlmFlags& flags, RunFlags* run) {
  run->answers = Answers::kTokens;
  const size_t servers = run->servers.size();
  RETURN_IF_ERROR(CheckCount("--model", flags.models, servers));
  if (!flags.backends.empty()) {
    RETURN_IF_ERROR(CheckCount("--backend", flags.backends, servers));
  }
  run->model = flags.models[0];
  return absl::OkStatus();
}

absl::StatusOr<LlmPlan> ParseLlmFlags(const LlmFlags& flags, RunPlan* run) {
  LlmPlan plan;
  std::vector<std::string> addresses = {run->load.address};
  if (!run->second_server.empty()) addresses.push_back(run->second_server);
  const std::vector<std::string> backends =
      flags.backends.empty() ? std::vector<std::string>{kGrpcBackend} : flags.backends;
  bool any_openai = false;
  for (size_t i = 0; i < addresses.size(); ++i) {
    ASSIGN_OR_RETURN(Protocol protocol, ParseProtocol(Of(backends, i)));
    any_openai = any_openai || protocol == Protocol::kOpenAi;
    plan.servers.push_back({protocol, addresses[i], Of(flags.models, i)});
  }
  if (any_openai) {
    RETURN_IF_ERROR(LimitToThreads(run));
  }
  if (!(flags.temperature >= 0 && flags.temperature <= 2)) {
    return Bad("--temperature", absl::StrCat(flags.temperature), "must be 0 to 2");
  }
  RETURN_IF_ERROR(ParseLengths(flags, &plan.prompts));
  plan.prompts.chat = flags.chat;
  if (flags.vocabulary.has_value()) {
    if (*flags.vocabulary < 1) {
      return Bad("--vocabulary", absl::StrCat(*flags.vocabulary), "must be a number of tokens");
    }
    plan.prompts.vocabulary = *flags.vocabulary;
  }
  if (flags.max_model_len.has_value()) {
    if (*flags.max_model_len < 2) {
      return Bad("--max_model_len", absl::StrCat(*flags.max_model_len),
                 "must be at least 2, a token of the prompt and one that follows");
    }
    plan.prompts.max_model_len = *flags.max_model_len;
  }
  if (flags.chat && plan.prompts.texts.empty()) {
    return absl::InvalidArgumentError("--chat: a message is text; give texts with --prompts FILE");
  }
  return plan;
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
