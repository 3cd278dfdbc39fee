#include "server/openai/request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/openai/fields.h"

namespace athanor {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;  // of completions, as OpenAI's
// Chats go on to the end of the model's context.
constexpr int64_t kNoMaxTokens = std::numeric_limits<int32_t>::max();

// Most memory of what is not the prompt: each prompt has a copy. More than all that Generation
// takes.
constexpr int64_t kMostSettingsBytes = int64_t{128} << 10;

absl::Status SetMaxTokens(FieldValues* values) {
  const bool chats = values->request.endpoint == Endpoint::kChats;
  if (const auto most = values->max_completion_tokens; most.has_value()) {
    if (values->settings.has_max_tokens() && values->settings.max_tokens() != *most) {
      return Invalid("max_tokens is ", values->settings.max_tokens(),
                     ", and max_completion_tokens, which has the same meaning, is ", *most,
                     "; set one of them");
    }
    values->settings.set_max_tokens(*most);
  }
  if (!values->settings.has_max_tokens()) {
    values->settings.set_max_tokens(chats ? kNoMaxTokens : kDefaultMaxTokens);
  }
  return absl::OkStatus();
}

// Checks fields against each other.
absl::Status CheckTogether(FieldValues* values) {
  OpenAiRequest& request = values->request;
  if (values->has_stream_options && !request.stream) {
    return Invalid("stream_options is set, and stream is not true; leave it out");
  }
  if (values->best_of.has_value() && *values->best_of != request.n) {
    return Unimplemented("best_of is ", *values->best_of, ", and n is ", request.n,
                         "; answers are not ranked, so leave it out");
  }
  if (request.echo && request.logprobs) {
    return Unimplemented(
        "echo with logprobs is not supported: there are none of a prompt's tokens; leave one out");
  }
  if (values->top_logprobs.has_value() && !request.logprobs) {
    return Invalid("top_logprobs is set, and logprobs is not true; set both");
  }
  if (request.endpoint == Endpoint::kChats && request.logprobs) {
    values->settings.mutable_sampling()->set_logprobs(
        static_cast<int32_t>(values->top_logprobs.value_or(0)));
  }
  if (static_cast<int64_t>(values->settings.SpaceUsedLong()) > kMostSettingsBytes) {
    return Invalid("stop, stop_token_ids, logit_bias and cache_salt take more than ",
                   kMostSettingsBytes, " bytes together");
  }
  return SetMaxTokens(values);
}

// Reads a list of tokens into `request`.
absl::Status ReadTokens(const std::string& path, const Json& list, v1::GenerateRequest* request) {
  v1::Tokens* tokens = request->mutable_tokens();
  tokens->mutable_ids()->Reserve(static_cast<int>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    int64_t token = 0;
    RETURN_IF_ERROR(ReadInt(absl::StrCat(path, "[", i, "]"), list[i], 0,
                            std::numeric_limits<int32_t>::max(), &token));
    tokens->add_ids(static_cast<int32_t>(token));
  }
  return absl::OkStatus();
}

absl::Status ReadPrompt(const std::string& path, Json& prompt, v1::GenerateRequest* request) {
  if (prompt.is_array()) return ReadTokens(path, prompt, request);
  if (!prompt.is_string()) {
    return WrongType(path, prompt, "a text, a list of tokens, or a list of these");
  }
  return ReadText(path, prompt, request->mutable_text());
}

// Reads a prompt or a list of them: texts and tokens.
absl::Status ReadPrompts(FieldValues* values) {
  Json& prompt = values->prompt;
  if (prompt.is_null()) return Invalid("prompt is missing");
  const bool many = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  const size_t count = many ? prompt.size() : 1;
  if (static_cast<int64_t>(count) * values->request.n > kMostChoices) {
    return Invalid("prompt has ", count, " prompts, and n is ", values->request.n, "; there are ",
                   kMostChoices, " choices at most");
  }
  for (size_t i = 0; i < count; ++i) {
    v1::GenerateRequest& request = values->request.generate.emplace_back(values->settings);
    RETURN_IF_ERROR(many ? ReadPrompt(absl::StrCat("prompt[", i, "]"), prompt[i], &request)
                         : ReadPrompt("prompt", prompt, &request));
  }
  return absl::OkStatus();
}

// Reads a text, or the texts of a list of parts, one a line.
absl::Status ReadContent(const std::string& path, Json& content, std::string* text) {
  if (content.is_string()) return ReadText(path, content, text);
  if (!content.is_array()) return WrongType(path, content, "a text or a list of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string inner = absl::StrCat(path, "[", i, "]");
    Json& part = content[i];
    if (!part.is_object()) return WrongType(inner, part, "a part: {\"type\": \"text\", ...}");
    if (const auto type = part.find("type"); type == part.end() || *type != "text") {
      return Unimplemented(inner, ".type is not \"text\"; no other parts are supported");
    }
    if (i > 0) *text += "\n";
    for (auto& [name, value] : part.items()) {
      if (name == "type") continue;
      if (name != "text") return UnknownField(absl::StrCat(inner, ".", name));
      if (!value.is_string()) return WrongType(absl::StrCat(inner, ".text"), value, "a text");
      *text += value.get_ref<const std::string&>();
    }
    if (!part.contains("text")) return Invalid(inner, ".text is missing");
  }
  return absl::OkStatus();
}

absl::Status ReadRole(const std::string& path, Json& value, std::string* role) {
  RETURN_IF_ERROR(ReadText(path, value, role));
  if (*role == "developer") *role = "system";
  if (*role == "system" || *role == "user" || *role == "assistant") return absl::OkStatus();
  if (*role == "tool" || *role == "function") {
    return Unimplemented(path, " is ", Quoted(*role), "; tools are not supported");
  }
  return Invalid(path, " is ", Quoted(*role),
                 "; it has to be \"system\", \"developer\", \"user\" or \"assistant\"");
}

absl::Status ReadMessage(const std::string& path, Json& message, v1::ChatMessage* read) {
  if (!message.is_object()) return WrongType(path, message, "an object");
  bool has_content = false;
  for (auto& [name, value] : message.items()) {
    const std::string inner = absl::StrCat(path, ".", name);
    if (name == "name" || value.is_null()) continue;
    if (name == "role") {
      RETURN_IF_ERROR(ReadRole(inner, value, read->mutable_role()));
    } else if (name == "content") {
      has_content = true;
      RETURN_IF_ERROR(ReadContent(inner, value, read->mutable_content()));
    } else if (name == "tool_calls" || name == "tool_call_id" || name == "function_call" ||
               name == "refusal" || name == "audio" || name == "annotations") {
      // A message that an SDK has read and sends back has them empty.
      if (value.is_structured() && value.empty()) continue;
      return Unimplemented(inner, " is not supported; leave it out");
    } else {
      return UnknownField(inner);
    }
  }
  if (read->role().empty()) return Invalid(path, ".role is missing");
  if (!has_content) return Invalid(path, ".content is missing");
  return absl::OkStatus();
}

absl::Status ReadChat(FieldValues* values) {
  Json& messages = values->messages;
  if (messages.is_null()) return Invalid("messages is missing");
  if (messages.empty()) return Invalid("messages is empty; a chat has at least one");
  v1::GenerateRequest& request = values->request.generate.emplace_back(values->settings);
  v1::Chat* chat = request.mutable_chat();
  for (size_t i = 0; i < messages.size(); ++i) {
    RETURN_IF_ERROR(
        ReadMessage(absl::StrCat("messages[", i, "]"), messages[i], chat->add_messages()));
  }
  if (!values->template_variables.is_null()) {
    chat->set_variables_json(values->template_variables.dump());
  }
  chat->set_continue_last(values->continues_last);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenAiRequest> ReadRequest(Endpoint endpoint, Json body) {
  FieldValues values;
  RETURN_IF_ERROR(ReadFields(endpoint, body, &values));
  RETURN_IF_ERROR(CheckTogether(&values));
  if (endpoint == Endpoint::kChats) {
    RETURN_IF_ERROR(ReadChat(&values));
  } else {
    RETURN_IF_ERROR(ReadPrompts(&values));
  }
  return std::move(values.request);
}

}  // namespace athanor
