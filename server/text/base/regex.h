// Regular expressions of tokenizer files, which are written for Oniguruma, run by PCRE2.
//
//   Regex regex = Regex::Compile(R"(\p{L}+|\s+(?!\S))").value();
//   RETURN_IF_ERROR(regex.FindAll(text, &matches));
#ifndef ATHANOR_SERVER_TEXT_BASE_REGEX_H_
#define ATHANOR_SERVER_TEXT_BASE_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// Immutable, so thread-safe. Copies share what was compiled.
class Regex {
 public:
  // Rewrites what the two dialects read differently (\s, \w, scripts, \v, ^, $); returns
  // UNIMPLEMENTED with the pattern for what is not known to mean the same in both, INVALID_ARGUMENT
  // if it does not compile.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Sets `matches` to all matches in `text`, which must be UTF-8, from left to right; they do not
  // overlap. Returns RESOURCE_EXHAUSTED if one takes too many steps.
  absl::Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// Returns the pattern for PCRE2; as Compile.
absl::StatusOr<std::string> TranslatePattern(std::string_view pattern);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_REGEX_H_
