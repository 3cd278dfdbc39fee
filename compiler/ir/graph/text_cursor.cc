#include "compiler/ir/graph/text_cursor.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// Returns -1 for any other character.
int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

absl::Status TextCursor::ErrorAt(size_t position, std::string_view message) const {
  const size_t at = std::min(position, text_.size());
  const auto line = 1 + std::count(text_.begin(), text_.begin() + at, '\n');
  return Invalid("line ", line, ": ", message);
}

char TextCursor::Peek() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    } else if (!IsSpace(text_[at_])) {
      return text_[at_];
    }
  }
  return '\0';
}

bool TextCursor::Take(char c) {
  if (Peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

absl::Status TextCursor::Expect(char c) {
  if (Take(c)) return absl::OkStatus();
  const std::string found = AtEnd() ? "the end" : Quoted(text_.substr(at_, 1));
  return Error(Cat("expected '", std::string(1, c), "', found ", found));
}

std::string_view TextCursor::PeekWord() {
  if (!IsWordStart(Peek())) return "";
  size_t end = at_;
  while (end < text_.size() &&
         (IsWordStart(text_[end]) || IsDigit(text_[end]) || text_[end] == '.')) {
    ++end;
  }
  return text_.substr(at_, end - at_);
}

bool TextCursor::TakeWord(std::string_view word) {
  if (PeekWord() != word) return false;
  at_ += word.size();
  return true;
}

absl::StatusOr<std::string_view> TextCursor::Word(std::string_view what) {
  const std::string_view word = PeekWord();
  if (word.empty()) return Error(Cat("expected ", what));
  at_ += word.size();
  return word;
}

absl::StatusOr<std::string> TextCursor::String(std::string_view what) {
  if (!Take('"')) return Error(Cat("expected ", what, " in quotes"));
  const size_t begin = at_;
  for (; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == '\\') ++at_;
  }
  if (at_ >= text_.size() || text_[at_] != '"') return Error(Cat(what, " has no closing quote"));
  const std::string_view raw = text_.substr(begin, at_ - begin);
  std::string value, error;
  if (!absl::CUnescape(absl::string_view(raw.data(), raw.size()), &value, &error)) {
    return Error(Cat(what, ": ", error));
  }
  ++at_;
  return value;
}

absl::StatusOr<std::string> TextCursor::HexString() {
  if (!Take('"')) return Error("expected hexadecimal bytes in quotes");
  const std::string_view digits = text_.substr(at_, text_.substr(at_).find('"'));
  if (at_ + digits.size() == text_.size()) return Error("hexadecimal bytes have no closing quote");
  std::string bytes(digits.size() / 2, '\0');
  bool valid = digits.size() % 2 == 0;
  for (size_t i = 0; i < bytes.size() && valid; ++i) {
    const int high = HexDigit(digits[2 * i]), low = HexDigit(digits[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    bytes[i] = static_cast<char>(high << 4 | low);
  }
  if (!valid) return Error("expected two hexadecimal digits for each byte");
  at_ += digits.size() + 1;
  return bytes;
}

absl::StatusOr<int64_t> TextCursor::Integer() {
  Peek();
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) return Error("expected an integer of at most 64 bits");
  at_ += end - begin;
  return value;
}

std::string_view TextCursor::Number() {
  Peek();
  const size_t begin = at_;
  int open = 0;
  for (; at_ < text_.size() && !IsSpace(text_[at_]); ++at_) {
    const char c = text_[at_];
    if (c == '(') ++open;
    if (open == 0 && (c == ',' || c == ')' || c == ']' || c == '}')) break;
    if (c == ')') --open;
  }
  return text_.substr(begin, at_ - begin);
}

absl::StatusOr<DType> TextCursor::DTypeWord() {
  ASSIGN_OR_RETURN(std::string_view word, Word("a dtype"));
  const std::optional<DType> dtype = ParseDType(word);
  if (!dtype) return Error(Cat(Quoted(word), " is not a dtype"));
  return *dtype;
}

absl::StatusOr<std::vector<int64_t>> TextCursor::Integers() {
  std::vector<int64_t> values;
  RETURN_IF_ERROR(Expect('['));
  if (Take(']')) return values;
  do {
    ASSIGN_OR_RETURN(int64_t value, Integer());
    values.push_back(value);
  } while (Take(','));
  RETURN_IF_ERROR(Expect(']'));
  return values;
}

absl::StatusOr<Expr> TextCursor::Expression() {
  Peek();
  const size_t begin = at_;
  int open = 0;
  for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    const char c = text_[at_];
    if (open == 0 && (c == ',' || c == ')' || c == ']')) break;
    open += (c == '(') - (c == ')');
  }
  absl::StatusOr<Expr> expr = Expr::Parse(text_.substr(begin, at_ - begin));
  if (!expr.ok()) return Error(std::string(expr.status().message()));
  return expr;
}

absl::StatusOr<std::vector<Expr>> TextCursor::Expressions(char open, char close) {
  std::vector<Expr> values;
  RETURN_IF_ERROR(Expect(open));
  if (Take(close)) return values;
  do {
    ASSIGN_OR_RETURN(Expr value, Expression());
    values.push_back(std::move(value));
  } while (Take(','));
  RETURN_IF_ERROR(Expect(close));
  return values;
}

}  // namespace athanor
