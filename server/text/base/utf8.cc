#include "server/text/base/utf8.h"

namespace athanor {

Utf8Step StepUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {.bytes = 1, .valid = true, .point = first};
  if (first < 0xC2 || first > 0xF4) return {};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t point = first & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {.bytes = i, .cut = true};
    // The second byte rules out overlong forms, surrogates and what lies behind U+10FFFF.
    const uint8_t low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {.bytes = i};
    point = point << 6 | (byte(i) & 0x3F);
  }
  return {.bytes = length, .valid = true, .point = point};
}

std::optional<size_t> FindBrokenUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = StepUtf8(text.substr(at));
    if (!step.valid) return at;
    at += step.bytes;
  }
  return std::nullopt;
}

}  // namespace athanor
