#include "compiler/egraph/match/query.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/egraph/match/plan.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::egraph {

// Flattens premises into the atoms of a query.
class QueryBuilder {
 public:
  QueryBuilder(const Language& language, Query* query) : language_(language), query_(*query) {}

  absl::Status AddPremise(const std::string& text) {
    ASSIGN_OR_RETURN(Equation equation, ParseEquation(language_, text, &query_.variables_));
    const Pattern& pattern = equation.pattern;
    if (pattern.nodes.back().is_variable()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "premise \"", text, "\": expected an operator, a variable alone is any class"));
    }
    std::vector<uint32_t> roots(pattern.nodes.size());  // variable of each node
    for (size_t i = 0; i < pattern.nodes.size(); ++i) {
      const PatternNode& node = pattern.nodes[i];
      if (node.is_variable()) {
        roots[i] = node.variable;
        continue;
      }
      const bool named = i + 1 == pattern.nodes.size() && equation.root != Variables::kNone;
      roots[i] = named ? equation.root : query_.variables_.AddNameless(VariableKind::kClass);
    }
    if (query_.root_ == Variables::kNone) query_.root_ = roots.back();
    // From the root down, so that patterns with the same beginning get plans with the same
    // beginning.
    for (size_t i = pattern.nodes.size(); i-- > 0;) {
      if (pattern.nodes[i].is_variable()) continue;
      RETURN_IF_ERROR(AddAtom(pattern.nodes[i], roots, roots[i]));
    }
    return absl::OkStatus();
  }

  absl::Status AddCondition(Condition condition) {
    for (const std::string& name : condition.variables()) {
      if (query_.variables_.Find(name) != Variables::kNone) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("condition \"", condition.name(), "\": no premise has a variable ?", name));
    }
    query_.conditions_.push_back(std::move(condition));
    return absl::OkStatus();
  }

  void AddPlans() {
    for (size_t i = 0; i < query_.atoms_.size(); ++i) {
      query_.full_plans_.push_back(MakePlan(query_, i, /*delta=*/false));
      query_.delta_plans_.push_back(MakePlan(query_, i, /*delta=*/true));
    }
  }

 private:
  absl::Status AddAtom(const PatternNode& node, const std::vector<uint32_t>& roots, uint32_t root) {
    Atom atom{.op = node.op, .root = root};
    for (const uint32_t child : node.children) atom.children.push_back(roots[child]);
    atom.payload = node.payload;
    atom.payload_variable = node.payload_variable;
    atom.rest = node.rest_variable;
    if (atom.rest != Variables::kNone) {
      for (const Atom& other : query_.atoms_) {
        if (other.rest != atom.rest) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "variable ?", query_.variables_[atom.rest].name, "... occurs twice in the premises"));
      }
      query_.variables_[atom.rest].rest_begin = static_cast<uint32_t>(atom.children.size());
    }
    query_.atoms_.push_back(std::move(atom));
    return absl::OkStatus();
  }

  const Language& language_;
  Query& query_;
};

absl::StatusOr<Query> MakeQuery(const Language& language, const std::vector<std::string>& premises,
                                std::vector<Condition> conditions) {
  if (premises.empty()) return absl::InvalidArgumentError("a rule needs at least one premise");
  Query query;
  QueryBuilder builder(language, &query);
  for (const std::string& premise : premises) {
    RETURN_IF_ERROR(builder.AddPremise(premise));
  }
  for (Condition& condition : conditions) {
    RETURN_IF_ERROR(builder.AddCondition(std::move(condition)));
  }
  builder.AddPlans();
  return query;
}

}  // namespace athanor::egraph
