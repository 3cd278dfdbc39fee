// Finds added tokens in text: the leftmost, of those that begin there the longest.
//
//   AddedTokens tokens = AddedTokens::Create(list).value();
//   tokens.Find(text, may_be_special, [&](size_t begin, size_t end, const AddedToken* token)
//   {...});
#ifndef ATHANOR_SERVER_TEXT_TOKENS_ADDED_TOKENS_H_
#define ATHANOR_SERVER_TEXT_TOKENS_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/text/base/regex.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe.
class AddedTokens {
 public:
  // `forms` are the texts to look for, one a token; none is empty. Of equal ones the first counts.
  static absl::StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens,
                                            const std::vector<std::string>& forms);

  bool empty() const { return tokens_.empty(); }

  using MayBeSpecial = absl::FunctionRef<bool(size_t begin, size_t end)>;
  // Receives the parts of the text in order; `token` is null for text between tokens, which is not
  // empty. Returns an error to end the search.
  using Receive =
      absl::FunctionRef<absl::Status(size_t begin, size_t end, const AddedToken* token)>;

  // A special token that may not be one there is no match, so another may be found inside it.
  absl::Status Find(std::string_view text, MayBeSpecial may_be_special, Receive receive) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t end = 0;
  };
  Match LongestAt(std::string_view text, size_t begin, MayBeSpecial may_be_special) const;
  bool IsWordAt(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;
  // A trie: the nodes behind node and byte (node << 8 | byte), and the tokens that end at nodes.
  absl::flat_hash_map<uint64_t, int32_t> edges_;
  std::vector<int32_t> ends_;  // by node; -1: none
  std::array<bool, 256> first_{};
  std::optional<Regex> word_;  // a character of a word
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_ADDED_TOKENS_H_
