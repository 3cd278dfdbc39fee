#include "server/text/base/regex.h"

#include <pcre2.h>

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/base/utf8.h"

namespace athanor {
namespace {

constexpr size_t kMaxPattern = 10'000;       // bytes
constexpr uint32_t kMatchLimit = 1'000'000;  // backtracks of one match
constexpr uint32_t kHeapLimit = 64 << 10;    // KiB of one match

absl::Status Unknown(std::string_view what, std::string_view pattern) {
  return absl::UnimplementedError(
      Cat("the regular expression ", Quoted(pattern), " uses ", Quoted(what),
          ", which this server does not know to read as its authors do"));
}

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Rewrites a pattern piece by piece.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    if (pattern_.size() > kMaxPattern) {
      return absl::InvalidArgumentError(
          Cat("a regular expression of ", pattern_.size(), " bytes; at most ", kMaxPattern));
    }
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      const bool begins = std::exchange(begins_, false);
      if (c == '\\') {
        RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        RETURN_IF_ERROR(InClass(c));
      } else if (c == '[') {
        in_class_ = true;
        Copy(Starts("[^") ? 2 : 1);
        if (Starts("]")) return Unknown("[]", pattern_);
      } else if (c == '(') {
        RETURN_IF_ERROR(Group(begins));
      } else if (c == '{') {
        RETURN_IF_ERROR(Repeat());
      } else if (c == '^') {  // there: of a line, but for an empty one at the end
        Write(1, "(?:\\A|(?<=\\n)(?!\\z))");
      } else if (c == '$') {
        Write(1, "(?=\\n|\\z)");
      } else {
        begins_ = c == '|';
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  bool Starts(std::string_view what) const { return pattern_.substr(at_).starts_with(what); }

  void Copy(size_t bytes) {
    out_.append(pattern_.substr(at_, bytes));
    at_ += bytes;
  }

  void Write(size_t read, std::string_view text) {
    out_.append(text);
    at_ += read;
  }

  absl::Status InClass(char c) {
    // Oniguruma nests classes and intersects them.
    if (c == '[') return Unknown("[ in a class", pattern_);
    if (Starts("&&")) return Unknown("&&", pattern_);
    if (c == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // Copies what opens a group, and (?i) at the begin of a branch: elsewhere Oniguruma takes all
  // branches that follow into it, x(?i)a|b being x(?i:a|b).
  absl::Status Group(bool begins) {
    begins_ = true;
    if (!Starts("(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"}) {
      if (!Starts(known)) continue;
      if (known == "(?i)" && !begins) return Unknown("(?i) inside a branch", pattern_);
      Copy(known.size());
      return absl::OkStatus();
    }
    return Unknown(pattern_.substr(at_, 3), pattern_);
  }

  // Copies {n}, {n,} or {n,m}. What follows it may mean something else in Oniguruma.
  absl::Status Repeat() {
    size_t end = at_ + 1;
    while (end < pattern_.size() && (absl::ascii_isdigit(pattern_[end]) || pattern_[end] == ',')) {
      ++end;
    }
    const bool counts =
        end < pattern_.size() && pattern_[end] == '}' && end > at_ + 1 && pattern_[at_ + 1] != ',';
    if (!counts) return Unknown("{", pattern_);
    const bool exact = pattern_.substr(at_, end - at_).find(',') == std::string_view::npos;
    Copy(end + 1 - at_);
    if (exact && Starts("?")) return Unknown("}?", pattern_);  // there: {n}, or nothing
    if (Starts("+")) return Unknown("}+", pattern_);
    return absl::OkStatus();
  }

  absl::Status Escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      // PCRE2's \s has U+180E besides White_Space, and its \w is not Alphabetic.
      case 's':
        Write(2, "\\p{White_Space}");
        return absl::OkStatus();
      case 'S':
        Write(2, "\\P{White_Space}");
        return absl::OkStatus();
      case 'w':
        Write(2, in_class_ ? kWord : Cat("[", kWord, "]"));
        return absl::OkStatus();
      case 'W':
        if (in_class_) return Unknown("\\W in a class", pattern_);
        Write(2, Cat("[^", kWord, "]"));
        return absl::OkStatus();
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
        Copy(2);
        return absl::OkStatus();
      case 'v':
        Write(2, "\\x0B");
        return absl::OkStatus();
      case 'u':
        return Point();
      case 'p':
      case 'P':
        return Property(c);
      default:
        if (!absl::ascii_ispunct(static_cast<unsigned char>(c))) break;
        Copy(2);
        return absl::OkStatus();
    }
    return Unknown(Cat("\\", c == '\0' ? "" : std::string(1, c)), pattern_);
  }

  // Reads \uXXXX.
  absl::Status Point() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() != 4) return Unknown("\\u", pattern_);
    for (char digit : digits) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return Unknown("\\u", pattern_);
    }
    Write(6, Cat("\\x{", digits, "}"));
    return absl::OkStatus();
  }

  // Reads \p{..}: categories as they are; scripts without their extensions, which PCRE2 adds.
  absl::Status Property(char p) {
    const size_t end = pattern_.find('}', at_);
    if (pattern_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) {
      return Unknown(pattern_.substr(at_, 3), pattern_);
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const std::string_view no = name.starts_with("^") ? "^" : "";
    name.remove_prefix(no.size());
    for (char letter : name) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(letter)) && letter != '_') {
        return Unknown(pattern_.substr(at_, end + 1 - at_), pattern_);
      }
    }
    const std::string_view kind = name.size() > 2 ? "sc:" : "";
    Write(end + 1 - at_, Cat("\\", std::string(1, p), "{", no, kind, name, "}"));
    return absl::OkStatus();
  }

  // Oniguruma has Latin-1's superscript digits and fractions among the characters of words, too.
  static constexpr std::string_view kWord =
      "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE";

  const std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool begins_ = true;  // at_ is where a branch begins
};

// Scratch of a thread: one range is all that is asked.
struct MatchScratch {
  MatchScratch()
      : data(pcre2_match_data_create(1, nullptr)), context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimit);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  pcre2_match_data* data;
  pcre2_match_context* context;
};

}  // namespace

struct Regex::Code {
  Code(pcre2_code* code, std::string pattern) : code(code), pattern(std::move(pattern)) {}
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code;
  std::string pattern;
};

absl::StatusOr<std::string> TranslatePattern(std::string_view pattern) {
  return Translator(pattern).Run();
}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  // As Oniguruma's Ruby syntax: ^ and $ match at lines, which end by \n.
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(
      Bytes(translated), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(
        Cat("the regular expression ", Quoted(pattern),
            " does not compile: ", reinterpret_cast<const char*>(message)));
  }
  Regex regex;
  regex.code_ = std::make_shared<const Code>(code, std::string(pattern));
  // Without it, matching is slower and means the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

absl::Status Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  static thread_local const MatchScratch scratch;
  matches->clear();
  std::optional<size_t> last;  // where the last match ended
  for (size_t at = 0; at <= text.size();) {
    int found = pcre2_match(code_->code, Bytes(text), text.size(), at, PCRE2_NO_UTF_CHECK,
                            scratch.data, scratch.context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->code, Bytes(text), text.size(), at,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.data, scratch.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return absl::ResourceExhaustedError(
          Cat("the text takes the regular expression ", Quoted(code_->pattern),
              " of the tokenizer more than ", kMatchLimit, " steps at byte ", at));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data);
    // An empty match right behind another one is none.
    if (range[1] > range[0] || last != range[0]) matches->push_back({range[0], range[1]});
    last = range[1];
    at = range[1];
    if (range[1] == range[0]) {
      if (at == text.size()) break;
      at += StepUtf8(text.substr(at)).bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
