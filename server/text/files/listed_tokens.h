// What the files beside a vocabulary say of its tokens.
//
//   NameByDefault(config, {{"bos_token", "<s>"}}, data, &variables);
//   RETURN_IF_ERROR(AddListedTokens(config, added, variables, &data));
//   RETURN_IF_ERROR(SetListedEnds(config, variables, &data));
#ifndef ATHANOR_SERVER_TEXT_FILES_LISTED_TOKENS_H_
#define ATHANOR_SERVER_TEXT_FILES_LISTED_TOKENS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// `config` is the object of tokenizer_config.json, `variables` are the tokens that it names
// (bos_token, ...), as a template sees them.

struct DefaultName {
  const char *name, *content;
};

// Sets the variables that the configuration does not name and whose tokens the vocabulary has.
void NameByDefault(const nlohmann::json& config, absl::Span<const DefaultName> names,
                   const TokenizerData& data, nlohmann::ordered_json* variables);

// Adds the tokens of the configuration's added_tokens_decoder, or else of `added`, the object of
// added_tokens.json, where the vocabulary has not added them itself; then named ones that are in
// the vocabulary only. Returns INVALID_ARGUMENT with the file and the token that is wrong.
absl::Status AddListedTokens(const nlohmann::json& config, const nlohmann::json& added,
                             const nlohmann::ordered_json& variables, TokenizerData* data);

// Puts tokens around a prompt as the configuration says (add_bos_token, add_eos_token); a
// tokenizer.json says so itself.
absl::Status SetListedEnds(const nlohmann::json& config, const nlohmann::ordered_json& variables,
                           TokenizerData* data);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_LISTED_TOKENS_H_
