#include "server/text/tokens/added_tokens.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/utf8.h"
#include "server/text/tokens/normalize.h"

namespace athanor {

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens,
                                                const std::vector<std::string>& forms) {
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  added.ends_ = {-1};
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    if (forms[i].empty()) {
      return absl::InvalidArgumentError(
          Cat("the added token ", added.tokens_[i].id, " has no text"));
    }
    int32_t node = 0;
    added.first_[static_cast<uint8_t>(forms[i][0])] = true;
    for (char c : forms[i]) {
      const auto [edge, is_new] =
          added.edges_.try_emplace(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c),
                                   static_cast<int32_t>(added.ends_.size()));
      if (is_new) added.ends_.push_back(-1);
      node = edge->second;
    }
    if (added.ends_[node] < 0) added.ends_[node] = static_cast<int32_t>(i);
  }
  // Rust's \w, which the library asks here: Oniguruma's, whose \w has some digits and fractions
  // too, without these, and joiners.
  ASSIGN_OR_RETURN(added.word_,
                   Regex::Compile("(?![\\u00B2\\u00B3\\u00B9\\u00BC-\\u00BE])[\\w\\u200C\\u200D]"));
  return added;
}

// Reports whether text[begin, end) stands by itself.
bool AddedTokens::IsWordAt(std::string_view text, size_t begin, size_t end) const {
  std::vector<TextRange> matches;
  const auto is_word = [&](std::string_view character) {
    return word_->FindAll(character, &matches).ok() && !matches.empty();
  };
  if (begin > 0) {
    size_t ahead = begin - 1;
    while (ahead > 0 && (static_cast<uint8_t>(text[ahead]) & 0xC0) == 0x80) --ahead;
    if (is_word(text.substr(ahead, begin - ahead))) return false;
  }
  if (end == text.size()) return true;
  return !is_word(text.substr(end, StepUtf8(text.substr(end)).bytes));
}

AddedTokens::Match AddedTokens::LongestAt(std::string_view text, size_t begin,
                                          MayBeSpecial may_be_special) const {
  Match match;
  int32_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const auto edge =
        edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] < 0) continue;
    const AddedToken& token = tokens_[ends_[node]];
    if (!token.special || may_be_special(begin, at + 1)) match = {&token, at + 1};
  }
  return match;
}

absl::Status AddedTokens::Find(std::string_view text, MayBeSpecial may_be_special,
                               Receive receive) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!first_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = LongestAt(text, at, may_be_special);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = match.end;
    at = end;
    if (match.token->single_word && !IsWordAt(text, begin, end)) continue;
    if (match.token->lstrip) begin = std::max(done, begin - SpaceAtEnd(text.substr(0, begin)));
    if (match.token->rstrip) end += SpaceAtBegin(text.substr(end));
    if (done < begin) RETURN_IF_ERROR(receive(done, begin, nullptr));
    RETURN_IF_ERROR(receive(begin, end, match.token));
    done = end;
    at = end;
  }
  return done < text.size() ? receive(done, text.size(), nullptr) : absl::OkStatus();
}

}  // namespace athanor
