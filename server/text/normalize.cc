#include "server/text/normalize.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_replace.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;

bool IsSpace(uint32_t c) {  // White_Space
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

absl::StatusOr<std::string> UnicodeForm(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  if (bytes < 0) return absl::ResourceExhaustedError(utf8proc_errmsg(bytes));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(mapped, std::free);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(bytes));
}

std::string Lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = StepUtf8(text.substr(at));
    at += step.bytes;
    if (step.point == 0x130) {  // the only one that becomes two: i, combining dot
      lower.append("i\xCC\x87");
      continue;
    }
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size =
        utf8proc_encode_char(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.point)), bytes);
    lower.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return lower;
}

absl::StatusOr<std::string> ReplaceMatches(std::string_view text, const Regex& regex,
                                           std::string_view to) {
  std::vector<TextRange> matches;
  RETURN_IF_ERROR(regex.FindAll(text, &matches));
  if (matches.size() * to.size() > kMaxBytes) {
    return absl::ResourceExhaustedError("normalised text becomes too long");
  }
  std::string out;
  size_t at = 0;
  for (const TextRange& match : matches) {
    out.append(text.substr(at, match.begin - at)).append(to);
    at = match.end;
  }
  out.append(text.substr(at));
  return out;
}

absl::StatusOr<std::string> Apply(const NormalizeStep& step, const std::optional<Regex>& regex,
                                  std::string text) {
  switch (step.kind) {
    case NormalizeStep::kNfc:
      return UnicodeForm(text, UTF8PROC_COMPOSE);
    case NormalizeStep::kNfd:
      return UnicodeForm(text, UTF8PROC_DECOMPOSE);
    case NormalizeStep::kNfkc:
      return UnicodeForm(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalizeStep::kNfkd:
      return UnicodeForm(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    case NormalizeStep::kLowercase:
      return Lowercase(text);
    case NormalizeStep::kStripLeft:
      return text.substr(SpaceAtBegin(text));
    case NormalizeStep::kStripRight:
      return text.substr(0, text.size() - SpaceAtEnd(text));
    case NormalizeStep::kPrepend:
      return text.empty() ? text : step.to + text;
    case NormalizeStep::kReplace:
      if (text.size() / step.from.size() * step.to.size() > kMaxBytes) {
        return absl::ResourceExhaustedError("normalised text becomes too long");
      }
      return absl::StrReplaceAll(text, {{step.from, step.to}});
    case NormalizeStep::kReplaceRegex:
      return ReplaceMatches(text, *regex, step.to);
  }
  return text;
}

}  // namespace

size_t SpaceAtBegin(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = StepUtf8(text.substr(at));
    if (!IsSpace(step.point)) break;
    at += step.bytes;
  }
  return at;
}

size_t SpaceAtEnd(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!IsSpace(StepUtf8(text.substr(begin)).point)) break;
    end = begin;
  }
  return text.size() - end;
}

absl::StatusOr<Normalizer> Normalizer::Create(std::vector<NormalizeStep> steps) {
  Normalizer normalizer;
  for (NormalizeStep& step : steps) {
    std::optional<Regex> regex;
    if (step.kind == NormalizeStep::kReplaceRegex) {
      ASSIGN_OR_RETURN(regex, Regex::Compile(step.from));
    }
    if (step.kind == NormalizeStep::kReplace && step.from.empty()) {
      return absl::InvalidArgumentError("a normalizer replaces the empty text");
    }
    normalizer.steps_.push_back({std::move(step), std::move(regex)});
  }
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Run(std::string_view text) const {
  std::string normal(text);
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(normal, Apply(step.step, step.regex, std::move(normal)));
    if (normal.size() > kMaxBytes) {
      return absl::ResourceExhaustedError("normalised text becomes too long");
    }
  }
  return normal;
}

}  // namespace athanor
