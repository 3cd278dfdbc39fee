// The left-hand side of a rule: premises joined over variables, and conditions on the matches.
//
//   Query q = *MakeQuery(language, {"?p = (* ?x ?y)", "?q = (* ?x ?z)"},
//                        {Condition("different", {"y", "z"}, [](const Match& m) {
//                          return m.Class("y") != m.Class("z");
//                        })});
//
// A premise is flattened into atoms, one per operator, as in relational e-matching (Zhang et al.,
// POPL 2022): (* ?a (+ ?b ?c)) is `?root = *(?a, ?s), ?s = +(?b, ?c)`. Atoms match rows of the
// operators' tables, so a query is a join. It is planned once: for each possible first atom, the
// others follow in the order with the smallest search.
#ifndef ATHANOR_COMPILER_EGRAPH_MATCH_QUERY_H_
#define ATHANOR_COMPILER_EGRAPH_MATCH_QUERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/egraph/graph/ids.h"
#include "compiler/egraph/graph/language.h"
#include "compiler/egraph/graph/variables.h"
#include "compiler/egraph/match/pattern.h"

namespace athanor::egraph {

// A test on some variables of a match, run as soon as these have values. It may read payloads and
// the analysis' values of the classes, and nothing further away, because incremental matching runs
// it again only if one of these changed. (To require that a class holds a certain node, use a
// premise.) Copies share the test; rules that use copies of one condition run it once while their
// patterns are equal.
class Condition {
 public:
  using Test = std::function<bool(const Match&)>;

  // Without `variables`, the test runs last and sees all variables of the rule.
  Condition(std::string name, std::vector<std::string> variables, Test test)
      : body_(
            std::make_shared<Body>(Body{std::move(name), std::move(variables), std::move(test)})) {}

  const std::string& name() const { return body_->name; }
  const std::vector<std::string>& variables() const { return body_->variables; }
  bool Holds(const Match& match) const { return body_->test(match); }
  bool SameAs(const Condition& other) const { return body_ == other.body_; }

 private:
  struct Body {
    std::string name;
    std::vector<std::string> variables;
    Test test;
  };
  std::shared_ptr<const Body> body_;
};

// The atom root = op[payload](children, rest...), over indexes of variables.
struct Atom {
  OpId op;
  uint32_t root;
  std::vector<uint32_t> children;
  uint32_t rest = Variables::kNone;
  PayloadId payload;
  uint32_t payload_variable = Variables::kNone;
};

// Rows of a table that a step may take; "new" is relative to the epoch of a run.
enum class Window : uint8_t { kAll, kNew, kOld };

// A value of a row, and its register.
struct Column {
  enum class Use : uint8_t {
    kBind,  // sets the register
    kKey,   // equals the register, which an earlier step set; rows can be looked up by it
    kSame,  // equals the register, which this step sets
  };
  Use use;
  uint32_t reg;

  bool operator==(const Column&) const = default;
};

// A level of the nested loops: the rows of a table that agree with known values, or a condition.
struct JoinStep {
  // --- for rows
  OpId op;
  Window window = Window::kAll;
  Column root{};
  std::vector<Column> children;
  bool has_rest = false;
  uint32_t rest_reg = 0;  // set to the node
  PayloadId payload;      // required payload, if valid
  bool has_payload_column = false;
  Column payload_column{};
  // --- for a condition
  std::shared_ptr<const Condition> condition;
  Variables condition_variables;
  std::vector<uint32_t> condition_regs;

  // True if both do the same for all register values, so that two plans may share the step.
  bool SameAs(const JoinStep& other) const;
};

struct Plan {
  std::vector<JoinStep> steps;
  std::vector<uint32_t> registers;  // by variable
};

class Query {
 public:
  const Variables& variables() const { return variables_; }
  const std::vector<Atom>& atoms() const { return atoms_; }
  const std::vector<Condition>& conditions() const { return conditions_; }
  // Returns the variable of the first premise's root.
  uint32_t root() const { return root_; }

  // Returns the plan for all matches that starts with this atom.
  const Plan& full_plan(size_t first) const { return full_plans_[first]; }
  // Returns the plan for matches whose rows are new in atom `first` and old in the atoms before it.
  // Together, these plans find every match with a new row once (semi-naive evaluation).
  const Plan& delta_plan(size_t first) const { return delta_plans_[first]; }

 private:
  friend absl::StatusOr<Query> MakeQuery(const Language&, const std::vector<std::string>&,
                                         std::vector<Condition>);
  friend class QueryBuilder;

  Variables variables_;
  std::vector<Atom> atoms_;
  std::vector<Condition> conditions_;
  uint32_t root_ = Variables::kNone;
  std::vector<Plan> full_plans_;
  std::vector<Plan> delta_plans_;
};

// Returns INVALID_ARGUMENT for no premises, a premise without an operator, a rest variable that
// occurs twice, a condition on an unknown variable, or an error of ParseEquation.
absl::StatusOr<Query> MakeQuery(const Language& language, const std::vector<std::string>& premises,
                                std::vector<Condition> conditions = {});

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATCH_QUERY_H_
