// S-expressions with payloads: the common syntax of terms and patterns, without the meaning that a
// language gives it.
//
//   expression := atom | "(" head expression* ")"
//   atom, head := text | text "[" payload "]"
//
// A payload ends at its matching bracket; brackets inside double quotes do not count.
#ifndef ATHANOR_COMPILER_EGRAPH_GRAPH_SEXPR_H_
#define ATHANOR_COMPILER_EGRAPH_GRAPH_SEXPR_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace athanor::egraph {

struct Sexpr {
  std::string head;
  std::optional<std::string> payload;
  bool atom = false;  // without parentheses
  std::vector<Sexpr> children;
};

// INVALID_ARGUMENT says at which character what was expected, or that the nesting exceeds 500.
absl::StatusOr<Sexpr> ParseSexpr(const std::string& text);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_GRAPH_SEXPR_H_
