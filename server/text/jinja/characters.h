// Code points of UTF-8 text, and what Python's str says of them.
//
//   for (size_t at = 0; at < text.size();) {
//     const char32_t c = Next(text, &at);
//     ...
//   }
//
// Texts must be valid UTF-8 (IsUtf8). Case is Unicode's simple one, by utf8proc; of the code points
// that become several, only German's sharp s does. Pure functions, thread-safe.
#ifndef ATHANOR_SERVER_TEXT_JINJA_CHARACTERS_H_
#define ATHANOR_SERVER_TEXT_JINJA_CHARACTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace athanor::jinja {

bool IsUtf8(absl::string_view text);

// Returns the code point at `*at` and moves behind it. REQUIRES: *at < text.size().
char32_t Next(absl::string_view text, size_t* at);
void AppendCodePoint(char32_t c, std::string* text);

int64_t CountCodePoints(absl::string_view text);
// Returns the byte at which code point `index` begins; text.size() if there are fewer.
size_t ByteOf(absl::string_view text, int64_t index);

bool IsSpace(char32_t c);      // str.isspace
bool IsLineBreak(char32_t c);  // splits str.splitlines
bool IsLetter(char32_t c);     // str.isalpha
bool IsDigit(char32_t c);      // str.isdigit
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsPrintable(char32_t c);  // repr leaves it as it is

enum class Case : uint8_t { kUpper, kLower, kTitle };
void AppendCased(char32_t c, Case to, std::string* text);

// Returns where `part` begins in `text` at or after `from`; npos if it does not. Linear time.
size_t Find(absl::string_view text, absl::string_view part, size_t from = 0);
// Returns where the last `part` in `text` begins. Linear time, which std::string's rfind is not.
size_t FindLast(absl::string_view text, absl::string_view part);

// Returns the bytes without white space (or the code points in `of`) at the ends asked for, as
// [first, second).
struct Range {
  size_t begin, end;
};
Range Strip(absl::string_view text, bool left, bool right, const absl::string_view* of = nullptr);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_CHARACTERS_H_
