#include "server/text/tokens/wordpiece.h"

#include <string>
#include <utility>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr size_t kMaxPiece = 4096;  // bytes

}  // namespace

absl::StatusOr<WordPiece> WordPiece::Create(const TokenizerData& data) {
  const auto count = static_cast<int32_t>(data.pieces.size());
  if (data.unk < 0 || data.unk >= count) {
    return absl::InvalidArgumentError(
        Cat("the unknown token is ", data.unk, ", of ", count, " tokens; WordPiece needs one"));
  }
  if (data.word_pieces->max_characters < 0) {
    return absl::InvalidArgumentError(Cat("words of at most ", data.word_pieces->max_characters,
                                          " characters; right is 0 or more"));
  }
  const std::string& prefix = data.word_pieces->prefix;
  std::vector<std::pair<std::string_view, int32_t>> first, continuing;
  for (int32_t id = 0; id < count; ++id) {
    const std::string_view piece = data.pieces[id];
    if (piece.size() > kMaxPiece) {
      return absl::InvalidArgumentError(
          Cat("the token ", id, " has ", piece.size(), " bytes; at most ", kMaxPiece));
    }
    if (!data.hidden.empty() && data.hidden[id]) continue;
    first.emplace_back(piece, id);
    if (piece.starts_with(prefix)) continuing.emplace_back(piece.substr(prefix.size()), id);
  }
  WordPiece made;
  made.first_ = PieceTrie::Create(std::move(first));
  made.continuing_ = PieceTrie::Create(std::move(continuing));
  made.most_ = data.word_pieces->max_characters;
  made.unk_ = data.unk;
  return made;
}

// Reads no further than the answer is known: a word may be a text of many megabytes.
bool WordPiece::IsTooLong(std::string_view word) const {
  if (static_cast<int64_t>(word.size()) <= most_) return false;
  int64_t characters = 0;
  for (const char c : word) {
    if ((static_cast<uint8_t>(c) & 0xC0) != 0x80 && ++characters > most_) return true;
  }
  return false;
}

void WordPiece::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (IsTooLong(word)) {
    ids->push_back(unk_);
    return;
  }
  const size_t size = ids->size();
  for (size_t at = 0; at < word.size();) {
    size_t bytes = 0;
    int32_t longest = -1;
    (at == 0 ? first_ : continuing_).Find(word.substr(at), [&](size_t length, int32_t id) {
      bytes = length;
      longest = id;
    });
    if (longest < 0) {
      ids->resize(size);
      ids->push_back(unk_);
      return;
    }
    ids->push_back(longest);
    at += bytes;
  }
}

}  // namespace athanor
