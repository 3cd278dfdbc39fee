// Asks what a code point is, by utf8proc's tables (Unicode 15.0).
//
//   if (IsSpace(step.point)) ...
#ifndef ATHANOR_SERVER_TEXT_BASE_CHARACTERS_H_
#define ATHANOR_SERVER_TEXT_BASE_CHARACTERS_H_

#include <cstdint>

namespace athanor {

// Reports the property White_Space, as Rust's char::is_whitespace.
inline bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// Reports what BERT's tokenizer parts words at: the categories P, and ASCII's signs.
bool IsBertPunctuation(uint32_t c);

// Reports what BERT's tokenizer drops from a text: the categories Cc (but for tab, line feed and
// carriage return), Cf and Co, and U+FFFD.
bool IsBertDropped(uint32_t c);

// Reports whether a code point is of the blocks that BERT's tokenizer takes for Chinese.
bool IsBertHan(uint32_t c);

bool IsNonspacingMark(uint32_t c);  // the category Mn
bool IsMark(uint32_t c);            // the categories M

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_CHARACTERS_H_
