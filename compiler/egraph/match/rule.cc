#include "compiler/egraph/match/rule.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {
namespace {

absl::Status Wrong(const std::string& rule, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("rule \"", rule, "\": ", what));
}

absl::StatusOr<Equation> ParseConclusion(const Language& language, const std::string& rule,
                                         const std::string& text, const Query& query) {
  // A copy, because a conclusion may use variables but not add any.
  Variables variables = query.variables();
  absl::StatusOr<Equation> equation = ParseEquation(language, text, &variables);
  if (!equation.ok()) return Wrong(rule, std::string(equation.status().message()));
  if (variables.size() > query.variables().size()) {
    const Variable& made = variables[static_cast<uint32_t>(query.variables().size())];
    return Wrong(rule, absl::StrCat("conclusion \"", text, "\": no premise has a variable ?",
                                    made.name.empty() ? "_" : made.name));
  }
  if (equation->root == Variables::kNone) equation->root = query.root();
  return equation;
}

}  // namespace

absl::StatusOr<Rule> MakeRule(const Language& language, RuleSpec spec) {
  absl::StatusOr<Query> query = MakeQuery(language, spec.premises, std::move(spec.conditions));
  if (!query.ok()) return Wrong(spec.name, std::string(query.status().message()));
  if (spec.conclusions.empty() && !spec.apply) return Wrong(spec.name, "it concludes nothing");
  Rule rule{.name = spec.name,
            .query = *std::move(query),
            .conclusions = {},
            .apply = std::move(spec.apply),
            .tag = spec.tag,
            .match_limit = spec.match_limit};
  for (const std::string& text : spec.conclusions) {
    ASSIGN_OR_RETURN(Equation equation, ParseConclusion(language, spec.name, text, rule.query));
    rule.conclusions.push_back(std::move(equation));
  }
  return rule;
}

absl::StatusOr<std::vector<Rule>> MakeRules(const Language& language, std::vector<RuleSpec> specs) {
  std::vector<Rule> rules;
  std::set<std::string> names;
  for (RuleSpec& spec : specs) {
    if (!names.insert(spec.name).second) return Wrong(spec.name, "declared twice");
    ASSIGN_OR_RETURN(Rule rule, MakeRule(language, std::move(spec)));
    rules.push_back(std::move(rule));
  }
  return rules;
}

absl::Status Apply(const Rule& rule, const Match& match, Rewriter* rewriter) {
  for (const Equation& conclusion : rule.conclusions) {
    ASSIGN_OR_RETURN(const ClassId added, rewriter->Add(conclusion.pattern, match));
    RETURN_IF_ERROR(rewriter->Union(match.Class(conclusion.root), added));
  }
  return rule.apply ? rule.apply(match, rewriter) : absl::OkStatus();
}

}  // namespace athanor::egraph
