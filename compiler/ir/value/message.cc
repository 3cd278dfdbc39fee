#include "compiler/ir/value/message.h"

#include <cstdint>

#include "absl/strings/escaping.h"

namespace athanor {
namespace {

// Most bytes of a name that a message shows.
constexpr size_t kShown = 80;

// Returns the number of bytes of the well-formed UTF-8 sequence at the start of `text`, or 0 if
// there is none (overlong forms, surrogates and values beyond U+10FFFF are not well-formed).
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
  const bool beyond = byte(0) == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Quoted(std::string_view text) {
  std::string shown(text.substr(0, kShown));
  if (shown.size() < text.size()) {
    // Does not cut in the middle of a character.
    while (!shown.empty() && (static_cast<uint8_t>(text[shown.size()]) & 0xc0) == 0x80) {
      shown.pop_back();
    }
  }
  const std::string escaped =
      IsValidUtf8(shown) ? absl::Utf8SafeCEscape(shown) : absl::CEscape(shown);
  return "\"" + escaped + (shown.size() < text.size() ? "...\"" : "\"");
}

}  // namespace athanor
