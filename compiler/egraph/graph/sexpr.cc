#include "compiler/egraph/graph/sexpr.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

constexpr int kMaxDepth = 500;
constexpr char kBlanks[] = " \t\r\n";

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  absl::StatusOr<Sexpr> ReadAll() {
    absl::StatusOr<Sexpr> expression = Read(0);
    if (expression.ok() && Peek() != '\0') return Error("the end");
    return expression;
  }

 private:
  absl::StatusOr<Sexpr> Read(int depth) {
    if (depth > kMaxDepth) return Error(absl::StrCat("at most ", kMaxDepth, " levels"));
    Sexpr result;
    result.atom = Peek() != '(';
    if (!result.atom) ++at_;
    RETURN_IF_ERROR(ReadHead(&result));
    if (result.atom) return result;
    while (Peek() != ')') {
      if (Peek() == '\0') return Error("')'");
      ASSIGN_OR_RETURN(Sexpr child, Read(depth + 1));
      result.children.push_back(std::move(child));
    }
    ++at_;
    return result;
  }

  absl::Status ReadHead(Sexpr* result) {
    Peek();
    const size_t end = std::min(text_.find_first_of(" \t\r\n()[]", at_), text_.size());
    if (end == at_) return Error("an operator, a literal or a variable");
    result->head = text_.substr(at_, end - at_);
    at_ = end;
    if (at_ == text_.size() || text_[at_] != '[') return absl::OkStatus();
    const size_t begin = ++at_;
    bool quoted = false;
    for (int open = 1; open > 0; ++at_) {
      if (at_ == text_.size()) return Error("']'");
      const char c = text_[at_];
      if (c == '"') quoted = !quoted;
      if (!quoted) open += (c == '[') - (c == ']');
    }
    result->payload = text_.substr(begin, at_ - 1 - begin);
    return absl::OkStatus();
  }

  // Returns the next character that is no blank; '\0' at the end.
  char Peek() {
    at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  absl::Status Error(const std::string& expected) const {
    constexpr size_t kShown = 80;
    const std::string text = text_.size() > kShown ? text_.substr(0, kShown) + "..." : text_;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": expected ", expected, " at character ", at_));
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Sexpr> ParseSexpr(const std::string& text) { return Reader(text).ReadAll(); }

}  // namespace athanor::egraph
