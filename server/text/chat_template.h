// A model's chat template: messages to the text of a prompt.
//
//   ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Parse(source));
//   ASSIGN_OR_RETURN(const std::vector<Part> parts,
//                    chat.Render({.request = {{"messages", messages}, {"tools", nullptr},
//                                             {"add_generation_prompt", true}},
//                                 .model = {{"bos_token", "<s>"}, {"eos_token", "</s>"}},
//                                 .now = absl::ToCivilSecond(absl::Now(), zone)}));
//
// It is Jinja as transformers runs it: jinja2 3.1's immutable sandbox with trim_blocks,
// lstrip_blocks, loop controls, raise_exception, strftime_now, its own tojson, and "generation".
// Texts by concatenation of the parts are equal to its. Parts differ in trust by turns: trusted is
// what the template or the model's own variables say, and a known role's name; all else that came
// with the request is not, whatever filters it went through.
//
// Parse refuses by line: UNIMPLEMENTED what we lack, INVALID_ARGUMENT what is no template. Render
// fails with INVALID_ARGUMENT where the template raises an exception or an operation has no
// meaning, RESOURCE_EXHAUSTED at a limit, UNIMPLEMENTED where a value needs what we lack (an
// integer beyond 64 bits, a function as text).
//
// Immutable, so thread-safe. A render takes at most about `depth` KiB of stack.
#ifndef ATHANOR_SERVER_TEXT_CHAT_TEMPLATE_H_
#define ATHANOR_SERVER_TEXT_CHAT_TEMPLATE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "nlohmann/json.hpp"
#include "server/text/base/part.h"
#include "server/text/jinja/tree.h"

namespace athanor {

// Variables of a template. Objects keep the order of their keys, as tojson prints it.
struct ChatInput {
  nlohmann::ordered_json request = nlohmann::ordered_json::object();  // from the user
  nlohmann::ordered_json model = nlohmann::ordered_json::object();    // from the model's files
  absl::CivilSecond now;
};

class ChatTemplate {
 public:
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source);

  // A variable of both is the request's.
  absl::StatusOr<std::vector<Part>> Render(const ChatInput& input,
                                           const RenderLimits& limits = {}) const;

 private:
  explicit ChatTemplate(jinja::Statement::Pointer root) : root_(std::move(root)) {}

  std::shared_ptr<const jinja::Statement> root_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_CHAT_TEMPLATE_H_
