// Normalises text ahead of tokens: Unicode forms, case, prefixes, replacements.
//
//   Normalizer normalizer = Normalizer::Create(data.normalize).value();
//   std::string normal = normalizer.Run(text).value();
#ifndef ATHANOR_SERVER_TEXT_TOKENS_NORMALIZE_H_
#define ATHANOR_SERVER_TEXT_TOKENS_NORMALIZE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/base/charsmap.h"
#include "server/text/base/regex.h"
#include "server/text/tokens/piece_trie.h"
#include "server/text/tokens/tokenizer_data.h"

namespace athanor {

// Immutable, so thread-safe.
class Normalizer {
 public:
  // Returns what Regex::Compile says of a pattern, Charsmap::Create of a charsmap.
  static absl::StatusOr<Normalizer> Create(std::vector<NormalizeStep> steps);

  bool empty() const { return steps_.empty(); }

  // `text` must be UTF-8. Returns RESOURCE_EXHAUSTED if a pattern takes too many steps or the text
  // becomes too long.
  absl::StatusOr<std::string> Run(std::string_view text) const;

 private:
  struct Step {
    NormalizeStep step;
    std::optional<Regex> regex;
    std::optional<Charsmap> charsmap;
    PieceTrie kept;
  };
  static absl::StatusOr<std::string> Apply(const Step& step, std::string text);
  std::vector<Step> steps_;
};

// Returns how many bytes of white space text begins or ends with.
size_t SpaceAtBegin(std::string_view text);
size_t SpaceAtEnd(std::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_TOKENS_NORMALIZE_H_
