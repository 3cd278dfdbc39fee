#include "compiler/egraph/match/pattern.h"

#include "compiler/egraph/match/query.h"
#include "compiler/egraph/math_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;

std::string Error(const std::string& text) {
  const Math math;
  Variables variables;
  const auto equation = ParseEquation(math.language(), text, &variables);
  return equation.ok() ? "" : std::string(equation.status().message());
}

TEST(Pattern, TextRoundTrips) {
  const Math math;
  for (const std::string text :
       {"?x", "(+ ?x ?x)", "(* ?a (+ ?b 2))", "(round[?n] (round[2] ?x))", "(round[?_] ?_)",
        "(list ?xs...)", "(list ?x 1 ?xs...)", "num[?n]", "(list x)"}) {
    Variables variables;
    const absl::StatusOr<Pattern> pattern = ParsePattern(math.language(), text, &variables);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    EXPECT_EQ(PatternText(math.language(), *pattern, variables), text);
  }
}

TEST(Pattern, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(Error("(+ ?x)"), HasSubstr("+ takes 2 children"));
  EXPECT_THAT(Error("(?f ?x)"), HasSubstr("\"?f\" is a variable"));
  EXPECT_THAT(Error("(sin ?)"), HasSubstr("without a name"));
  EXPECT_THAT(Error("(round ?x)"), HasSubstr("round needs a payload"));
  EXPECT_THAT(Error("(sin[?p] ?x)"), HasSubstr("sin takes no payload"));
  EXPECT_THAT(Error("(round[?x] ?x)"), HasSubstr("?x stands for a payload and for a class"));
  EXPECT_THAT(Error("(list ?xs... ?x)"), HasSubstr("not the last child of list"));
  EXPECT_THAT(Error("(+ ?xs...)"), HasSubstr("fixed number of children"));
  EXPECT_THAT(Error("?x y = (sin ?x)"), HasSubstr("one variable before the \"=\""));
  EXPECT_THAT(Error("?x = "), HasSubstr("expected an operator"));
}

TEST(Pattern, EquationsNameTheirRoot) {
  const Math math;
  Variables variables;
  const auto named = ParseEquation(math.language(), " ?r = (sin ?x)", &variables);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->root, variables.Find("r"));
  const auto nameless = ParseEquation(math.language(), "(sin ?r)", &variables);
  ASSERT_TRUE(nameless.ok());
  EXPECT_EQ(nameless->root, Variables::kNone);
  EXPECT_EQ(variables.size(), 2u);
}

TEST(Pattern, AddsWhatTheMatchSays) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId a = math.Add(&graph, "a"), list = math.Add(&graph, "(list a b c)");
  graph.Rebuild();
  Variables variables;
  const auto pattern =
      ParsePattern(math.language(), "(+ (round[?n] ?x) (list 7 ?rest...))", &variables);
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  variables[variables.Find("rest")].rest_begin = 1;
  const std::vector<uint32_t> values = {math.Number(3).value, a.value, graph.nodes(list)[0].value};
  const auto added = AddPattern(&graph, *pattern, Match(&graph, &variables, values), Cause::kUser);
  ASSERT_TRUE(added.ok()) << added.status();
  graph.Rebuild();
  EXPECT_EQ(math.Lookup(graph, "(+ (round[3] a) (list 7 b c))"), *added);
}

TEST(Match, WrongNamesGiveInvalidIds) {
  const Math math;
  EGraph graph(&math.language());
  Variables variables;
  ASSERT_TRUE(variables.Intern("x", VariableKind::kClass).ok());
  const std::vector<uint32_t> values = {0};
  const Match match(&graph, &variables, values);
  EXPECT_FALSE(match.Class("y").valid());
  EXPECT_FALSE(match.Payload("x").valid());
  EXPECT_TRUE(match.Rest("x").empty());
}

TEST(Query, ErrorsNameWhatIsWrong) {
  const Math math;
  const auto error = [&](const std::vector<std::string>& premises,
                         std::vector<Condition> conditions = {}) {
    const auto query = MakeQuery(math.language(), premises, std::move(conditions));
    return query.ok() ? "" : std::string(query.status().message());
  };
  EXPECT_THAT(error({}), HasSubstr("at least one premise"));
  EXPECT_THAT(error({"?x"}), HasSubstr("a variable alone is any class"));
  EXPECT_THAT(error({"(list ?xs...)", "(list 1 ?xs...)"}), HasSubstr("?xs... occurs twice"));
  const Condition condition("odd", {"n"}, [](const Match&) { return true; });
  EXPECT_THAT(error({"(sin ?x)"}, {condition}), HasSubstr("\"odd\": no premise has a variable ?n"));
  EXPECT_EQ(error({"(round[?n] ?x)"}, {condition}), "");
}

TEST(Query, PlansLookUpWhatIsKnown) {
  const Math math;
  const auto query = MakeQuery(math.language(), {"?p = (* ?x ?y)", "?q = (+ ?x ?y)", "(sin ?q)"});
  ASSERT_TRUE(query.ok()) << query.status();
  const Plan& plan = query->full_plan(0);
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[0].op, OpId{kMul});
  EXPECT_EQ(plan.steps[1].op, OpId{kAdd});  // both children known
  EXPECT_EQ(plan.steps[2].op, OpId{kSin});
  const Plan& delta = query->delta_plan(1);
  EXPECT_EQ(delta.steps[0].op, OpId{kAdd});
  EXPECT_EQ(delta.steps[0].window, Window::kNew);
  EXPECT_EQ(delta.steps[1].op, OpId{kMul});
  EXPECT_EQ(delta.steps[1].window, Window::kOld);
  EXPECT_EQ(delta.steps[2].window, Window::kAll);
}

}  // namespace
}  // namespace athanor::egraph
