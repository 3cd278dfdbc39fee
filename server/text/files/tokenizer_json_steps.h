// The steps of a tokenizer.json: each type that is known becomes steps of TokenizerData, others are
// refused by name.
#ifndef ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_STEPS_H_
#define ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_STEPS_H_

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// GPT-2's words, which ByteLevel splits at.
inline constexpr char kGpt2Words[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Add what `json` says to `data`; `path` says where in the file it is. Return INVALID_ARGUMENT or
// UNIMPLEMENTED as ReadTokenizerJson does.
absl::Status ReadNormalizer(const nlohmann::json& json, const std::string& path,
                            TokenizerData* data);
absl::Status ReadPreTokenizer(const nlohmann::json& json, const std::string& path,
                              TokenizerData* data);
absl::Status ReadPostProcessor(const nlohmann::json& json, const std::string& path,
                               TokenizerData* data);
absl::Status ReadDecoder(const nlohmann::json& json, const std::string& path, TokenizerData* data);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_STEPS_H_
