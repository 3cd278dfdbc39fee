// A reading position in a text. Skips white space and `#` comments, takes words, names, numbers and
// expressions, and reports errors by line. Private to text_*.cc.
//
//   TextCursor in("dim b in [1, 64]");
//   in.TakeWord("dim");  absl::StatusOr<std::string_view> name = in.Word();
#ifndef ATHANOR_COMPILER_IR_GRAPH_TEXT_CURSOR_H_
#define ATHANOR_COMPILER_IR_GRAPH_TEXT_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph/op.h"

namespace athanor {

class TextCursor {
 public:
  // Borrows the text, which must outlive the cursor.
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool AtEnd() { return Peek() == '\0' && at_ >= text_.size(); }
  char Peek();  // next character that is no white space or comment; 0 at the end
  bool Take(char c);
  // Takes a whole word: "in" does not match the start of "input".
  bool TakeWord(std::string_view word);
  absl::Status Expect(char c);

  // Returns letters, digits, '_' and '.', not starting with a digit; "" if there are none.
  std::string_view PeekWord();
  absl::StatusOr<std::string_view> Word(std::string_view what);
  absl::StatusOr<std::string> String(std::string_view what);
  // Reads the bytes of a string such as "0aff", which may be long.
  absl::StatusOr<std::string> HexString();
  absl::StatusOr<int64_t> Integer();
  // Takes the text up to the next ',', closing bracket or white space: one number of any kind, such
  // as -1.5e3, inf or nan(0x7fc0).
  std::string_view Number();
  absl::StatusOr<DType> DTypeWord();

  // Read lists in brackets, such as [1, 2] and [b, 2*b + 1].
  absl::StatusOr<std::vector<int64_t>> Integers();
  absl::StatusOr<std::vector<Expr>> Expressions(char open, char close);

  // Errors name the line of the current position, or of an earlier one.
  size_t position() const { return at_; }
  absl::Status Error(std::string_view message) const { return ErrorAt(at_, message); }
  absl::Status ErrorAt(size_t position, std::string_view message) const;

 private:
  absl::StatusOr<Expr> Expression();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_GRAPH_TEXT_CURSOR_H_
