#include "server/text/tokens/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/characters.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 30;

absl::Status TooLong() { return absl::ResourceExhaustedError("normalised text becomes too long"); }

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// Returns a text without the code points that `drops` names.
std::string Without(std::string_view text, bool (*drops)(uint32_t)) {
  if (IsAscii(text)) return std::string(text);  // none of those that are asked for
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const Utf8Step step = StepUtf8(text.substr(at));
    bytes = step.bytes;
    if (!drops(step.point)) out.append(text.substr(at, bytes));
  }
  return out;
}

std::string BertClean(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const Utf8Step step = StepUtf8(text.substr(at));
    bytes = step.bytes;
    if (IsBertDropped(step.point)) continue;
    if (IsSpace(step.point)) {
      out.push_back(' ');
    } else {
      out.append(text.substr(at, bytes));
    }
  }
  return out;
}

std::string BertHan(std::string_view text) {
  if (IsAscii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const Utf8Step step = StepUtf8(text.substr(at));
    bytes = step.bytes;
    const bool han = IsBertHan(step.point);
    if (han) out.push_back(' ');
    out.append(text.substr(at, bytes));
    if (han) out.push_back(' ');
  }
  return out;
}

int ClassOf(utf8proc_int32_t c) {  // by which marks are ordered; 0: no mark
  return utf8proc_get_property(c)->combining_class;
}

// Orders neighbouring marks by their class, equal ones as they stand. utf8proc's own way takes the
// square of their number.
void OrderMarks(std::vector<utf8proc_int32_t>* points) {
  constexpr int kClasses = 256;
  const auto is_mark = [](utf8proc_int32_t c) { return ClassOf(c) != 0; };
  const auto ahead = [](utf8proc_int32_t a, utf8proc_int32_t b) { return ClassOf(a) < ClassOf(b); };
  std::vector<utf8proc_int32_t> run;
  for (auto begin = points->begin(); begin != points->end();) {
    begin = std::find_if(begin, points->end(), is_mark);
    const auto end = std::find_if_not(begin, points->end(), is_mark);
    if (!std::is_sorted(begin, end, ahead)) {
      std::array<ptrdiff_t, kClasses + 1> at{};  // where the marks of a class go
      for (auto mark = begin; mark != end; ++mark) ++at[ClassOf(*mark) + 1];
      std::partial_sum(at.begin(), at.end(), at.begin());
      run.assign(begin, end);
      for (const utf8proc_int32_t mark : run) begin[at[ClassOf(mark)]++] = mark;
    }
    begin = end;
  }
}

// Appends the form of a text; `points` is scratch.
void AppendForm(std::string_view text, utf8proc_option_t options,
                std::vector<utf8proc_int32_t>* points, std::string* out) {
  constexpr size_t kMost = 32;  // the longest decomposition has 18
  points->clear();
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = StepUtf8(text.substr(at));
    at += step.bytes;
    utf8proc_int32_t parts[kMost];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.point), parts, kMost, options, &boundary);
    points->insert(points->end(), parts, parts + std::min<utf8proc_ssize_t>(count, kMost));
  }
  OrderMarks(points);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      points->data(), static_cast<utf8proc_ssize_t>(points->size()), options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char((*points)[i], bytes);
    out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

// Returns a Unicode form. ASCII stays as it is and joins with nothing ahead of it, so each text
// between is formed by itself, with the ASCII character that it may join.
std::string UnicodeForm(std::string_view text, int options) {
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  std::vector<utf8proc_int32_t> points;
  std::string out;
  out.reserve(text.size());
  for (const char* at = text.data(); at != text.data() + text.size();) {
    const char* const all = text.data() + text.size();
    const char* const other = std::find_if_not(at, all, is_ascii);
    const char* const begin = other == all || other == at ? other : other - 1;
    const char* const end = std::find_if(other, all, is_ascii);
    out.append(at, begin);
    if (begin != end) {
      AppendForm({begin, static_cast<size_t>(end - begin)},
                 static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE), &points, &out);
    }
    at = end;
  }
  return out;
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
    return TooLong();
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

// Returns the bytes of the cluster of characters ("grapheme") that `text` begins with, which is not
// empty.
size_t ClusterBytes(std::string_view text) {
  utf8proc_int32_t state = 0;
  Utf8Step last = StepUtf8(text);
  size_t at = last.bytes;
  while (at < text.size()) {
    const Utf8Step next = StepUtf8(text.substr(at));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.point),
                                         static_cast<utf8proc_int32_t>(next.point), &state)) {
      break;
    }
    at += next.bytes;
    last = next;
  }
  return at;
}

// Applies a charsmap as HF's tokenizers 0.23.3 do: to small clusters whole, then to characters;
// what begins with a text of the map is replaced, whatever stands behind it.
absl::StatusOr<std::string> Precompiled(std::string_view text, const Charsmap& charsmap) {
  constexpr size_t kSmallCluster = 6;
  std::string out;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = at + ClusterBytes(text.substr(at));
    const std::string_view cluster = text.substr(at, end - at);
    if (out.size() > kMaxBytes) return TooLong();
    if (cluster.size() < kSmallCluster) {
      if (const auto rule = charsmap.Shortest(cluster)) {
        out.append(rule->to);
        continue;
      }
    }
    for (size_t i = 0, bytes = 0; i < cluster.size(); i += bytes) {
      bytes = StepUtf8(cluster.substr(i)).bytes;
      const std::string_view one = cluster.substr(i, bytes);
      const auto rule = charsmap.Shortest(one);
      out.append(rule ? rule->to : one);
      if (out.size() > kMaxBytes) return TooLong();
    }
  }
  return out;
}

// Applies a charsmap as SentencePiece 0.2.3 does (normalizer.cc), but for its prefix: the longest
// text of the map, or one character, at a time.
absl::StatusOr<std::string> Normalized(std::string_view text, const Charsmap* charsmap,
                                       const PieceTrie& kept, bool strips) {
  constexpr std::string_view kSpaces[] = {" ", "\xE2\x96\x81"};
  std::string out;
  bool space = strips;  // what is ahead ends with one
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const std::string_view rest = text.substr(at);
    bytes = 0;
    if (!kept.empty()) kept.Find(rest, [&](size_t length, int32_t) { bytes = length; });
    std::string_view piece = rest.substr(0, bytes);
    if (bytes == 0) {
      const auto rule = charsmap == nullptr ? std::nullopt : charsmap->Longest(rest);
      bytes = rule ? rule->bytes : StepUtf8(rest).bytes;
      piece = rule ? rule->to : rest.substr(0, bytes);
    }
    while (space && piece.starts_with(' ')) piece.remove_prefix(1);
    out.append(piece);
    if (strips && !piece.empty()) space = piece.ends_with(' ');
    if (out.size() > kMaxBytes) return TooLong();
  }
  for (bool again = strips; again;) {
    again = false;
    for (const std::string_view end : kSpaces) {
      if (!out.ends_with(end)) continue;
      out.resize(out.size() - end.size());
      again = true;
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> Normalizer::Apply(const Step& applied, std::string text) {
  const NormalizeStep& step = applied.step;
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
        return TooLong();
      }
      return absl::StrReplaceAll(text, {{step.from, step.to}});
    case NormalizeStep::kReplaceRegex:
      return ReplaceMatches(text, *applied.regex, step.to);
    case NormalizeStep::kBertClean:
      return BertClean(text);
    case NormalizeStep::kBertHan:
      return BertHan(text);
    case NormalizeStep::kDropNonspacing:
      return Without(text, &IsNonspacingMark);
    case NormalizeStep::kDropMarks:
      return Without(text, &IsMark);
    case NormalizeStep::kPrecompiled:
      return Precompiled(text, *applied.charsmap);
    case NormalizeStep::kCharsmap:
      return Normalized(text, applied.charsmap ? &*applied.charsmap : nullptr, applied.kept,
                        step.strips);
  }
  return text;
}

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
    Step made;
    if (step.kind == NormalizeStep::kReplaceRegex) {
      ASSIGN_OR_RETURN(made.regex, Regex::Compile(step.from));
    }
    if (step.kind == NormalizeStep::kPrecompiled ||
        (step.kind == NormalizeStep::kCharsmap && !step.from.empty())) {
      ASSIGN_OR_RETURN(made.charsmap, Charsmap::Create(step.from));
      step.from.clear();
    }
    if (!step.kept.empty()) {
      std::vector<std::pair<std::string_view, int32_t>> kept;
      for (const std::string& text : step.kept) kept.emplace_back(text, 0);
      made.kept = PieceTrie::Create(std::move(kept));
    }
    if (step.kind == NormalizeStep::kReplace && step.from.empty()) {
      return absl::InvalidArgumentError("a normalizer replaces the empty text");
    }
    made.step = std::move(step);
    normalizer.steps_.push_back(std::move(made));
  }
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Run(std::string_view text) const {
  std::string normal(text);
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(normal, Apply(step, std::move(normal)));
    if (normal.size() > kMaxBytes) {
      return TooLong();
    }
  }
  return normal;
}

}  // namespace athanor
