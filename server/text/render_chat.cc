// Follows apply_chat_template and render_jinja_template of transformers 5.23.
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/characters.h"
#include "server/text/model_text.h"

namespace athanor {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A variable of the request that says how to render, not a template's.
absl::StatusOr<bool> TakeContinue(OrderedJson* request) {
  constexpr char kName[] = "continue_final_message";
  const auto found = request->find(kName);
  if (found == request->end()) return false;
  if (!found->is_boolean()) return Invalid(kName, " is neither true nor false");
  const bool value = found->get<bool>();
  request->erase(found);
  return value;
}

absl::Status CheckMessages(OrderedJson* request) {
  const auto messages = request->find("messages");
  if (messages == request->end() || !messages->is_array() || messages->empty()) {
    return Invalid("messages is no list with at least one message");
  }
  for (OrderedJson& message : *messages) {
    if (!message.is_object()) return Invalid("messages has an entry that is no object");
    for (auto field = message.begin(); field != message.end();) {  // templates print null as None
      field = field->is_null() ? message.erase(field) : std::next(field);
    }
  }
  return absl::OkStatus();
}

// Marks where the last message ends, as transformers does.
constexpr char kTag[] = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr size_t kTagBytes = sizeof(kTag) - 2;  // without its space, which a template may take

absl::Status AddTag(OrderedJson* message) {
  const auto content = message->find("content");
  OrderedJson* said = content == message->end() ? nullptr : &*content;
  if (said != nullptr && said->is_array()) {  // the last of its texts
    OrderedJson* last = nullptr;
    for (OrderedJson& block : *said) {
      if (block.is_object() && block.contains("text")) last = &block["text"];
    }
    said = last;
  }
  if (said == nullptr || !said->is_string()) {
    return Invalid("the last message has no text that the model could go on with");
  }
  said->get_ref<std::string&>() += kTag;
  return absl::OkStatus();
}

// Leaves out the tag and what follows it; if the template strips messages, also the white space
// ahead of it.
absl::Status CutAtTag(std::vector<Part>* parts) {
  std::string text;
  for (const Part& part : *parts) text += part.text;
  const absl::string_view tag(kTag, kTagBytes);
  size_t end = jinja::FindLast(text, tag);
  if (end == absl::string_view::npos) {
    return Invalid("the template leaves out the last message, so the model cannot go on with it");
  }
  const bool kept = end + kTagBytes < text.size() && text[end + kTagBytes] == kTag[kTagBytes];
  if (!kept) end = jinja::Strip(absl::string_view(text).substr(0, end), false, true).end;
  size_t begin = 0;
  for (size_t i = 0; i < parts->size(); ++i) {
    Part& part = (*parts)[i];
    if (begin + part.text.size() > end) {
      part.text.resize(end - begin);
      parts->resize(part.text.empty() ? i : i + 1);
      break;
    }
    begin += part.text.size();
  }
  return absl::OkStatus();
}

// Chooses among templates as transformers does: that for tools where there are some.
absl::StatusOr<const ChatTemplate*> ChooseTemplate(const ModelText& text,
                                                   const OrderedJson& request) {
  const auto tools = request.find("tools");
  const bool has_tools = tools != request.end() && !tools->is_null();
  const bool for_tools = has_tools && (text.tool_chat.has_value() || !text.no_tool_chat.ok());
  const std::optional<ChatTemplate>& chat = for_tools ? text.tool_chat : text.chat;
  if (chat.has_value()) return &*chat;
  const absl::Status& why = for_tools ? text.no_tool_chat : text.no_chat;
  return absl::FailedPreconditionError(Cat("the model has no chat: ", std::string(why.message())));
}

}  // namespace

absl::StatusOr<std::vector<Part>> RenderChat(const ModelText& text, OrderedJson request) {
  if (!request.is_object()) return Invalid("a chat's variables are no JSON object");
  ASSIGN_OR_RETURN(const ChatTemplate* chat, ChooseTemplate(text, request));
  RETURN_IF_ERROR(CheckMessages(&request));
  ASSIGN_OR_RETURN(const bool continues, TakeContinue(&request));
  for (const char* name : {"tools", "documents"}) request.emplace(name, nullptr);
  request.emplace("add_generation_prompt", !continues);
  if (continues) {
    if (request["add_generation_prompt"] != false) {
      return Invalid(
          "add_generation_prompt begins another message; continue_final_message goes on "
          "with the last one: ask for one of them");
    }
    RETURN_IF_ERROR(AddTag(&request["messages"].back()));
  }
  ASSIGN_OR_RETURN(std::vector<Part> parts,
                   chat->Render({.request = std::move(request),
                                 .model = text.variables,
                                 .now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone())}));
  if (continues) RETURN_IF_ERROR(CutAtTag(&parts));
  return parts;
}

}  // namespace athanor
