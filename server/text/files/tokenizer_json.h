// Reads tokenizer.json, the format of HF's tokenizers library.
//
//   ASSIGN_OR_RETURN(TokenizerData data, ReadTokenizerJson(json, config));
#ifndef ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_H_
#define ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// `config` is tokenizer_config.json, or empty: of it `add_bos_token` and `add_eos_token` count, for
// the classes that let them replace the post-processor, and what BERT's classes let replace the
// normalizer. `truncation` and `padding` are ignored: no text is cut, none is filled up.
// Returns INVALID_ARGUMENT if a text is no such file, UNIMPLEMENTED with the name of a type or
// option that is not supported, RESOURCE_EXHAUSTED for a file that is too large or deep.
absl::StatusOr<TokenizerData> ReadTokenizerJson(std::string_view json, std::string_view config);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_TOKENIZER_JSON_H_
