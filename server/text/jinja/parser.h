// Parses a template to a tree, with the precedences of jinja2's parser.py (3.1.6).
//
//   ASSIGN_OR_RETURN(Statement::Pointer root, Parse(source));
//
// INVALID_ARGUMENT names the line and what is wrong there; UNIMPLEMENTED, what is not served: some
// statements, filters, tests and methods. A tree is at most kMaxTreeDepth deep. Pure.
#ifndef ATHANOR_SERVER_TEXT_JINJA_PARSER_H_
#define ATHANOR_SERVER_TEXT_JINJA_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/text/jinja/tree.h"

namespace athanor::jinja {

inline constexpr int kMaxTreeDepth = 200;
inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

absl::StatusOr<Statement::Pointer> Parse(absl::string_view source);

}  // namespace athanor::jinja

#endif  // ATHANOR_SERVER_TEXT_JINJA_PARSER_H_
