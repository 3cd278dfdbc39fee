#include "compiler/egraph/match/rule.h"

#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;

std::string Error(RuleSpec spec) {
  const Math math;
  const auto rule = MakeRule(math.language(), std::move(spec));
  return rule.ok() ? "" : std::string(rule.status().message());
}

TEST(Rule, ErrorsNameTheRuleAndWhatIsWrong) {
  EXPECT_THAT(Error({.name = "r", .premises = {"(sin ?x)"}}),
              HasSubstr("rule \"r\": it concludes nothing"));
  EXPECT_THAT(Error({.name = "r", .premises = {"(sin ?x)"}, .conclusions = {"?y"}}),
              HasSubstr("conclusion \"?y\": no premise has a variable ?y"));
  EXPECT_THAT(Error({.name = "r", .premises = {"(sin ?x)"}, .conclusions = {"(sin ?_)"}}),
              HasSubstr("no premise has a variable ?_"));
  EXPECT_THAT(Error({.name = "r", .premises = {"(sin ?x)"}, .conclusions = {"?q = ?x"}}),
              HasSubstr("variable ?q"));
  EXPECT_THAT(Error({.name = "r", .premises = {"(tan ?x)"}, .conclusions = {"?x"}}),
              HasSubstr("rule \"r\": \"(tan ?x)\""));
  EXPECT_THAT(Error({.name = "r", .premises = {"(sin ?x)"}, .conclusions = {"(round[?x] 1)"}}),
              HasSubstr("?x stands for a class and for a payload"));
  const Math math;
  const RuleSpec row{.name = "r", .premises = {"(sin ?x)"}, .conclusions = {"?x"}};
  EXPECT_THAT(MakeRules(math.language(), {row, row}).status().ToString(),
              HasSubstr("declared twice"));
}

TEST(Rule, SeveralPremisesAndConclusions) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId p = math.Add(&graph, "(* x a)"), q = math.Add(&graph, "(* x b)");
  const auto rules = MakeRules(
      math.language(),
      {{.name = "merge",
        .premises = {"?p = (* ?x ?a)", "?q = (* ?x ?b)"},
        .conclusions = {"?p = (round[1] (list ?x ?a ?b))", "?q = (round[2] (list ?x ?a ?b))"}}});
  ASSERT_TRUE(rules.ok()) << rules.status();
  const Report report = Runner(&graph, *rules).Run();
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  EXPECT_EQ(report.rules[0].matches, 4u);  // including each with itself
  EXPECT_EQ(math.Lookup(graph, "(round[1] (list x a b))"), graph.Find(p));
  EXPECT_EQ(math.Lookup(graph, "(round[2] (list x a b))"), graph.Find(q));
}

TEST(Rule, AppliersAddWhatTemplatesCannot) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId sum = math.Add(&graph, "(list a b (sin c))");
  // Rewrites a list as nested sums.
  const Applier fold = [](const Match& m, Rewriter* rewriter) -> absl::Status {
    ClassId total = m.Class("first");
    const auto rest = m.Rest("rest");
    const std::vector<ClassId> classes(rest.begin(), rest.end());  // Add moves the span
    for (const ClassId c : classes) {
      const absl::StatusOr<ClassId> next = rewriter->Add(OpId{kAdd}, {}, {total, c});
      if (!next.ok()) return next.status();
      total = *next;
    }
    return rewriter->Union(m.Class("root"), total);
  };
  const auto rules = MakeRules(
      math.language(),
      {{.name = "fold", .premises = {"?root = (list ?first ?rest...)"}, .apply = fold, .tag = 5}});
  ASSERT_TRUE(rules.ok()) << rules.status();
  const Report report = Runner(&graph, *rules).Run();
  EXPECT_EQ(math.Lookup(graph, "(+ (+ a b) (sin c))"), graph.Find(sum));
  EXPECT_EQ(report.rules[0].unions, 1u);
  EXPECT_EQ(report.rules[0].nodes, 2u);
  EXPECT_EQ(report.rules[0].tag, 5u);
}

}  // namespace
}  // namespace athanor::egraph
