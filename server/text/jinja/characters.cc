#include "server/text/jinja/characters.h"

#include <string.h>
#include <utf8proc.h>

namespace athanor::jinja {
namespace {

// Moves back to where the code point before `end` begins.
size_t Before(absl::string_view text, size_t end) {
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool IsOneOf(char32_t c, absl::string_view of) {
  for (size_t at = 0; at < of.size();) {
    if (Next(of, &at) == c) return true;
  }
  return false;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

char32_t Next(absl::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(i < text.size() ? text[i] : 0); };
  const uint8_t first = byte(*at);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t c = length == 1 ? first : first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(*at + i) & 0x3F);
  *at += length;
  return c;
}

void AppendCodePoint(char32_t c, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

int64_t CountCodePoints(absl::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

size_t ByteOf(absl::string_view text, int64_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80 && index-- == 0) return at;
  }
  return text.size();
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool IsUpper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool IsLower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void AppendCased(char32_t c, Case to, std::string* text) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (c == 0xDF && to != Case::kLower) {
    *text += to == Case::kUpper ? "SS" : "Ss";
    return;
  }
  AppendCodePoint(static_cast<char32_t>(to == Case::kUpper   ? utf8proc_toupper(code)
                                        : to == Case::kLower ? utf8proc_tolower(code)
                                                             : utf8proc_totitle(code)),
                  text);
}

size_t Find(absl::string_view text, absl::string_view part, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? absl::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(absl::string_view text, absl::string_view part) {
  const size_t found =
      Find(std::string(text.rbegin(), text.rend()), std::string(part.rbegin(), part.rend()));
  return found == absl::string_view::npos ? found : text.size() - found - part.size();
}

Range Strip(absl::string_view text, bool left, bool right, const absl::string_view* of) {
  const auto goes = [&](char32_t c) { return of == nullptr ? IsSpace(c) : IsOneOf(c, *of); };
  Range range{0, text.size()};
  while (left && range.begin < range.end) {
    size_t at = range.begin;
    if (!goes(Next(text, &at))) break;
    range.begin = at;
  }
  while (right && range.end > range.begin) {
    const size_t at = Before(text, range.end);
    size_t copy = at;
    if (!goes(Next(text, &copy))) break;
    range.end = at;
  }
  return range;
}

}  // namespace athanor::jinja
