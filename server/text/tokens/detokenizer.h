// Tokens to text, one at a time: text leaves as soon as its code points are whole.
//
//   Detokenizer detokenizer(tokenizer);
//   for (int32_t id : ids) detokenizer.Add(id, &text);
//   detokenizer.End(&text);
#ifndef ATHANOR_SERVER_TEXT_TOKENS_DETOKENIZER_H_
#define ATHANOR_SERVER_TEXT_TOKENS_DETOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "server/text/tokens/tokenizer.h"

namespace athanor {

// Not thread-safe: one a stream. What is appended is always UTF-8: U+FFFD stands for broken bytes,
// one for each beginning of a code point, or for each byte where bytes have tokens of their own
// (byte fallback). There HF's decoder drops the whole code points next to broken bytes too, since
// it sees all bytes at once; a stream has sent them by then.
class Detokenizer {
 public:
  struct Options {
    bool special = false;    // special tokens are written
    bool continues = false;  // the text follows a prompt: spaces at its beginning count
  };

  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer)
      : Detokenizer(std::move(tokenizer), Options()) {}
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options);

  // Appends to `text` what is whole with this token; at most 3 bytes are held back.
  void Add(int32_t id, std::string* text);

  // Appends what was held back, as broken bytes. Add must not be called behind it.
  void End(std::string* text);

 private:
  void Flush(bool end, std::string* text);

  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  int64_t strip_ = 0;  // spaces still to be taken from the beginning
  bool first_ = true;
  std::string held_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_DETOKENIZER_H_
