// Rules: patterns to match, and nodes and equalities to add for each match.
//
//   Rule distribute = *MakeRule(language, {.name = "distribute",
//                                          .premises = {"(* ?a (+ ?b ?c))"},
//                                          .conclusions = {"(+ (* ?a ?b) (* ?a ?c))"}});
//   // Several premises, several conclusions:
//   Rule merge = *MakeRule(language, {.name = "merge",
//                                     .premises = {"?p = (* ?x ?a)", "?q = (* ?x ?b)"},
//                                     .conclusions = {"?p = (first (both ?x ?a ?b))",
//                                                     "?q = (second (both ?x ?a ?b))"}});
//
// A rule only adds: nodes, and equalities between classes.
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_RULE_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_RULE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/egraph/graph/egraph.h"
#include "compiler/egraph/match/pattern.h"
#include "compiler/egraph/match/query.h"

namespace athanor::egraph {

// Lets an applier change the e-graph on behalf of its rule.
class Rewriter {
 public:
  Rewriter(EGraph* graph, Cause cause) : graph_(*graph), cause_(cause) {}

  const EGraph& graph() const { return graph_; }
  absl::StatusOr<ClassId> Add(OpId op, PayloadId payload, absl::Span<const ClassId> children) {
    return graph_.Add(op, payload, children, cause_);
  }
  absl::StatusOr<ClassId> Add(const Pattern& pattern, const Match& match) {
    return AddPattern(&graph_, pattern, match, cause_);
  }
  absl::Status Union(ClassId a, ClassId b) {
    const absl::StatusOr<bool> united = graph_.Union(a, b, cause_);
    if (united.ok()) num_unions_ += *united;
    return united.status();
  }
  uint64_t num_unions() const { return num_unions_; }

 private:
  EGraph& graph_;
  const Cause cause_;
  uint64_t num_unions_ = 0;
};

// Called with each match, between matching and rebuilding. An error means that the match was not
// (fully) applied: it is counted, and the next match follows. May read the payloads and values of
// the match's classes. Its additions must not depend on anything further away, because it is not
// called again when that changes.
using Applier = std::function<absl::Status(const Match&, Rewriter*)>;

struct RuleSpec {
  std::string name;
  std::vector<std::string> premises;  // "pattern" or "?root = pattern"
  // Same form; a conclusion without a root is equal to the first premise.
  std::vector<std::string> conclusions = {};
  std::vector<Condition> conditions = {};
  Applier apply = nullptr;  // runs after the conclusions, or instead of them
  uint32_t tag = 0;         // set by the user; the engine only reports it
  // Matches per iteration before the rule is banned for a while; 0: the runner's limit.
  uint64_t match_limit = 0;
};

struct Rule {
  std::string name;
  Query query;
  std::vector<Equation> conclusions;  // roots are never kNone
  Applier apply;
  uint32_t tag = 0;
  uint64_t match_limit = 0;

  // Reports whether a changed value of the analysis may change what this rule does.
  bool reads_values() const { return apply != nullptr || !query.conditions().empty(); }
};

// INVALID_ARGUMENT names the rule: an error of MakeQuery or ParseEquation, a conclusion with a
// variable that no premise has, or a rule that concludes nothing.
absl::StatusOr<Rule> MakeRule(const Language& language, RuleSpec spec);

// Makes all rules, or returns the first error; two rules with the same name are an error.
absl::StatusOr<std::vector<Rule>> MakeRules(const Language& language, std::vector<RuleSpec> specs);

// Applies the rule to one of its matches.
absl::Status Apply(const Rule& rule, const Match& match, Rewriter* rewriter);

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_RULE_H_
