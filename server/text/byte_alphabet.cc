#include "server/text/byte_alphabet.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "server/text/utf8.h"

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

}  // namespace

std::optional<std::string> BytesOfAlphabet(std::string_view piece) {
  static const std::array<int16_t, 512> kBytes = MakeBytes();
  std::string bytes;
  while (!piece.empty()) {
    const Utf8Step step = StepUtf8(piece);
    if (!step.valid || step.point >= kBytes.size() || kBytes[step.point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[step.point]));
    piece.remove_prefix(step.bytes);
  }
  return bytes;
}

std::optional<char> ByteOfFallback(std::string_view piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const char* const end = piece.data() + 5;
  if (std::from_chars(piece.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace athanor
