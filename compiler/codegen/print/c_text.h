// Text of the C family, as every dialect writes it.
//
//   CodeText code;
//   code.Open("if (", condition, ")");
//   code.Line(Call("store", {"b0 + i", "v1"}), ";");
//   code.Close();
#ifndef ATHANOR_COMPILER_CODEGEN_PRINT_C_TEXT_H_
#define ATHANOR_COMPILER_CODEGEN_PRINT_C_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor::kir {

// Returns "item(0), item(1), ..." with n items.
template <typename Item>
std::string List(int n, Item item) {
  std::string text;
  for (int i = 0; i < n; ++i) text += Cat(i == 0 ? "" : ", ", item(i));
  return text;
}

// Returns "name(a, b)".
inline std::string Call(std::string_view name, const std::vector<std::string>& args) {
  return Cat(name, "(", List(static_cast<int>(args.size()), [&](int i) { return args[i]; }), ")");
}

// Return "(a + b)" and "(condition ? a : b)".
inline std::string Infix(std::string_view a, std::string_view op, std::string_view b) {
  return Cat("(", a, " ", op, " ", b, ")");
}
inline std::string Choose(std::string_view condition, std::string_view a, std::string_view b) {
  return Cat("(", condition, " ? ", a, " : ", b, ")");
}

// Lines of statements in nested blocks, each block indented by two spaces more.
class CodeText {
 public:
  template <typename... T>
  void Line(const T&... pieces) {
    text_.append(indent_, ' ');
    text_ += Cat(pieces..., "\n");
  }
  // Begins a block with the line "head {"; Close ends it.
  template <typename... T>
  void Open(const T&... head) {
    Line(head..., " {");
    indent_ += 2;
  }
  void Close() {
    indent_ -= 2;
    Line("}");
  }
  // Appends a line of the preprocessor, which is not indented.
  void Directive(std::string_view line) { text_ += Cat(line, "\n"); }

  const std::string& text() const { return text_; }

 private:
  int indent_ = 0;
  std::string text_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_PRINT_C_TEXT_H_
