// Rules over the language of math_testing.h: arithmetic, trigonometry, calculus.
//
//   const std::vector<Rule> rules = MathRules(math, &constants);
#ifndef ATHANOR_COMPILER_EGRAPH_MATH_RULES_TESTING_H_
#define ATHANOR_COMPILER_EGRAPH_MATH_RULES_TESTING_H_

#include <string>
#include <vector>

#include "compiler/egraph/match/rule.h"
#include "compiler/egraph/math_testing.h"

namespace athanor::egraph {

inline Condition IsNumber(const MathConstants* constants, const std::string& variable) {
  return Condition("is a number", {variable}, [constants, variable](const Match& m) {
    return constants->Get(m.graph(), m.Class(variable)).has_value();
  });
}

inline Condition IsNotZero(const MathConstants* constants, const std::string& variable) {
  return Condition("is not zero", {variable}, [constants, variable](const Match& m) {
    return constants->Get(m.graph(), m.Class(variable)).value_or(0) != 0;
  });
}

inline Condition AreDifferent(const std::string& a, const std::string& b) {
  return Condition("are different", {a, b},
                   [a, b](const Match& m) { return m.Class(a) != m.Class(b); });
}

inline std::vector<RuleSpec> MathSpecs(const MathConstants* constants) {
  return {
      {.name = "add commutes", .premises = {"(+ ?a ?b)"}, .conclusions = {"(+ ?b ?a)"}},
      {.name = "mul commutes", .premises = {"(* ?a ?b)"}, .conclusions = {"(* ?b ?a)"}},
      {.name = "add associates",
       .premises = {"(+ ?a (+ ?b ?c))"},
       .conclusions = {"(+ (+ ?a ?b) ?c)"}},
      {.name = "mul associates",
       .premises = {"(* ?a (* ?b ?c))"},
       .conclusions = {"(* (* ?a ?b) ?c)"}},
      {.name = "sub is add", .premises = {"(- ?a ?b)"}, .conclusions = {"(+ ?a (* -1 ?b))"}},
      {.name = "add zero", .premises = {"(+ ?a 0)"}, .conclusions = {"?a"}},
      {.name = "add itself", .premises = {"(+ ?a ?a)"}, .conclusions = {"(* 2 ?a)"}},
      {.name = "mul zero", .premises = {"(* ?a 0)"}, .conclusions = {"0"}},
      {.name = "mul one", .premises = {"(* ?a 1)"}, .conclusions = {"?a"}},
      {.name = "sub itself", .premises = {"(- ?a ?a)"}, .conclusions = {"0"}},
      {.name = "div itself",
       .premises = {"(/ ?a ?a)"},
       .conclusions = {"1"},
       .conditions = {IsNotZero(constants, "a")}},
      {.name = "distribute",
       .premises = {"(* ?a (+ ?b ?c))"},
       .conclusions = {"(+ (* ?a ?b) (* ?a ?c))"}},
      {.name = "factor",
       .premises = {"(+ (* ?a ?b) (* ?a ?c))"},
       .conclusions = {"(* ?a (+ ?b ?c))"}},
      {.name = "mul powers",
       .premises = {"(* (pow ?a ?b) (pow ?a ?c))"},
       .conclusions = {"(pow ?a (+ ?b ?c))"}},
      {.name = "pow one", .premises = {"(pow ?x 1)"}, .conclusions = {"?x"}},
      {.name = "pow two", .premises = {"(pow ?x 2)"}, .conclusions = {"(* ?x ?x)"}},
      {.name = "diff itself", .premises = {"(d ?x ?x)", "?x = sym[_]"}, .conclusions = {"1"}},
      {.name = "diff number",
       .premises = {"(d ?x ?c)", "?x = sym[_]"},
       .conclusions = {"0"},
       .conditions = {IsNumber(constants, "c")}},
      {.name = "diff other",
       .premises = {"(d ?x ?c)", "?x = sym[_]", "?c = sym[_]"},
       .conclusions = {"0"},
       .conditions = {AreDifferent("x", "c")}},
      {.name = "diff add",
       .premises = {"(d ?x (+ ?a ?b))"},
       .conclusions = {"(+ (d ?x ?a) (d ?x ?b))"}},
      {.name = "diff mul",
       .premises = {"(d ?x (* ?a ?b))"},
       .conclusions = {"(+ (* ?a (d ?x ?b)) (* ?b (d ?x ?a)))"}},
      {.name = "diff sin", .premises = {"(d ?x (sin ?x))"}, .conclusions = {"(cos ?x)"}},
      {.name = "diff cos", .premises = {"(d ?x (cos ?x))"}, .conclusions = {"(* -1 (sin ?x))"}},
      {.name = "integral cos", .premises = {"(i (cos ?x) ?x)"}, .conclusions = {"(sin ?x)"}},
      {.name = "integral sin", .premises = {"(i (sin ?x) ?x)"}, .conclusions = {"(* -1 (cos ?x))"}},
      {.name = "integral by parts",
       .premises = {"(i (* ?a ?b) ?x)"},
       .conclusions = {"(- (* ?a (i ?b ?x)) (i (* (d ?x ?a) (i ?b ?x)) ?x))"}},
      {.name = "round twice",
       .premises = {"(round[?n] (round[?n] ?x))"},
       .conclusions = {"(round[?n] ?x)"}},
  };
}

inline std::vector<Rule> RulesOf(const Math& math, std::vector<RuleSpec> specs) {
  absl::StatusOr<std::vector<Rule>> rules = MakeRules(math.language(), std::move(specs));
  EXPECT_TRUE(rules.ok()) << rules.status();
  return rules.ok() ? *std::move(rules) : std::vector<Rule>{};
}

inline std::vector<Rule> MathRules(const Math& math, const MathConstants* constants) {
  return RulesOf(math, MathSpecs(constants));
}

}  // namespace athanor::egraph

#endif  // ATHANOR_COMPILER_EGRAPH_MATH_RULES_TESTING_H_
