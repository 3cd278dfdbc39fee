// Parts a template into text and tokens, as Jinja does with trim_blocks and lstrip_blocks.
//
//   ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokens("Hi {{ name }}"));
//   // kText "Hi ", kPrint, kName "name", kPrintEnd, kEnd
//
// White space at tags, comments and raw blocks are dealt with here. Pure, linear in the source.
// INVALID_ARGUMENT names the line and what is wrong there; UNIMPLEMENTED, what we lack.
#ifndef ATHANOR_SERVER_TEXT_JINJA_LEXER_H_
#define ATHANOR_SERVER_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor::jinja {

struct Token {
  enum Kind : uint8_t {
    kText,
    kPrint,     // {{
    kPrintEnd,  // }}
    kTag,       // {%
    kTagEnd,    // %}
    kName,
    kString,
    kInt,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  int line;
  std::string text;  // of a string: without quotes and escapes
  int64_t integer = 0;
  double real = 0;
};

// REQUIRES: `source` is UTF-8.
absl::StatusOr<std::vector<Token>> Tokens(absl::string_view source);

// "line 3: what"; INVALID_ARGUMENT and UNIMPLEMENTED.
absl::Status SyntaxError(int line, absl::string_view what);
absl::Status LacksError(int line, absl::string_view what);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_LEXER_H_
