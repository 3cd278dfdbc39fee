// The text form of expressions.
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::IsLetter;
using expr_internal::Magnitude;

// Long enough for the largest expression that a graph may hold, with the longest names.
constexpr size_t kMaxText = 128 << 10;
constexpr int kMaxNesting = 64;
// Number of terms that all intermediate results of one text may have together; real texts need a
// few hundred.
constexpr int64_t kMaxWork = 1 << 18;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Recursive descent:
//   sum     = ["-"] product {("+" | "-") product}
//   product = factor {"*" factor}
//   factor  = integer | symbol | function "(" sum "," sum ")" | "(" sum ")" | "-" factor
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Expr> Parse() {
    absl::StatusOr<Expr> e = Sum(0);
    if (e.ok() && Peek() != '\0') return Error("an operator or the end");
    if (e.ok() && at_ < text_.size()) return Error("no zero byte");
    return e;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  absl::Status Error(const char* expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("expression: expected ", expected, " at byte ", at_));
  }

  absl::StatusOr<Expr> Checked(Expr e) {
    work_ += 1 + static_cast<int64_t>(e.terms().size());
    if (e.overflow() || work_ > kMaxWork) {
      return absl::InvalidArgumentError(
          absl::StrCat("expression: too large before byte ", at_,
                       "; coefficients must fit in 64 bits, terms in 4096 and degrees in 64"));
    }
    return e;
  }

  absl::StatusOr<Expr> Sum(int depth) {
    if (depth > kMaxNesting) {
      return absl::InvalidArgumentError(
          absl::StrCat("expression: nested deeper than ", kMaxNesting, " levels at byte ", at_));
    }
    absl::StatusOr<Expr> sum = Product(Take('-'), depth);
    while (sum.ok()) {
      const bool minus = Peek() == '-';
      if (!minus && Peek() != '+') break;
      ++at_;
      absl::StatusOr<Expr> next = Product(minus, depth);
      if (!next.ok()) return next;
      sum = Checked(*sum + *next);
    }
    return sum;
  }

  // The sign goes to the first factor, so that -9223372036854775808 can be read.
  absl::StatusOr<Expr> Product(bool negative, int depth) {
    absl::StatusOr<Expr> product = Factor(negative, depth);
    while (product.ok() && Take('*')) {
      absl::StatusOr<Expr> next = Factor(false, depth);
      if (!next.ok()) return next;
      product = Checked(*product * *next);
    }
    return product;
  }

  absl::StatusOr<Expr> Factor(bool negative, int depth) {
    while (Take('-')) negative = !negative;
    const char c = Peek();
    if (IsDigit(c)) return Integer(negative);
    absl::StatusOr<Expr> factor;
    if (IsLetter(c)) {
      factor = Named(depth);
    } else if (Take('(')) {
      factor = Sum(depth + 1);
      if (factor.ok() && !Take(')')) return Error("')'");
    } else {
      return Error("a number, a symbol or '('");
    }
    if (factor.ok() && negative) return Checked(Expr(-1) * *factor);
    return factor;
  }

  absl::StatusOr<Expr> Integer(bool negative) {
    int64_t value = 0;
    for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_) {
      const int digit = text_[at_] - '0';
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, negative ? -digit : digit, &value)) {
        return Error("an integer of at most 64 bits");
      }
    }
    return Expr(value);
  }

  absl::StatusOr<Expr> Named(int depth) {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (IsLetter(text_[at_]) || IsDigit(text_[at_]) || text_[at_] == '.')) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!Take('(')) {
      if (Expr::IsSymbolName(name)) return Expr::Symbol(name);
      at_ = begin;
      return Error("a shorter symbol name");
    }
    static constexpr std::pair<std::string_view, Expr (*)(const Expr&, const Expr&)> kFunctions[] =
        {{"floordiv", FloorDiv},
         {"min", MinOf},
         {"max", MaxOf},
         {"mod", Mod},
         {"ceildiv", CeilDiv}};
    auto function = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                 [&](const auto& row) { return row.first == name; });
    if (function == std::end(kFunctions)) {
      at_ = begin;
      return Error("floordiv, min, max, mod or ceildiv before '('");
    }
    absl::StatusOr<Expr> a = Sum(depth + 1);
    if (!a.ok()) return a;
    if (!Take(',')) return Error("','");
    absl::StatusOr<Expr> b = Sum(depth + 1);
    if (!b.ok()) return b;
    if (!Take(')')) return Error("')'");
    return Checked(function->second(*a, *b));
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t work_ = 0;
};

}  // namespace

std::string Expr::ToString() const {
  if (overflow_) return "<overflow>";
  if (terms().empty()) return "0";
  std::string text;
  for (const Term& term : terms()) {
    const bool negative = term.coefficient < 0;
    if (text.empty()) {
      if (negative) text += '-';
    } else {
      text += negative ? " - " : " + ";
    }
    const uint64_t magnitude = Magnitude(term.coefficient);
    bool first = true;
    if (magnitude != 1 || term.monomial.empty()) {
      absl::StrAppend(&text, magnitude);
      first = false;
    }
    for (const AtomRef& atom : term.monomial) {
      if (!first) text += '*';
      text += atom->key;
      first = false;
    }
  }
  return text;
}

absl::StatusOr<Expr> Expr::Parse(std::string_view text) {
  if (text.size() > kMaxText) {
    return absl::InvalidArgumentError(
        absl::StrCat("expression: ", text.size(), " bytes of text, the limit is ", kMaxText));
  }
  return Parser(text).Parse();
}

}  // namespace athanor
