// Ways of models to split text into words, where a file has only their vocabulary.
//
//   const PreRow* row = FindPreRow("llama-bpe");   // null: not supported
#ifndef ATHANOR_SERVER_TEXT_FILES_PRE_ROWS_H_
#define ATHANOR_SERVER_TEXT_FILES_PRE_ROWS_H_

#include <string>
#include <string_view>
#include <vector>

namespace athanor {

// Says what a name in tokenizer.ggml.pre stands for: how the tokenizers of such models treat text,
// for the file has only their vocabulary. What each expression matches and what lies between
// becomes words, one expression behind the other. Where a model's own tokenizer.json normalises
// text, so do we; llama.cpp (llama-vocab.cpp), whose names these are, does not.
struct PreRow {
  std::string_view name;
  std::vector<std::string> patterns;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
  bool spaces = false;   // pieces are text whose spaces are U+2581; <0x00> and so on are bytes
};

const std::vector<PreRow>& PreRows();
const PreRow* FindPreRow(std::string_view name);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_FILES_PRE_ROWS_H_
