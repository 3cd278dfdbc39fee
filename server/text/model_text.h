// A language model's text: its tokenizer and its chat template, from the files of its checkpoint.
//
//   ASSIGN_OR_RETURN(ModelText text, ReadModelText({{"tokenizer.json", bytes}, ...}));
#ifndef ATHANOR_SERVER_TEXT_MODEL_TEXT_H_
#define ATHANOR_SERVER_TEXT_MODEL_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "server/text/chat_template.h"
#include "server/text/tokens/tokenizer.h"

namespace athanor {

struct TextFile {
  std::string path;        // relative to the checkpoint's folder
  std::string_view bytes;  // of a GGUF file at least its head
};

// Immutable once read.
struct ModelText {
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the files have none, and prompts are tokens
  std::optional<ChatTemplate> chat;
  absl::Status no_chat;                   // why there is no chat, if there is none
  std::optional<ChatTemplate> tool_chat;  // takes the place of `chat` where a chat gives tools
  absl::Status no_tool_chat;              // why there is none though the files have one
  nlohmann::ordered_json variables;  // the model's, for the template: bos_token, eos_token, ...
};

// Reads a folder's tokenizer.json, else tokenizer.model, else tekken.json, else a *.tiktoken (with
// config.json's model_type), else BERT's vocab.txt (if tokenizer_class or model_type says BERT);
// tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.jinja, as far
// as they are there; or the vocabulary and the template of one *.gguf file. INVALID_ARGUMENT and
// UNIMPLEMENTED name the file and what is wrong with the tokenizer; a template that is wrong is
// `no_chat`.
absl::StatusOr<ModelText> ReadModelText(absl::Span<const TextFile> files);

// Returns the parts of the prompt that the model's template makes of a request's variables:
// `messages`, and what else the user gives. A model that lists a template named tool_use has it
// where `tools` is not null. `add_generation_prompt` is true unless given.
// `continue_final_message`: true ends the prompt where the last message does; no template sees that
// variable. FAILED_PRECONDITION: there is no chat; INVALID_ARGUMENT: no messages, or as Render.
absl::StatusOr<std::vector<Part>> RenderChat(const ModelText& text, nlohmann::ordered_json request);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_MODEL_TEXT_H_
