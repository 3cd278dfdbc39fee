// Steps through text that should be UTF-8, one code point or one broken sequence at a time.
//
//   for (size_t at = 0; at < text.size(); at += StepUtf8(text.substr(at)).bytes) ...
#ifndef ATHANOR_SERVER_TEXT_BASE_UTF8_H_
#define ATHANOR_SERVER_TEXT_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace athanor {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  size_t bytes = 1;    // of the code point, or of the longest beginning of one (at least 1)
  bool valid = false;  // a whole code point
  bool cut = false;    // the text ends inside it: further bytes may complete it
  uint32_t point = 0;  // if valid
};

// Reads the beginning of `text`, which is not empty. What is broken is parted as Unicode
// recommends ("maximal subparts"), as most decoders do.
Utf8Step StepUtf8(std::string_view text);

// Returns where the first byte is that is no UTF-8, if any.
std::optional<size_t> FindBrokenUtf8(std::string_view text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_UTF8_H_
