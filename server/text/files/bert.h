// BERT's tokenizer: what it does to a text, and its list of pieces, vocab.txt.
//
//   ASSIGN_OR_RETURN(TokenizerData data, ReadWordList(bytes, tokenizer_config));
#ifndef ATHANOR_SERVER_TEXT_FILES_BERT_H_
#define ATHANOR_SERVER_TEXT_FILES_BERT_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// The options of BertNormalizer. Accents go with the case unless a file says otherwise.
struct BertRules {
  bool clean = true, han = true, lowercase = true, strip_accents = true;
};

void AddBertNormalizer(const BertRules& rules, TokenizerData* data);

// Makes words, pieces and text of BERT's, with `rules` ahead of them.
void SetBert(const BertRules& rules, TokenizerData* data);

// Reports whether a class of transformers has BERT's tokenizer, or a model_type has such a class.
bool IsBertTokenizer(std::string_view tokenizer_class);
bool IsBertModel(std::string_view model_type);

// Writes what tokenizer_config.json says of BERT's normalizer into that of a tokenizer.json, as
// BERT's classes of transformers do. Returns INVALID_ARGUMENT if it is neither true nor false.
absl::Status OverrideBertNormalizer(const nlohmann::json& config, nlohmann::json* normalizer);

// Reads vocab.txt: a piece a line; its id is the line's number, from 0. Of equal pieces the last
// counts; an empty line is no token. `config` is the object of tokenizer_config.json:
// do_lower_case, strip_accents, tokenize_chinese_chars, and the names of tokens. Returns
// INVALID_ARGUMENT or UNIMPLEMENTED with the line or the option that is wrong.
absl::StatusOr<TokenizerData> ReadWordList(std::string_view bytes, const nlohmann::json& config);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_BERT_H_
