// SentencePiece's normaliser as its files have it ("precompiled charsmap"): texts and what stands
// for them.
//
//   Charsmap charsmap = Charsmap::Create(blob).value();
//   if (auto rule = charsmap.Longest(text)) normal.append(rule->to);
//
// The file is a double array (J. Aoe, 1989, as darts-clone stores it) and the texts, one behind the
// other, each with a NUL at its end.
#ifndef ATHANOR_SERVER_TEXT_BASE_CHARSMAP_H_
#define ATHANOR_SERVER_TEXT_BASE_CHARSMAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor {

// Immutable, so thread-safe. Copies share what they hold.
class Charsmap {
 public:
  // Returns INVALID_ARGUMENT if the blob is none, or a text in it is no UTF-8.
  static absl::StatusOr<Charsmap> Create(std::string_view blob);

  struct Rule {
    size_t bytes = 0;     // of the text that it replaces
    std::string_view to;  // UTF-8; valid as long as the charsmap
  };

  // Return the rule for the longest or the shortest beginning of `text` that has one.
  std::optional<Rule> Longest(std::string_view text) const { return Find(text, false); }
  std::optional<Rule> Shortest(std::string_view text) const { return Find(text, true); }

 private:
  struct Tables {
    std::vector<uint32_t> units;
    std::string texts;
  };
  std::optional<Rule> Find(std::string_view text, bool shortest) const;

  std::shared_ptr<const Tables> tables_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_CHARSMAP_H_
