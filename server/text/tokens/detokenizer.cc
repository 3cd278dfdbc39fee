#include "server/text/tokens/detokenizer.h"

#include <string_view>
#include <utility>

#include "server/text/base/utf8.h"

namespace athanor {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, Options options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      strip_(options.continues ? 0 : tokenizer_->strip_left()),
      first_(!options.continues && (tokenizer_->strip_first_token() || tokenizer_->joins_words())) {
}

void Detokenizer::Flush(bool end, std::string* text) {
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = StepUtf8(rest);
    if (step.cut && !end) break;
    if (step.valid) {
      text->append(rest.substr(0, step.bytes));
    } else {
      const size_t marks = tokenizer_->byte_fallback() ? step.bytes : 1;
      for (size_t i = 0; i < marks; ++i) text->append(kReplacement);
    }
    rest.remove_prefix(step.bytes);
  }
  held_.erase(0, held_.size() - rest.size());
}

void Detokenizer::Add(int32_t id, std::string* text) {
  if (!options_.special && tokenizer_->special(id)) return;
  std::string_view bytes = first_ ? tokenizer_->FirstBytesOf(id) : tokenizer_->BytesOf(id);
  if (bytes.empty()) return;
  if (std::exchange(first_, false) && tokenizer_->strip_first_token()) {
    for (char c : bytes) {
      if (c != ' ') held_.push_back(c);
    }
  } else {
    while (strip_ > 0 && !bytes.empty() && bytes[0] == ' ') {
      bytes.remove_prefix(1);
      --strip_;
    }
    if (!bytes.empty()) strip_ = 0;
    held_.append(bytes);
  }
  Flush(/*end=*/false, text);
}

void Detokenizer::End(std::string* text) { Flush(/*end=*/true, text); }

}  // namespace athanor
