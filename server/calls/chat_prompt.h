// Makes the prompt of a chat: its messages and variables through the model's template.
//
//   RETURN_IF_ERROR(CheckChat(chat, model));
//   ASSIGN_OR_RETURN(std::vector<Part> parts, PromptOf(chat, model.text));
#ifndef ATHANOR_SERVER_CALLS_CHAT_PROMPT_H_
#define ATHANOR_SERVER_CALLS_CHAT_PROMPT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/generate/language_model.h"
#include "server/text/base/part.h"

namespace athanor {

// Most bytes of `variables_json`, and how deep its values may be inside each other.
inline constexpr int64_t kMostVariableBytes = int64_t{128} << 10;
inline constexpr int kMostVariableDepth = 64;

// Refuses, at little cost, what no template can make a prompt of: FAILED_PRECONDITION if the model
// has no chat, and why; INVALID_ARGUMENT names the field.
absl::Status CheckChat(const v1::Chat& chat, const LanguageModel& model);

// Runs the template, which may take long. A chat that goes on with its last message ends behind the
// message's text. REQUIRES: CheckChat is OK.
absl::StatusOr<std::vector<Part>> PromptOf(const v1::Chat& chat, const ModelText& text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_CHAT_PROMPT_H_
