#include "server/text/tokens/tokenizer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/byte_alphabet.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMaxText = size_t{256} << 20;  // bytes of a prompt
constexpr int32_t kMaxTokens = 4 << 20;
constexpr size_t kMaxTokenText = 64 << 10;            // bytes of what a token stands for
constexpr size_t kMaxTokenTexts = size_t{128} << 20;  // and of all, as of a file
constexpr size_t kMaxCachedWord = 64;                 // bytes
constexpr size_t kMaxCached = 1 << 16;                // words

absl::Status CheckTokenText(size_t bytes, size_t* total) {
  *total += bytes;
  if (bytes <= kMaxTokenText && *total <= kMaxTokenTexts) return absl::OkStatus();
  return absl::ResourceExhaustedError(Cat("a token stands for ", bytes, " bytes, up to it all for ",
                                          *total, "; at most ", kMaxTokenText, " and ",
                                          kMaxTokenTexts));
}

size_t BytesOfReplaced(std::string_view text, std::string_view from, std::string_view to) {
  size_t bytes = text.size();
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + from.size())) {
    bytes += to.size() - from.size();
  }
  return bytes;
}

// Takes spaces from around what English writes without them (HF's decoder `WordPiece`, cleanup).
std::string Cleaned(std::string text) {
  constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = absl::StrReplaceAll(text, {{from, to}});
  return text;
}

// Texts of the parts in one, and where it is trusted.
class JoinedText {
 public:
  explicit JoinedText(absl::Span<const Part> parts) {
    for (const Part& part : parts) {
      const TextRange range = {text_.size(), text_.size() + part.text.size()};
      text_.append(part.text);
      if (!part.trusted || range.begin == range.end) continue;
      if (!trusted_.empty() && trusted_.back().end == range.begin) {
        trusted_.back().end = range.end;
      } else {
        trusted_.push_back(range);
      }
    }
  }

  std::string_view text() const { return text_; }

  bool IsTrusted(size_t begin, size_t end) const {
    const auto behind =
        std::upper_bound(trusted_.begin(), trusted_.end(), begin,
                         [](size_t at, const TextRange& range) { return at < range.begin; });
    return behind != trusted_.begin() && end <= std::prev(behind)->end;
  }

 private:
  std::string text_;
  std::vector<TextRange> trusted_;
};

}  // namespace

// Keeps what one call of Encode holds: words met before, with their tokens.
struct Tokenizer::Call {
  std::vector<int32_t>* ids;
  std::deque<std::string> owned;  // cached words may be views of these
  std::vector<std::string_view> words;
  Bpe::Scratch bpe;
  Unigram::Scratch unigram;
  absl::flat_hash_map<std::string_view, TextRange> cache;  // ranges of `cached`
  std::vector<int32_t> cached;
};

absl::Status Tokenizer::CheckIds(const TokenizerData& data) const {
  if (data.pieces.empty()) return absl::InvalidArgumentError("the vocabulary is empty");
  if (!data.hidden.empty() && data.hidden.size() != data.pieces.size()) {
    return absl::InvalidArgumentError("as many marks as tokens are wanted");
  }
  for (const std::vector<int32_t>* around : {&data.begin, &data.end}) {
    for (int32_t id : *around) {
      if (id >= 0 && id < size() && !bytes_[id].empty()) continue;
      return absl::InvalidArgumentError(
          Cat("the tokenizer puts the token ", id, " around a prompt, which it lacks"));
    }
  }
  return absl::OkStatus();
}

// Returns what a token is in normalised text.
absl::StatusOr<std::string> Tokenizer::FormOf(const AddedToken& token) const {
  if (token.as_written) return token.content;
  return normalizer_.Run(token.content);
}

absl::Status Tokenizer::SetAdded(const TokenizerData& data) {
  std::vector<AddedToken> plain, normalized;
  std::vector<std::string> plain_forms, forms;
  for (const AddedToken& token : data.added) {
    ASSIGN_OR_RETURN(std::string form, FormOf(token));
    if (!token.normalized || token.special) {
      if (token.normalized && form != token.content) {
        return absl::UnimplementedError(Cat("the special token ", Quoted(token.content),
                                            " is looked for in normalised text, as ", Quoted(form),
                                            ""));
      }
      plain.push_back(token);
      plain_forms.push_back(token.content);
    } else {
      normalized.push_back(token);
      forms.push_back(std::move(form));
    }
  }
  ASSIGN_OR_RETURN(added_, AddedTokens::Create(std::move(plain), plain_forms));
  ASSIGN_OR_RETURN(added_normalized_, AddedTokens::Create(std::move(normalized), forms));
  return absl::OkStatus();
}

// Sets what each token stands for.
absl::Status Tokenizer::SetBytes(const TokenizerData& data) {
  int32_t size = static_cast<int32_t>(data.pieces.size());
  for (const AddedToken& token : data.added) size = std::max(size, token.id + 1);
  bytes_.assign(data.pieces.begin(), data.pieces.end());
  bytes_.resize(size);
  special_.resize(size);
  size_t total = 0;
  for (const AddedToken& token : data.added) {
    if (!bytes_[token.id].empty() && bytes_[token.id] != token.content) {
      return absl::InvalidArgumentError(Cat("the added token ", Quoted(token.content),
                                            " has the id ", token.id, " of ",
                                            Quoted(bytes_[token.id])));
    }
    bytes_[token.id] = token.content;
    if (token.normalized) {  // HF writes the form that it looks for
      ASSIGN_OR_RETURN(bytes_[token.id], FormOf(token));
    }
    RETURN_IF_ERROR(CheckTokenText(bytes_[token.id].size(), &total));
    if (token.special) special_[token.id] = true;
  }
  total = 0;
  for (std::string& bytes : bytes_) {
    for (const auto& [from, to] : data.replace) {
      size_t one = 0;
      RETURN_IF_ERROR(CheckTokenText(BytesOfReplaced(bytes, from, to), &one));
      bytes = absl::StrReplaceAll(bytes, {{from, to}});
    }
    RETURN_IF_ERROR(CheckTokenText(bytes.size(), &total));
    if (data.byte_level) {
      if (std::optional<std::string> spelt = BytesOfAlphabet(bytes)) bytes = *std::move(spelt);
    } else if (data.byte_fallback) {
      if (const std::optional<char> byte = ByteOfFallback(bytes)) bytes.assign(1, *byte);
    }
  }
  if (data.word_join) JoinWords(*data.word_join);
  strip_left_ = data.strip_left;
  strip_first_token_ = data.strip_first_token;
  byte_fallback_ = data.byte_fallback;
  return absl::OkStatus();
}

void Tokenizer::JoinWords(const WordJoin& join) {
  first_bytes_ = bytes_;
  for (std::string& bytes : bytes_) {
    if (bytes.empty()) continue;  // no token
    if (!join.prefix.empty() && bytes.starts_with(join.prefix)) {
      bytes.erase(0, join.prefix.size());
    } else {
      bytes.insert(0, " ");
    }
    if (join.cleans) bytes = Cleaned(std::move(bytes));
  }
  if (!join.cleans) return;
  for (std::string& bytes : first_bytes_) bytes = Cleaned(std::move(bytes));
}

// Makes words never become special tokens: those are only looked for where text is trusted.
void Tokenizer::HideSpecial(TokenizerData* data) const {
  data->hidden.resize(data->pieces.size());
  for (const AddedToken& token : data->added) {
    if (token.special && token.id < static_cast<int32_t>(data->pieces.size())) {
      data->hidden[token.id] = true;
    }
  }
  std::erase_if(data->merges, [&](const Merge& merge) { return special(merge.result); });
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerData data) {
  if (data.pieces.size() > kMaxTokens) {
    return absl::ResourceExhaustedError(
        Cat("a vocabulary of ", data.pieces.size(), " tokens; at most ", kMaxTokens));
  }
  const auto tokenizer = std::make_shared<Tokenizer>();
  for (const auto& [from, to] : data.replace) {
    if (from.empty()) return absl::InvalidArgumentError("a decoder replaces the empty text");
  }
  for (const AddedToken& token : data.added) {
    if (token.id >= 0 && token.id < kMaxTokens) continue;
    return absl::InvalidArgumentError(Cat("the added token ", Quoted(token.content), " has the id ",
                                          token.id, "; at most ", kMaxTokens - 1));
  }
  ASSIGN_OR_RETURN(tokenizer->normalizer_, Normalizer::Create(data.normalize));
  RETURN_IF_ERROR(tokenizer->SetBytes(data));
  RETURN_IF_ERROR(tokenizer->CheckIds(data));
  tokenizer->HideSpecial(&data);
  if (data.word_pieces) {
    ASSIGN_OR_RETURN(tokenizer->model_, WordPiece::Create(data));
  } else if (data.scores.empty()) {
    ASSIGN_OR_RETURN(tokenizer->model_, Bpe::Create(data));
  } else {
    ASSIGN_OR_RETURN(tokenizer->model_, Unigram::Create(data));
  }
  ASSIGN_OR_RETURN(tokenizer->splitter_, Splitter::Create(std::move(data.split)));
  RETURN_IF_ERROR(tokenizer->SetAdded(data));
  tokenizer->begin_ = std::move(data.begin);
  tokenizer->end_ = std::move(data.end);
  return tokenizer;
}

std::string_view Tokenizer::BytesOf(int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(bytes_[id]) : std::string_view();
}

std::string_view Tokenizer::FirstBytesOf(int32_t id) const {
  if (!joins_words()) return BytesOf(id);
  return id >= 0 && id < size() ? std::string_view(first_bytes_[id]) : std::string_view();
}

void Tokenizer::EncodeWord(std::string_view word, Call* call) const {
  if (const Bpe* bpe = std::get_if<Bpe>(&model_)) {
    bpe->Encode(word, &call->bpe, call->ids);
  } else if (const WordPiece* pieces = std::get_if<WordPiece>(&model_)) {
    pieces->Encode(word, call->ids);
  } else {
    std::get<Unigram>(model_).Encode(word, &call->unigram, call->ids);
  }
}

absl::Status Tokenizer::EncodeWords(std::string_view text, bool first, Call* call) const {
  RETURN_IF_ERROR(splitter_.Run(text, first, &call->owned, &call->words));
  std::vector<int32_t>* ids = call->ids;
  for (std::string_view word : call->words) {
    if (const auto known = call->cache.find(word); known != call->cache.end()) {
      const TextRange range = known->second;
      ids->insert(ids->end(), call->cached.begin() + static_cast<ptrdiff_t>(range.begin),
                  call->cached.begin() + static_cast<ptrdiff_t>(range.end));
      continue;
    }
    const size_t size = ids->size();
    EncodeWord(word, call);
    if (word.size() > kMaxCachedWord || call->cache.size() >= kMaxCached) continue;
    const size_t begin = call->cached.size();
    call->cached.insert(call->cached.end(), ids->begin() + static_cast<ptrdiff_t>(size),
                        ids->end());
    call->cache[word] = {begin, call->cached.size()};
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeSection(std::string_view text, bool first, Call* call) const {
  if (!normalizer_.empty()) {
    ASSIGN_OR_RETURN(std::string normal, normalizer_.Run(text));
    text = call->owned.emplace_back(std::move(normal));
  }
  if (added_normalized_.empty()) return EncodeWords(text, first, call);
  return added_normalized_.Find(
      text, [](size_t, size_t) { return false; },
      [&](size_t begin, size_t end, const AddedToken* token) {
        if (token == nullptr) {
          return EncodeWords(text.substr(begin, end - begin), first && begin == 0, call);
        }
        call->ids->push_back(token->id);
        return absl::OkStatus();
      });
}

absl::Status Tokenizer::Encode(absl::Span<const Part> parts, bool begin,
                               std::vector<int32_t>* ids) const {
  ids->clear();
  size_t bytes = 0;
  for (const Part& part : parts) {
    if (const std::optional<size_t> at = FindBrokenUtf8(part.text)) {
      return absl::InvalidArgumentError(Cat("the text is no UTF-8 at byte ", bytes + *at));
    }
    bytes += part.text.size();
  }
  if (bytes > kMaxText) {
    return absl::ResourceExhaustedError(Cat("a text of ", bytes, " bytes; at most ", kMaxText));
  }
  const JoinedText joined(parts);
  const std::string_view text = joined.text();
  if (begin) *ids = begin_;
  Call call;
  call.ids = ids;
  RETURN_IF_ERROR(added_.Find(
      text, [&](size_t from, size_t to) { return joined.IsTrusted(from, to); },
      [&](size_t from, size_t to, const AddedToken* token) {
        if (token == nullptr) return EncodeSection(text.substr(from, to - from), from == 0, &call);
        ids->push_back(token->id);
        return absl::OkStatus();
      }));
  if (begin) ids->insert(ids->end(), end_.begin(), end_.end());
  return absl::OkStatus();
}

}  // namespace athanor
