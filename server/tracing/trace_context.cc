#include "server/tracing/trace_context.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace athanor {
namespace {

constexpr size_t kTraceparent = 55;  // length of version 00
constexpr size_t kMostMembers = 32, kMostTracestate = 512;
constexpr size_t kMostKey = 256, kMostTenant = 241, kMostSystem = 14, kMostValue = 256;

// Takes `digits` lowercase hexadecimal digits off the front of `text`.
std::optional<uint64_t> TakeHex(int digits, absl::string_view* text) {
  uint64_t value = 0;
  for (int i = 0; i < digits; ++i) {
    if (text->empty()) return std::nullopt;
    const char c = text->front();
    const bool letter = c >= 'a' && c <= 'f';
    if (!letter && !absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(letter ? c - 'a' + 10 : c - '0');
    text->remove_prefix(1);
  }
  return value;
}

bool IsKeyPart(absl::string_view part, size_t most, bool digit_first) {
  if (part.empty() || part.size() > most) return false;
  const auto first = static_cast<unsigned char>(part.front());
  if (!absl::ascii_islower(first) && !(digit_first && absl::ascii_isdigit(first))) return false;
  return absl::c_all_of(part, [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '*' ||
           c == '/';
  });
}

bool IsKey(absl::string_view key) {
  const size_t at = key.find('@');
  if (at == absl::string_view::npos) return IsKeyPart(key, kMostKey, false);
  return IsKeyPart(key.substr(0, at), kMostTenant, true) &&
         IsKeyPart(key.substr(at + 1), kMostSystem, false);
}

bool IsValue(absl::string_view value) {
  return !value.empty() && value.size() <= kMostValue && value.back() != ' ' &&
         absl::c_all_of(value, [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

// Removes spaces and tabs at both ends.
absl::string_view Trimmed(absl::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == absl::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string BigEndian(uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view header) {
  const bool longer = header.size() > kTraceparent;
  if (longer && header[kTraceparent] != '-') return std::nullopt;
  const auto version = TakeHex(2, &header);
  if (!version.has_value() || *version == 0xff || (*version == 0 && longer)) return std::nullopt;
  if (!absl::ConsumePrefix(&header, "-")) return std::nullopt;
  const auto high = TakeHex(16, &header), low = TakeHex(16, &header);
  if (!high.has_value() || !low.has_value() || (*high | *low) == 0) return std::nullopt;
  if (!absl::ConsumePrefix(&header, "-")) return std::nullopt;
  const auto span = TakeHex(16, &header);
  if (!span.has_value() || *span == 0 || !absl::ConsumePrefix(&header, "-")) return std::nullopt;
  const auto flags = TakeHex(2, &header);
  if (!flags.has_value()) return std::nullopt;
  return TraceContext{*high, *low, *span, (*flags & 1) != 0};
}

std::string CheckedTracestate(absl::string_view header) {
  std::vector<absl::string_view> members, keys;
  size_t bytes = 0;
  for (absl::string_view part : absl::StrSplit(header, ',')) {
    const absl::string_view member = Trimmed(part);
    if (member.empty()) continue;
    const size_t equals = member.find('=');
    if (equals == absl::string_view::npos || members.size() == kMostMembers) return "";
    const absl::string_view key = member.substr(0, equals);
    if (!IsKey(key) || !IsValue(member.substr(equals + 1)) || absl::c_linear_search(keys, key)) {
      return "";
    }
    bytes += member.size() + (members.empty() ? 0 : 1);
    if (bytes > kMostTracestate) return "";
    members.push_back(member);
    keys.push_back(key);
  }
  return absl::StrJoin(members, ",");
}

std::string TraceIdText(const TraceContext& context) {
  return absl::StrFormat("%016x%016x", context.trace_high, context.trace_low);
}

std::string TraceIdBytes(const TraceContext& context) {
  return BigEndian(context.trace_high) + BigEndian(context.trace_low);
}

std::string SpanIdBytes(uint64_t span) { return BigEndian(span); }

}  // namespace athanor
