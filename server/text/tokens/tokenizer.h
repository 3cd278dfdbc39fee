// Text to tokens as a model's own tokenizer does: added tokens, normalisation, words, then merges,
// Unigram or WordPiece.
//
//   ASSIGN_OR_RETURN(TokenizerData data, ReadTokenizerJson(json, config));
//   ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Create(data));
//   std::vector<int32_t> ids;
//   RETURN_IF_ERROR(tokenizer->Encode({{"<|im_start|>", true}, {question, false}}, true, &ids));
#ifndef ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_H_
#define ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/text/base/part.h"
#include "server/text/tokens/added_tokens.h"
#include "server/text/tokens/bpe.h"
#include "server/text/tokens/normalize.h"
#include "server/text/tokens/split.h"
#include "server/text/tokens/tokenizer_data.h"
#include "server/text/tokens/unigram.h"
#include "server/text/tokens/wordpiece.h"

namespace athanor {

// Immutable, so thread-safe.
class Tokenizer {
 public:
  // Returns INVALID_ARGUMENT or UNIMPLEMENTED, saying what is wrong with the data or not supported.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Create(TokenizerData data);

  // Sets `ids` to the tokens of the parts, which are one text: words reach over their edges.
  // Special tokens are found in trusted text only, and never reach into other text; but one that
  // takes the white space next to it (lstrip, rstrip) takes a user's too. `begin` puts
  // around them the tokens that the file asks for, mostly one for the beginning. Returns
  // INVALID_ARGUMENT if a part is not UTF-8, RESOURCE_EXHAUSTED if a pattern takes too many steps.
  absl::Status Encode(absl::Span<const Part> parts, bool begin, std::vector<int32_t>* ids) const;

  // Returns the bytes that a token stands for in text: not always UTF-8; empty for an id that is no
  // token. Valid as long as the tokenizer.
  std::string_view BytesOf(int32_t id) const;

  // Returns the same for a token at the beginning of a text: where tokens are joined as words, it
  // has no space ahead of it.
  std::string_view FirstBytesOf(int32_t id) const;

  bool special(int32_t id) const { return id >= 0 && id < size() && special_[id]; }

  // Returns one more than the largest id; between may be ids of no token.
  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }

  // For Detokenizer: spaces that encoding puts ahead of a text, so decoding takes them away.
  int64_t strip_left() const { return strip_left_; }
  bool strip_first_token() const { return strip_first_token_; }
  bool joins_words() const { return !first_bytes_.empty(); }
  bool byte_fallback() const { return byte_fallback_; }

 private:
  struct Call;

  absl::Status CheckIds(const TokenizerData& data) const;
  absl::StatusOr<std::string> FormOf(const AddedToken& token) const;
  absl::Status SetAdded(const TokenizerData& data);
  absl::Status SetBytes(const TokenizerData& data);
  void JoinWords(const WordJoin& join);
  void HideSpecial(TokenizerData* data) const;
  void EncodeWord(std::string_view word, Call* call) const;
  absl::Status EncodeSection(std::string_view text, bool first, Call* call) const;
  absl::Status EncodeWords(std::string_view text, bool first, Call* call) const;

  Normalizer normalizer_;
  Splitter splitter_;
  std::variant<Bpe, Unigram, WordPiece> model_;
  AddedTokens added_;             // looked for in the text as it is
  AddedTokens added_normalized_;  // and in normalised text
  std::vector<int32_t> begin_, end_;
  std::vector<std::string> bytes_;
  std::vector<std::string> first_bytes_;  // empty: as bytes_
  std::vector<bool> special_;
  int64_t strip_left_ = 0;
  bool strip_first_token_ = false;
  bool byte_fallback_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_TOKENIZER_H_
