// ParseDimParam and SymbolFor: read the texts that exporters write for sizes.
#include <charconv>
#include <utility>

#include "compiler/frontend/onnx/model/dims.h"

namespace athanor::onnx {
namespace {

constexpr size_t kMaxText = 4096;
constexpr int kMaxDepth = 32;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// sum     = product {("+" | "-") product}
// product = factor {("*" | "/" | "//" | "%") factor}
// factor  = "-" factor | number | symbol | function "(" sum ["," sum] ")" | "(" sum ")"
// A "/" must be inside a floor or a ceiling, which is how torch.export writes it.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Expr> Run() {
    if (text_.size() > kMaxText) return std::nullopt;
    std::optional<Ratio> value = Sum();
    Skip();
    if (!value || at_ != text_.size() || !value->below.IsConstant(1)) return std::nullopt;
    if (value->above.overflow()) return std::nullopt;
    return value->above;
  }

 private:
  struct Ratio {
    Expr above;
    Expr below = 1;
  };
  using Parsed = std::optional<Ratio>;

  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(std::string_view token) {
    Skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Parsed Sum() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    Parsed left = Product();
    while (left) {
      const bool add = Take("+");
      if (!add && !Take("-")) break;
      Parsed right = Product();
      if (!right) return std::nullopt;
      const Expr other = right->above * left->below;
      left = Ratio{left->above * right->below + (add ? other : Expr(-1) * other),
                   left->below * right->below};
    }
    --depth_;
    return left;
  }

  Parsed Product() {
    Parsed left = Factor();
    while (left) {
      Skip();
      if (text_.substr(at_, 2) == "**") return std::nullopt;
      const bool floor = Take("//");
      const char op = floor ? 'f' : Take("*") ? '*' : Take("/") ? '/' : Take("%") ? '%' : 0;
      if (op == 0) break;
      Parsed right = Factor();
      if (!right) return std::nullopt;
      if (op == '*') {
        left = Ratio{left->above * right->above, left->below * right->below};
        continue;
      }
      const Ratio quotient{left->above * right->below, left->below * right->above};
      left = op == '/' ? Checked(quotient) : op == 'f' ? Floor(quotient) : Modulo(*left, *right);
    }
    return left;
  }

  Parsed Factor() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    Parsed value = Primary();
    --depth_;
    return value;
  }

  Parsed Primary() {
    if (Take("-")) {
      Parsed value = Factor();
      if (value) value->above = Expr(-1) * value->above;
      return value;
    }
    if (Take("(")) {
      Parsed value = Sum();
      return Take(")") ? value : std::nullopt;
    }
    Skip();
    if (at_ >= text_.size()) return std::nullopt;
    if (IsDigit(text_[at_])) return Number();
    return IsLetter(text_[at_]) ? Name() : std::nullopt;
  }

  Parsed Number() {
    int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc()) return std::nullopt;
    at_ = stop - text_.data();
    if (at_ < text_.size() && (IsLetter(text_[at_]) || text_[at_] == '.')) return std::nullopt;
    return Ratio{value};
  }

  Parsed Name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (IsLetter(text_[at_]) || IsDigit(text_[at_]) || text_[at_] == '.')) {
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!Take("(")) {
      if (!Expr::IsSymbolName(name)) return std::nullopt;
      return Ratio{Expr::Symbol(name)};
    }
    Parsed a = Sum(), b;
    if (a && Take(",")) {
      b = Sum();
      if (!b) return std::nullopt;
    }
    return a && Take(")") ? Function(name, *a, b) : std::nullopt;
  }

  static Parsed Function(std::string_view name, const Ratio& a, const Parsed& b) {
    if (!b) {
      if (name == "floor") return Floor(a);
      if (name == "ceiling" || name == "ceil") return Ceiling(a);
      return std::nullopt;
    }
    const Ratio quotient{a.above * b->below, a.below * b->above};
    if (name == "floordiv" || name == "FloorDiv") return Floor(quotient);
    if (name == "ceildiv" || name == "CeilDiv") return Ceiling(quotient);
    if (name == "mod" || name == "Mod") return Modulo(a, *b);
    if (!a.below.IsConstant(1) || !b->below.IsConstant(1)) return std::nullopt;
    if (name == "max" || name == "Max") return Ratio{MaxOf(a.above, b->above)};
    if (name == "min" || name == "Min") return Ratio{MinOf(a.above, b->above)};
    return std::nullopt;
  }

  // Divisors must be positive. Only numbers are checked; a symbol is a size.
  static Parsed Checked(const Ratio& ratio) {
    const std::optional<int64_t> below = ratio.below.constant();
    if (below && *below <= 0) return std::nullopt;
    return ratio;
  }
  static Parsed Floor(const Ratio& ratio) {
    if (!Checked(ratio)) return std::nullopt;
    return Ratio{FloorDiv(ratio.above, ratio.below)};
  }
  static Parsed Ceiling(const Ratio& ratio) {
    if (!Checked(ratio)) return std::nullopt;
    return Ratio{CeilDiv(ratio.above, ratio.below)};
  }
  static Parsed Modulo(const Ratio& a, const Ratio& b) {
    if (!a.below.IsConstant(1) || !b.below.IsConstant(1) || !Checked({0, b.above})) {
      return std::nullopt;
    }
    return Ratio{Mod(a.above, b.above)};
  }

  const std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<Expr> ParseDimParam(std::string_view text) { return Parser(text).Run(); }

std::string SymbolFor(std::string_view text) {
  constexpr size_t kMaxSymbol = 200;  // leaves room for a suffix that distinguishes equal names
  std::string symbol;
  if (text.empty() || !IsLetter(text.front())) symbol = "_";
  for (const char c : text.substr(0, kMaxSymbol)) {
    symbol += IsLetter(c) || IsDigit(c) || c == '.' ? c : '_';
  }
  return symbol;
}

}  // namespace athanor::onnx
