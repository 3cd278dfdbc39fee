#include "server/text/base/byte_alphabet.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "server/text/base/utf8.h"

namespace athanor {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others, in ascending order, are
// written by the characters from U+0100 on.
std::array<int16_t, 512> MakeBytes() {
  std::array<int16_t, 512> bytes;
  bytes.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes[printable ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}

const std::array<int16_t, 512>& Bytes() {
  static const std::array<int16_t, 512> kBytes = MakeBytes();
  return kBytes;
}

}  // namespace

std::optional<std::string> BytesOfAlphabet(std::string_view piece) {
  const std::array<int16_t, 512>& table = Bytes();
  std::string bytes;
  while (!piece.empty()) {
    const Utf8Step step = StepUtf8(piece);
    if (!step.valid || step.point >= table.size() || table[step.point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(table[step.point]));
    piece.remove_prefix(step.bytes);
  }
  return bytes;
}

std::string AlphabetOf(std::string_view bytes) {
  std::array<int16_t, 256> points{};
  for (size_t point = 0; point < Bytes().size(); ++point) {
    if (Bytes()[point] >= 0) points[Bytes()[point]] = static_cast<int16_t>(point);
  }
  std::string piece;
  for (const char byte : bytes) {
    const int16_t point = points[static_cast<uint8_t>(byte)];  // below U+0800
    if (point >= 0x80) piece.push_back(static_cast<char>(0xC0 | point >> 6));
    piece.push_back(static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3F)));
  }
  return piece;
}

std::optional<char> ByteOfFallback(std::string_view piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const char* const end = piece.data() + 5;
  if (std::from_chars(piece.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace athanor
