// The rules are those of jinja2's lexer.py (3.1.6): which tag strips what, numbers, names, strings.
#include "server/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/text/jinja/characters.h"

namespace athanor::jinja {
namespace {

bool IsNameByte(char c) {
  return std::isalnum(static_cast<uint8_t>(c)) != 0 || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

// One newline at the end is no text, and all newlines are "\n".
std::string Normalised(absl::string_view source) {
  std::string text = absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}});
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(Normalised(source)) {}

  absl::StatusOr<std::vector<Token>> Run();

 private:
  absl::string_view rest() const { return absl::string_view(source_).substr(at_); }
  bool Starts(absl::string_view with) const { return rest().substr(0, with.size()) == with; }
  void Advance(size_t bytes);
  void SkipSpace();
  void Add(Token::Kind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
  }
  // Adds [at_, end) as text, stripped as the tag at `end` asks, and moves behind that tag's sign.
  void AddText(size_t end, bool lstrip);
  // Returns how long "raw" or "endraw" with its tag is behind the sign at `at`; 0 if it is not
  // that.
  size_t Word(absl::string_view word, size_t at) const;
  void EndTag(bool trim);

  absl::Status Comment();
  absl::Status Raw();
  absl::Status Code(bool print);
  absl::StatusOr<bool> CodeEnd(bool print);
  absl::Status NextToken();
  absl::Status Number();
  absl::Status String();
  absl::Status Escape(std::string* text);
  absl::Status Operator();

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
  std::string open_;  // brackets of the code that are open
};

void Lexer::Advance(size_t bytes) {
  line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + bytes, '\n'));
  at_ += bytes;
}

void Lexer::SkipSpace() { Advance(Strip(rest(), true, false).begin); }

void Lexer::AddText(size_t end, bool lstrip) {
  const absl::string_view text = rest().substr(0, end - at_);
  const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
  size_t keep = text.size();
  if (sign == '-') {
    keep = Strip(text, false, true).end;
  } else if (lstrip && sign != '+') {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == absl::string_view::npos ? 0 : newline + 1;
    const bool begins_line = start > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    const absl::string_view last = text.substr(start);
    if (begins_line && Strip(last, true, false).begin == last.size()) keep = start;
  }
  if (keep > 0) Add(Token::kText, std::string(text.substr(0, keep)));
  Advance(text.size() + 2);
  if (sign == '-' || sign == '+') Advance(1);
}

size_t Lexer::Word(absl::string_view word, size_t at) const {
  const absl::string_view all = source_;
  const auto skip = [&] { at += Strip(all.substr(at), true, false).begin; };
  const size_t from = at;
  skip();
  if (all.substr(at, word.size()) != word) return 0;
  at += word.size();
  skip();
  const absl::string_view tail = all.substr(at);
  return tail.substr(0, 2) == "%}" || tail.substr(0, 3) == "-%}" ||
                 (word == "endraw" && tail.substr(0, 3) == "+%}")
             ? at - from
             : 0;
}

// Moves behind the end of a tag ("%}" with its sign) and the white space that goes with it.
void Lexer::EndTag(bool trim) {
  const bool strips = Starts("-");
  const bool keeps = Starts("+");
  Advance(strips || keeps ? 3 : 2);
  if (strips) {
    SkipSpace();
  } else if (trim && !keeps && Starts("\n")) {
    Advance(1);
  }
}

absl::StatusOr<std::vector<Token>> Lexer::Run() {
  while (at_ < source_.size()) {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) break;
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') break;
    }
    if (tag == std::string::npos) {
      Add(Token::kText, std::string(rest()));
      Advance(rest().size());
      break;
    }
    const char kind = source_[tag + 1];
    AddText(tag, kind != '{');
    if (kind == '#') {
      RETURN_IF_ERROR(Comment());
    } else if (kind == '%' && Word("raw", at_) > 0) {
      RETURN_IF_ERROR(Raw());
    } else {
      RETURN_IF_ERROR(Code(kind == '{'));
    }
  }
  Add(Token::kEnd);
  return std::move(tokens_);
}

absl::Status Lexer::Comment() {
  const size_t end = source_.find("#}", at_);
  if (end == std::string::npos) return SyntaxError(line_, "a comment has no end, \"#}\"");
  const char sign = end > at_ ? source_[end - 1] : ' ';
  Advance(end - at_ - (sign == '-' || sign == '+' ? 1 : 0));
  EndTag(true);
  return absl::OkStatus();
}

absl::Status Lexer::Raw() {
  Advance(Word("raw", at_));
  EndTag(false);
  for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
       tag = source_.find("{%", tag + 1)) {
    const size_t sign = tag + 2;
    const bool has = sign < source_.size() && (source_[sign] == '-' || source_[sign] == '+');
    if (Word("endraw", sign + (has ? 1 : 0)) == 0) continue;
    AddText(tag, true);
    Advance(Word("endraw", at_));
    EndTag(true);
    return absl::OkStatus();
  }
  return SyntaxError(line_, "a raw block has no end, \"{% endraw %}\"");
}

absl::Status Lexer::Code(bool print) {
  const int line = line_;
  Add(print ? Token::kPrint : Token::kTag);
  for (;;) {
    ASSIGN_OR_RETURN(const bool ended, CodeEnd(print));
    if (ended) return absl::OkStatus();
    if (at_ >= source_.size()) {
      return SyntaxError(line, absl::StrCat("a tag has no end, \"", print ? "}}" : "%}", "\""));
    }
    if (const size_t space = Strip(rest(), true, false).begin; space > 0) {
      Advance(space);
      continue;
    }
    RETURN_IF_ERROR(NextToken());
  }
}

absl::StatusOr<bool> Lexer::CodeEnd(bool print) {
  const absl::string_view end = print ? "}}" : "%}";
  if (!open_.empty()) return false;
  if (!Starts(end) && !Starts(absl::StrCat("-", end)) && (print || !Starts("+%}"))) return false;
  Add(print ? Token::kPrintEnd : Token::kTagEnd);
  EndTag(!print);
  return true;
}

absl::Status Lexer::NextToken() {
  const char c = source_[at_];
  if (IsDecimal(c)) return Number();
  if (c == '"' || c == '\'') return String();
  if (!IsNameByte(c)) return Operator();
  size_t length = 0;
  while (length < rest().size() && IsNameByte(rest()[length])) ++length;
  const std::string name(rest().substr(0, length));
  if (!std::all_of(name.begin(), name.end(),
                   [](char b) { return static_cast<uint8_t>(b) < 0x80; })) {
    return LacksError(line_, absl::StrCat("the name \"", name, "\": only ASCII names are served"));
  }
  Add(Token::kName, name);
  Advance(length);
  return absl::OkStatus();
}

// 12, 1_000, 0x1f, 0b1, 0o7; 1.5, 1e3, 2.5e-3. Behind a dot there are only integers.
absl::Status Lexer::Number() {
  const absl::string_view text = rest();
  const auto digits = [&](size_t at, auto is) {
    while (at < text.size() && (is(text[at]) || (text[at] == '_' && at + 1 < text.size() &&
                                                 is(text[at + 1]) && at > 0)))
      ++at;
    return at;
  };
  const auto decimal = [](char c) { return IsDecimal(c); };
  size_t end = digits(0, decimal);
  bool real = false;
  if (at_ == 0 || source_[at_ - 1] != '.') {
    if (end + 1 < text.size() && text[end] == '.' && IsDecimal(text[end + 1])) {
      end = digits(end + 1, decimal);
      real = true;
    }
    size_t e = end;
    if (e < text.size() && (text[e] == 'e' || text[e] == 'E')) {
      ++e;
      if (e < text.size() && (text[e] == '+' || text[e] == '-')) ++e;
      if (e < text.size() && IsDecimal(text[e])) {
        end = digits(e, decimal);
        real = true;
      }
    }
  }
  Token token{real ? Token::kFloat : Token::kInt, line_};
  std::string number = absl::StrReplaceAll(text.substr(0, end), {{"_", ""}});
  if (real) {
    if (!absl::SimpleAtod(number, &token.real)) return SyntaxError(line_, "a bad number");
  } else if (text[0] == '0' && text.size() > 1 && std::isalpha(static_cast<uint8_t>(text[1]))) {
    return LacksError(line_, "a number that is not decimal");
  } else if (text[0] == '0' && number.find_first_not_of('0') != std::string::npos) {
    return SyntaxError(line_, "a decimal number begins with 0");
  } else if (!absl::SimpleAtoi(number, &token.integer)) {
    return LacksError(line_, "an integer of more than 64 bits");
  }
  tokens_.push_back(std::move(token));
  Advance(end);
  if (at_ < source_.size() && IsNameByte(source_[at_])) {
    return SyntaxError(line_, "a name begins with a digit");
  }
  return absl::OkStatus();
}

absl::Status Lexer::String() {
  const int line = line_;
  const char quote = source_[at_];
  std::string text;
  Advance(1);
  while (at_ < source_.size() && source_[at_] != quote) {
    if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
      RETURN_IF_ERROR(Escape(&text));
    } else {
      text += source_[at_];
      Advance(1);
    }
  }
  if (at_ >= source_.size()) return SyntaxError(line, "a string has no end");
  Advance(1);
  tokens_.push_back({Token::kString, line, std::move(text)});
  return absl::OkStatus();
}

// Python's escapes; of one that it does not know, the backslash stays.
absl::Status Lexer::Escape(std::string* text) {
  static constexpr absl::string_view kPlain = "\n\\'\"abfnrtv";
  static constexpr std::array<absl::string_view, 11> kMeans = {"",   "\\", "'",  "\"", "\a", "\b",
                                                               "\f", "\n", "\r", "\t", "\v"};
  const char c = source_[at_ + 1];
  if (const size_t plain = kPlain.find(c); plain != absl::string_view::npos) {
    text->append(kMeans[plain].data(), kMeans[plain].size());
    Advance(2);
    return absl::OkStatus();
  }
  if (c == 'N') return LacksError(line_, "the escape \\N in a string");
  int most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  const bool octal = c >= '0' && c <= '7';
  if (most == 0 && !octal) {
    *text += '\\';
    Advance(1);
    return absl::OkStatus();
  }
  uint32_t code = 0;
  size_t end = at_ + (octal ? 1 : 2);
  int count = 0;
  for (; count < (octal ? 3 : most) && end < source_.size(); ++count, ++end) {
    const char digit = source_[end];
    if (octal ? (digit < '0' || digit > '7') : std::isxdigit(static_cast<uint8_t>(digit)) == 0)
      break;
    const int worth = IsDecimal(digit) ? digit - '0' : (digit | 32) - 'a' + 10;
    code = code * (octal ? 8 : 16) + static_cast<uint32_t>(worth);
  }
  if (!octal && count < most) {
    return SyntaxError(line_, absl::StrCat("the escape \\", std::string(1, c), " wants ", most,
                                           " hexadecimal digits"));
  }
  if (code > 0x10FFFF) return SyntaxError(line_, "an escape of no code point");
  if (code >= 0xD800 && code < 0xE000) return LacksError(line_, "an escape of half a code point");
  AppendCodePoint(code, text);
  Advance(end - at_);
  return absl::OkStatus();
}

absl::Status Lexer::Operator() {
  static constexpr absl::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
  for (const absl::string_view two : kTwo) {
    if (!Starts(two)) continue;
    Add(Token::kOperator, std::string(two));
    Advance(2);
    return absl::OkStatus();
  }
  const char c = source_[at_];
  if (absl::string_view("+-/*%~[](){}><=.:|,;").find(c) == absl::string_view::npos) {
    return SyntaxError(line_, absl::StrCat("the character '", std::string(1, c), "' in a tag"));
  }
  if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
  if (c == ')' || c == ']' || c == '}') {
    if (open_.empty() || open_.back() != c) {
      return SyntaxError(line_, absl::StrCat("'", std::string(1, c), "' closes nothing"));
    }
    open_.pop_back();
  }
  Add(Token::kOperator, std::string(1, c));
  Advance(1);
  return absl::OkStatus();
}

}  // namespace

absl::Status SyntaxError(int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the chat template, line ", line, ": ", what));
}

absl::Status LacksError(int line, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("the chat template, line ", line, ": not supported: ", what));
}

absl::StatusOr<std::vector<Token>> Tokens(absl::string_view source) { return Lexer(source).Run(); }

}  // namespace athanor::jinja
