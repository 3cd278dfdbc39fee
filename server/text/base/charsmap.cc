#include "server/text/base/charsmap.h"

#include <cstring>
#include <utility>

#include "compiler/ir/value/message.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

// A unit of the double array: a node's label, where its children are, and whether a text ends at
// it; or, with the highest bit, where that text's replacement begins.
constexpr uint32_t kIsValue = uint32_t{1} << 31;
uint32_t LabelOf(uint32_t unit) { return unit & (kIsValue | 0xFF); }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1 << 9)) >> 6); }
bool EndsText(uint32_t unit) { return (unit >> 8 & 1) != 0; }

uint32_t ReadU32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Create(std::string_view blob) {
  const auto bad = [](std::string_view what) {
    return absl::InvalidArgumentError(Cat("the precompiled charsmap ", what));
  };
  if (blob.size() < 4) return bad("is cut");
  const size_t bytes = ReadU32(blob, 0);
  if (bytes % 4 != 0 || bytes == 0 || bytes > blob.size() - 4) {
    return bad(Cat("has a table of ", bytes, " bytes, of ", blob.size() - 4));
  }
  auto tables = std::make_shared<Tables>();
  tables->texts = blob.substr(4 + bytes);
  const std::string& texts = tables->texts;
  if (FindBrokenUtf8(texts)) return bad("has a text that is no UTF-8");
  for (size_t at = 4; at < 4 + bytes; at += 4) {
    const uint32_t unit = ReadU32(blob, at);
    tables->units.push_back(unit);
    if ((unit & kIsValue) == 0) continue;
    const uint32_t text = unit & ~kIsValue;
    if (text < texts.size() && (static_cast<uint8_t>(texts[text]) & 0xC0) != 0x80) continue;
    return bad(Cat("names a text at ", text, ", of ", texts.size(), " bytes"));
  }
  Charsmap charsmap;
  charsmap.tables_ = std::move(tables);
  return charsmap;
}

std::optional<Charsmap::Rule> Charsmap::Find(std::string_view text, bool shortest) const {
  const std::vector<uint32_t>& units = tables_->units;
  std::optional<Rule> rule;
  uint32_t at = OffsetOf(units[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    if (at >= units.size() || LabelOf(units[at]) != byte) break;
    const bool ends = EndsText(units[at]);
    at ^= OffsetOf(units[at]);
    if (!ends || at >= units.size() || (units[at] & kIsValue) == 0) continue;
    const std::string_view to = std::string_view(tables_->texts).substr(units[at] & ~kIsValue);
    rule = {i + 1, to.substr(0, to.find('\0'))};
    if (shortest) break;
  }
  return rule;
}

}  // namespace athanor
