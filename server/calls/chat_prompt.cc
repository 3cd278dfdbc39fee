#include "server/calls/chat_prompt.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/calls/prompt.h"

namespace athanor {
namespace {

using Json = nlohmann::ordered_json;

std::string FieldOf(int message, absl::string_view field) {
  return absl::StrCat("chat.messages[", message, "].", field);
}

absl::Status CheckLast(const v1::Chat& chat) {
  const int last = chat.messages_size() - 1;
  const v1::ChatMessage& message = chat.messages(last);
  if (message.role() != "assistant") {
    return Invalid(FieldOf(last, "role"), " is ", Quoted(message.role()),
                   "; with chat.continue_last the last message is the assistant's");
  }
  if (absl::StripAsciiWhitespace(message.content()).empty()) {
    return Invalid(FieldOf(last, "content"),
                   " is empty, and chat.continue_last goes on with it; leave that message and "
                   "continue_last out");
  }
  return absl::OkStatus();
}

// Returns the variables of the request besides the messages.
absl::StatusOr<Json> ReadVariables(const std::string& text) {
  if (text.empty()) return Json::object();
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostVariableDepth;
    return !too_deep;
  };
  Json variables = Json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return Invalid("chat.variables_json has values inside each other deeper than ",
                   kMostVariableDepth);
  }
  if (!variables.is_object()) {
    return Invalid("chat.variables_json is no JSON object, as {\"enable_thinking\": false} is one");
  }
  if (variables.contains("messages")) {
    return Invalid("chat.variables_json names \"messages\"; these are chat.messages");
  }
  if (variables.contains("continue_final_message")) {
    return Invalid(
        "chat.variables_json names \"continue_final_message\"; set chat.continue_last instead");
  }
  return variables;
}

}  // namespace

absl::Status CheckChat(const v1::Chat& chat, const LanguageModel& model) {
  if (!model.text.chat.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model has no chat, send text or tokens: ", model.text.no_chat.message()));
  }
  if (chat.messages_size() == 0) return Invalid("chat.messages is empty; a chat has at least one");
  const int64_t most = model.engine->options().scheduler.max_model_len;
  if (chat.messages_size() > most) {
    return Invalid("chat has ", chat.messages_size(), " messages, and the model takes at most ",
                   most, " tokens (--max_model_len)");
  }
  auto bytes = static_cast<int64_t>(chat.variables_json().size());
  if (bytes > kMostVariableBytes) {
    return Invalid("chat.variables_json has ", bytes, " bytes; it may have ", kMostVariableBytes);
  }
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    if (message.role().empty()) {
      return Invalid(FieldOf(i, "role"),
                     " is empty; it is \"system\", \"user\", \"assistant\", or another that the "
                     "model's template knows");
    }
    bytes += static_cast<int64_t>(message.role().size() + message.content().size());
  }
  RETURN_IF_ERROR(CheckTextBytes("chat", bytes, model));
  return chat.continue_last() ? CheckLast(chat) : absl::OkStatus();
}

absl::StatusOr<std::vector<Part>> PromptOf(const v1::Chat& chat, const ModelText& text) {
  ASSIGN_OR_RETURN(Json request, ReadVariables(chat.variables_json()));
  Json& messages = request["messages"] = Json::array();
  for (const v1::ChatMessage& message : chat.messages()) {
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  if (chat.continue_last()) request["continue_final_message"] = true;
  auto parts = RenderChat(text, std::move(request));
  if (!parts.ok()) return Prefixed("chat: ", parts.status());
  return parts;
}

}  // namespace athanor
