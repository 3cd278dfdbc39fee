// Patterns: terms with variables, for matching and for building.
//
//   Variables variables;
//   ParsePattern(language, "(* ?a (+ ?b ?c))", &variables);
//   ParsePattern(language, "(round[?n] ?x)", &variables);     // a payload variable
//   ParsePattern(language, "(round[2] ?_)", &variables);      // a payload; any class
//   ParsePattern(language, "(list ?x ?xs...)", &variables);   // one child or more
//
// A variable that occurs twice has the same class or payload both times; `?_` and `[_]` match any.
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_PATTERN_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/variables.h"

namespace athanor::egraph {

// A class variable, or an operator over earlier nodes of the pattern.
struct PatternNode {
  uint32_t variable = Variables::kNone;  // if set, the fields below are unused
  OpId op;
  PayloadId payload;  // required payload; invalid if there is none or a variable for it
  uint32_t payload_variable = Variables::kNone;
  std::vector<uint32_t> children;
  uint32_t rest_variable = Variables::kNone;  // for all further children

  bool is_variable() const { return variable != Variables::kNone; }
};

// Children before parents; the last node is the root.
struct Pattern {
  std::vector<PatternNode> nodes;
};

// The equation `?root = pattern`; root is kNone if it is omitted.
struct Equation {
  uint32_t root = Variables::kNone;
  Pattern pattern;
};

// Both add the variables that they meet. INVALID_ARGUMENT says what the language lacks, what is
// malformed, or which variable is used with two kinds.
absl::StatusOr<Pattern> ParsePattern(const Language& language, const std::string& text,
                                     Variables* variables);
absl::StatusOr<Equation> ParseEquation(const Language& language, const std::string& text,
                                       Variables* variables);

std::string PatternText(const Language& language, const Pattern& pattern,
                        const Variables& variables);

// Returns the class of the pattern with the match's values, adding missing nodes. Errors are those
// of EGraph::Add.
absl::StatusOr<ClassId> AddPattern(EGraph* graph, const Pattern& pattern, const Match& match,
                                   Cause cause);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_PATTERN_H_
