// Reads vocabularies of ranks, whose merges are all ways to make a token of two, the lowest rank
// first: tiktoken's lists and Mistral's tekken.json.
//
//   ASSIGN_OR_RETURN(TokenizerData data, ReadRanks(bytes, "qwen2", /*special=*/true));
//   ASSIGN_OR_RETURN(TokenizerData data, ReadTekken(json));
#ifndef ATHANOR_SERVER_TEXT_FILES_RANKS_H_
#define ATHANOR_SERVER_TEXT_FILES_RANKS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Reports whether the first line is a token in base64 and its rank.
bool IsRanks(std::string_view bytes);

// Reads lines of a token in base64, a space and its rank, which is its id. The list does not say
// how text is split: `model_type`, that of config.json, does. `special`: adds the special tokens
// that such models have, for files beside it name none. Returns INVALID_ARGUMENT if it is no such
// list, UNIMPLEMENTED for another model_type.
absl::StatusOr<TokenizerData> ReadRanks(std::string_view bytes, std::string_view model_type,
                                        bool special);

// Reads tekken.json: ids are ranks behind those of special tokens. `begin` is <s>. Returns as
// ReadTokenizerJson.
absl::StatusOr<TokenizerData> ReadTekken(std::string_view json);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_RANKS_H_
