// Says how vocabularies spell bytes: by GPT-2's alphabet of 256 printable characters, or as <0x0A>.
#ifndef ATHANOR_SERVER_TEXT_BASE_BYTE_ALPHABET_H_
#define ATHANOR_SERVER_TEXT_BASE_BYTE_ALPHABET_H_

#include <optional>
#include <string>
#include <string_view>

namespace athanor {

// Returns the bytes that `piece` spells, or nothing if a character of it is none of the alphabet.
std::optional<std::string> BytesOfAlphabet(std::string_view piece);

// Returns the piece that spells `bytes`.
std::string AlphabetOf(std::string_view bytes);

// Returns the byte that a piece like <0x0A> stands for ("byte fallback"), if it is one.
std::optional<char> ByteOfFallback(std::string_view piece);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TEXT_BASE_BYTE_ALPHABET_H_
