// WordPiece's tokens of one word: the longest piece that the word begins with, then the longest
// continuing piece that the rest begins with, and so on. Source: M. Schuster and K. Nakajima,
// Japanese and Korean Voice Search, 2012; as BERT's tokenizer does it.
//
//   WordPiece wordpiece = WordPiece::Create(data).value();
//   wordpiece.Encode("hugging", &ids);   // "hug", "##ging"
#ifndef ATHANOR_SERVER_TEXT_TOKENS_WORDPIECE_H_
#define ATHANOR_SERVER_TEXT_TOKENS_WORDPIECE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/tokens/piece_trie.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe.
class WordPiece {
 public:
  // Returns INVALID_ARGUMENT if `data` has no unknown token or a piece is longer than 4,096 bytes,
  // which bounds the work at each character of a word.
  static absl::StatusOr<WordPiece> Create(const TokenizerData& data);

  // Appends the tokens of `word`, which is UTF-8. A word that has too many characters, or a rest
  // that begins with no piece, is the unknown token as a whole.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  bool IsTooLong(std::string_view word) const;

  PieceTrie first_, continuing_;  // continuing ones without their prefix
  int64_t most_ = 0;              // characters of a word
  int32_t unk_ = -1;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_WORDPIECE_H_
