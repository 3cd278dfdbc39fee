#include "server/calls/prompt.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/calls/chat_prompt.h"
#include "server/calls/sampling_message.h"
#include "server/generate/sample/stop_watcher.h"

namespace athanor {
namespace {

absl::Span<const int32_t> SpanOf(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.data(), static_cast<size_t>(ids.size())};
}

// Refuses what the engine would, ahead of all that a prompt costs until it gets there.
absl::Status CheckLength(absl::string_view what, int64_t tokens, const LanguageModel& model) {
  const int64_t length = model.engine->options().scheduler.max_model_len;
  if (tokens < length) return absl::OkStatus();
  return Invalid(std::string(what), " has ", tokens, " tokens, and the model takes at most ",
                 length - 1, ": --max_model_len is ", length,
                 ", of which one is left for the answer");
}

absl::Status CheckPrompt(const v1::GenerateRequest& request, const LanguageModel& model) {
  if (request.add_special() && !request.has_text()) {
    return Invalid("add_special is set, and is about the prompt `text`, which is not");
  }
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      RETURN_IF_ERROR(CheckHasTokenizer(model));
      if (request.text().empty()) return Invalid("text is empty; a prompt has at least one token");
      return CheckTextBytes("text", static_cast<int64_t>(request.text().size()), model);
    case v1::GenerateRequest::kTokens:
      if (request.tokens().ids().empty()) {
        return Invalid("tokens.ids is empty; a prompt has at least one token");
      }
      RETURN_IF_ERROR(CheckLength("tokens.ids", request.tokens().ids_size(), model));
      return CheckIds("tokens.ids", SpanOf(request.tokens().ids()), model);
    case v1::GenerateRequest::kChat:
      RETURN_IF_ERROR(CheckHasTokenizer(model));
      return CheckChat(request.chat(), model);
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return Invalid("the request has no prompt; set text, tokens or chat");
}

absl::Status CheckNumbers(const v1::GenerateRequest& request) {
  if (request.has_max_tokens() && request.max_tokens() < 1) {
    return Invalid("max_tokens is ", request.max_tokens(), "; it has to be at least 1");
  }
  if (request.min_tokens() < 0) {
    return Invalid("min_tokens is ", request.min_tokens(), "; it has to be at least 0");
  }
  if (request.timeout_us() < 0) {
    return Invalid("timeout_us is ", request.timeout_us(), "; it has to be at least 0, for none");
  }
  if (static_cast<int64_t>(request.cache_salt().size()) > kMostSaltBytes) {
    return Invalid("cache_salt has ", request.cache_salt().size(), " bytes; it may have ",
                   kMostSaltBytes);
  }
  if (request.priority() < 0) {
    return Invalid("priority is ", request.priority(), "; it has to be at least 1, or 0 for 100");
  }
  return absl::OkStatus();
}

absl::Status CheckStops(const v1::GenerateRequest& request, const LanguageModel& model) {
  const std::vector<std::string> stops(request.stop().begin(), request.stop().end());
  RETURN_IF_ERROR(Prefixed("stop: ", StopWatcher::Check(stops)));
  if (!stops.empty() && model.text.tokenizer == nullptr) {
    return absl::FailedPreconditionError(
        "stop has texts, and the model has no tokenizer, so that its tokens have no text; use "
        "stop_tokens");
  }
  if (request.stop_tokens_size() > kMostStopTokens) {
    return Invalid("stop_tokens has ", request.stop_tokens_size(), " tokens; it may have ",
                   kMostStopTokens);
  }
  return CheckIds("stop_tokens", SpanOf(request.stop_tokens()), model);
}

// Returns the time at which `timeout_us` is over.
SequenceTime EndOf(SequenceTime arrived, int64_t timeout_us) {
  if (timeout_us == 0) return SequenceTime::max();
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;  // more would overflow the clock
  return arrived + std::chrono::microseconds(std::min(timeout_us, kYear));
}

}  // namespace

absl::Status CheckHasTokenizer(const LanguageModel& model) {
  if (model.text.tokenizer != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the model has no tokenizer: its checkpoint came without one. Send tokens");
}

absl::Status CheckTextBytes(absl::string_view field, int64_t bytes, const LanguageModel& model) {
  const int64_t length = model.engine->options().scheduler.max_model_len;
  if (bytes <= length * kMostTokenBytes) return absl::OkStatus();
  return Invalid(std::string(field), " has ", bytes, " bytes, and the model takes at most ", length,
                 " tokens (--max_model_len) of ", kMostTokenBytes, " bytes on average");
}

absl::Status CheckIds(absl::string_view field, absl::Span<const int32_t> ids,
                      const LanguageModel& model) {
  const int64_t vocabulary = model.engine->options().vocabulary;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return Invalid(std::string(field), "[", i, "] is ", ids[i], "; the model's tokens are 0 to ",
                   vocabulary - 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateInput> ReadSettings(const v1::GenerateRequest& request,
                                           const LanguageModel& model, SequenceTime arrived) {
  RETURN_IF_ERROR(CheckPrompt(request, model));
  RETURN_IF_ERROR(CheckNumbers(request));
  RETURN_IF_ERROR(CheckStops(request, model));
  GenerateInput input;
  ASSIGN_OR_RETURN(input.sampling, ReadSampling(request.sampling(), model.sampling,
                                                model.engine->options().vocabulary));
  SequenceRequest& sequence = input.sequence;
  if (request.has_max_tokens()) sequence.max_tokens = request.max_tokens();
  sequence.min_tokens = request.min_tokens();
  if (sequence.min_tokens > sequence.max_tokens) {
    return Invalid("min_tokens is ", sequence.min_tokens, ", more than max_tokens, ",
                   sequence.max_tokens);
  }
  if (!request.ignore_eos()) sequence.stop_tokens = model.end_tokens;
  sequence.stop_tokens.insert(sequence.stop_tokens.end(), request.stop_tokens().begin(),
                              request.stop_tokens().end());
  sequence.deadline = EndOf(arrived, request.timeout_us());
  if (request.priority() != 0) sequence.priority = request.priority();
  input.stop.assign(request.stop().begin(), request.stop().end());
  input.special_in_text = request.special_in_text();
  input.cache_salt = request.cache_salt();
  input.continues = !request.has_chat() || request.chat().continue_last();
  return input;
}

absl::StatusOr<std::vector<int32_t>> ChatTokens(const std::vector<Part>& parts,
                                                const LanguageModel& model) {
  int64_t bytes = 0;
  for (const Part& part : parts) bytes += static_cast<int64_t>(part.text.size());
  RETURN_IF_ERROR(CheckTextBytes("what the template makes of chat", bytes, model));
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(Prefixed("chat: ", model.text.tokenizer->Encode(parts, false, &ids)));
  return ids;
}

bool TakesLong(const v1::GenerateRequest& request, int64_t choices) {
  const int64_t size = static_cast<int64_t>(request.text().size()) + request.tokens().ids_size();
  return request.has_chat() || size * choices >= kLongText;
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::GenerateRequest& request,
                                                  const LanguageModel& model) {
  if (request.has_tokens()) {
    return std::vector<int32_t>(request.tokens().ids().begin(), request.tokens().ids().end());
  }
  std::vector<int32_t> ids;
  if (request.has_chat()) {
    ASSIGN_OR_RETURN(const std::vector<Part> parts, PromptOf(request.chat(), model.text));
    ASSIGN_OR_RETURN(ids, ChatTokens(parts, model));
  } else {
    const Part part{request.text(), request.add_special()};
    RETURN_IF_ERROR(Prefixed("text: ", model.text.tokenizer->Encode({part}, true, &ids)));
  }
  RETURN_IF_ERROR(CheckLength("the prompt", static_cast<int64_t>(ids.size()), model));
  // A tokenizer may know more tokens than the model has rows for.
  RETURN_IF_ERROR(CheckIds("the prompt's tokens", ids, model));
  if (ids.empty()) return Invalid("the prompt has no tokens: the tokenizer makes none of it");
  return ids;
}

}  // namespace athanor
