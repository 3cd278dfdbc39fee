#include "compiler/egraph/runner.h"

#include "compiler/egraph/graph/dot.h"
#include "compiler/egraph/math_rules_testing.h"
#include "compiler/egraph/math_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// --- start => goal ---

// Checks that the rules find `start` equal to each goal, with all combinations of options.
void Proves(const std::string& start, const std::vector<std::string>& goals,
            RunOptions options = {}) {
  for (const bool incremental : {true, false}) {
    const Math math;
    MathConstants constants(&math);
    EGraph graph(&math.language(), &constants);
    const std::vector<Rule> rules = MathRules(math, &constants);
    const ClassId root = math.Add(&graph, start);
    options.incremental = options.share = incremental;
    options.cancel = [&] {
      if (!graph.clean()) return false;
      bool all = true;
      for (const std::string& goal : goals) all &= math.Lookup(graph, goal) == graph.Find(root);
      return all;
    };
    const Report report = Runner(&graph, rules, options).Run();
    const absl::Status sound = graph.Verify();
    EXPECT_TRUE(sound.ok()) << sound;
    for (const std::string& goal : goals) {
      EXPECT_EQ(math.Lookup(graph, goal), graph.Find(root)) << start << " => " << goal << "\n"
                                                            << ReportText(report);
    }
  }
}

TEST(Math, AssociateAdds) {
  Proves("(+ 1 (+ 2 (+ 3 (+ 4 (+ 5 (+ 6 7))))))", {"(+ 7 (+ 6 (+ 5 (+ 4 (+ 3 (+ 2 1))))))", "28"});
}
TEST(Math, Cancel) { Proves("(+ x (+ y (- z z)))", {"(+ y x)"}); }
TEST(Math, Factor) { Proves("(+ (* x 3) (* x y))", {"(* x (+ y 3))"}); }
TEST(Math, SimplifyAdds) {
  Proves("(+ x (+ x (+ x x)))", {"(* 4 x)"}, {.limits = {.iterations = 12}});
}
TEST(Math, Powers) { Proves("(* (pow 2 x) (pow 2 y))", {"(pow 2 (+ x y))", "(pow 2 (+ y x))"}); }
TEST(Math, DiffSame) { Proves("(d x x)", {"1"}); }
TEST(Math, DiffOther) { Proves("(d x y)", {"0"}); }
TEST(Math, DiffNumber) { Proves("(d x (+ 2 3))", {"0"}); }
TEST(Math, DiffSum) { Proves("(d x (+ 1 (* 2 x)))", {"2"}); }
TEST(Math, DiffProduct) { Proves("(d x (* x y))", {"y"}); }
TEST(Math, IntegralCos) { Proves("(i (cos x) x)", {"(sin x)"}); }
TEST(Math, IntegralByParts) { Proves("(i (* x (cos x)) x)", {"(+ (* x (sin x)) (cos x))"}); }
TEST(Math, DivItselfNeedsANumber) { Proves("(/ (+ 1 1) 2)", {"1"}); }
TEST(Math, Rounds) { Proves("(round[2] (round[2] (round[2] x)))", {"(round[2] x)"}); }

TEST(Math, WhatIsNotEqualStaysApart) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const std::vector<Rule> rules = MathRules(math, &constants);
  const ClassId a = math.Add(&graph, "(/ x x)"), b = math.Add(&graph, "1");
  const ClassId c = math.Add(&graph, "(round[2] (round[3] x))");
  const ClassId d = math.Add(&graph, "(round[2] x)");
  const Report report = Runner(&graph, rules).Run();
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  EXPECT_NE(graph.Find(a), graph.Find(b));
  EXPECT_NE(graph.Find(c), graph.Find(d));
}

// --- Limits ---

class Explosion : public ::testing::Test {
 protected:
  Explosion() { root_ = math_.Add(&graph_, "(+ a (+ b (+ c (+ e (+ f (+ g (+ h k)))))))"); }
  // Associativity and commutativity of eight terms: about 6000 nodes if nothing stops it.
  Report Run(RunOptions options) {
    Report report = Runner(&graph_, rules_, options).Run();
    EXPECT_TRUE(graph_.clean());
    const absl::Status sound = graph_.Verify();
    EXPECT_TRUE(sound.ok()) << sound;
    return report;
  }

  Math math_;
  std::vector<Rule> rules_ = RulesOf(
      math_,
      {{.name = "commutes", .premises = {"(+ ?a ?b)"}, .conclusions = {"(+ ?b ?a)"}},
       {.name = "associates",
        .premises = {"(+ ?a (+ ?b ?c))"},
        .conclusions = {"(+ (+ ?a ?b) ?c)"}},
       {.name = "grows", .premises = {"(sin ?a)"}, .conclusions = {"(+ 0 (sin (cos ?a)))"}}});
  EGraph graph_{&math_.language()};
  ClassId root_;
};

TEST_F(Explosion, Saturates) {
  const Report report = Run({.match_limit = 1'000'000});
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  // Each of the 2^8 - 1 sets of terms is a class; a set of n terms is split in 2^n - 2 ways.
  EXPECT_EQ(graph_.num_classes(), 255u);
  EXPECT_EQ(graph_.num_nodes(), 8u + 6050u);
  EXPECT_EQ(report.iterations.back().nodes, graph_.num_nodes());
  EXPECT_EQ(report.iterations.back().unions, 0u);
}

TEST_F(Explosion, NodeLimit) {
  const Report report = Run({.limits = {.nodes = 500}});
  EXPECT_EQ(report.reason, StopReason::kNodeLimit);
  EXPECT_LE(graph_.num_nodes(), 510u);
}

TEST_F(Explosion, IterationLimit) {
  const Report report = Run({.limits = {.iterations = 3}});
  EXPECT_EQ(report.reason, StopReason::kIterationLimit);
  EXPECT_EQ(report.iterations.size(), 3u);
}

TEST_F(Explosion, ByteLimit) {
  const Report report = Run({.limits = {.bytes = 100'000}, .match_limit = 1'000'000});
  EXPECT_EQ(report.reason, StopReason::kByteLimit);
  EXPECT_LT(graph_.Bytes(), 400'000u);
}

TEST_F(Explosion, MatchesAloneReachTheByteLimit) {
  rules_ = RulesOf(math_, {{.name = "tuples",
                            .premises = {"(+ ?a ?b)", "(+ ?c ?e)", "(+ ?f ?g)", "(+ ?h ?i)",
                                         "(+ ?j ?k)", "(+ ?l ?m)", "(+ ?n ?o)"},
                            .conclusions = {"(+ ?a ?o)"}}});
  const Report report = Run({.limits = {.bytes = 1'000'000}, .match_limit = 1'000'000'000});
  EXPECT_EQ(report.reason, StopReason::kByteLimit);
  EXPECT_EQ(report.rules[0].applied, 0u);
  EXPECT_LT(report.iterations[0].bytes, 4'000'000u);
}

TEST_F(Explosion, TimeLimit) {
  const Report report = Run({.limits = {.time = absl::ZeroDuration()}});
  EXPECT_EQ(report.reason, StopReason::kTimeLimit);
  EXPECT_EQ(graph_.num_nodes(), 15u);
}

TEST_F(Explosion, Cancel) {
  int questions = 0;
  const Report report =
      Run({.match_limit = 1'000'000, .cancel = [&] { return ++questions == 20; }});
  EXPECT_EQ(report.reason, StopReason::kCancelled);
  EXPECT_EQ(questions, 20);
  EXPECT_LT(graph_.num_nodes(), 6058u);
  // A second run continues from there, to the same end.
  EXPECT_EQ(Run({.match_limit = 1'000'000}).reason, StopReason::kSaturated);
  EXPECT_EQ(graph_.num_nodes(), 6058u);
}

TEST_F(Explosion, OneRunnerGoesOnWhereItStopped) {
  Runner runner(&graph_, rules_, {.limits = {.iterations = 2}, .match_limit = 1'000'000});
  int runs = 0;
  while (runner.Run().reason == StopReason::kIterationLimit) ++runs;
  EXPECT_GE(runs, 2);
  EXPECT_EQ(graph_.num_nodes(), 6058u);
  math_.Add(&graph_, "(+ k h)");
  EXPECT_EQ(runner.Run().reason, StopReason::kSaturated);
  EXPECT_EQ(graph_.num_nodes(), 6058u);
}

TEST_F(Explosion, EachRunMayHaveItsLimits) {
  Runner runner(&graph_, rules_, {.match_limit = 1'000'000});
  EXPECT_EQ(runner.Run({.iterations = 2}).iterations.size(), 2u);
  EXPECT_EQ(runner.Run({.nodes = 1000}).reason, StopReason::kNodeLimit);
  EXPECT_EQ(runner.Run().reason, StopReason::kSaturated);
  EXPECT_EQ(graph_.num_nodes(), 6058u);
}

TEST_F(Explosion, BansGrowAndEnd) {
  math_.Add(&graph_, "(sin x)");
  rules_.pop_back();
  const Report report = Run({.limits = {.iterations = 200}, .match_limit = 50, .ban_length = 2});
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  EXPECT_EQ(graph_.num_nodes(), 6058u + 2);
  EXPECT_GT(report.rules[1].bans, 2u);
  EXPECT_GT(report.rules[1].banned_iterations, 0u);
  EXPECT_LT(report.iterations.size(), 100u);  // bans are skipped when nothing else happens
}

TEST_F(Explosion, ARuleThatExplodesDoesNotStarveOthers) {
  const ClassId x = math_.Add(&graph_, "(* y 1)");
  std::vector<RuleSpec> specs = {
      {.name = "pairs",
       .premises = {"(+ ?a ?b)", "(+ ?c ?e)"},
       .conclusions = {"(+ ?a (+ ?b (+ ?c ?e)))"},
       .match_limit = 3},
      {.name = "mul one", .premises = {"(* ?a 1)"}, .conclusions = {"?a"}}};
  rules_ = RulesOf(math_, std::move(specs));
  const Report report = Run({.limits = {.nodes = 2000}});
  EXPECT_GT(report.rules[0].bans, 0u);
  EXPECT_EQ(math_.Lookup(graph_, "y"), graph_.Find(x));
  EXPECT_EQ(report.rules[1].unions, 1u);
}

TEST_F(Explosion, EndlessGrowthIsStopped) {
  math_.Add(&graph_, "(sin x)");
  rules_.erase(rules_.begin(), rules_.begin() + 2);
  EXPECT_EQ(Run({.limits = {.iterations = 100'000, .nodes = 300}}).reason, StopReason::kNodeLimit);
}

TEST(RuleReport, RunsOfARuleAddUp) {
  RuleReport all{.name = "all", .tag = 7, .matches = 1, .last_error = "first"};
  const RuleReport run{.name = "run",
                       .matches = 2,
                       .applied = 3,
                       .errors = 4,
                       .nodes = 5,
                       .unions = 6,
                       .refused = 7,
                       .bans = 8,
                       .banned_iterations = 9,
                       .work = 10,
                       .match_us = 11,
                       .apply_us = 12};
  Accumulate(run, &all);
  Accumulate(run, &all);
  EXPECT_EQ(ReportText({.rules = {all}}), ReportText({.rules = {{.name = "all",
                                                                 .matches = 5,
                                                                 .applied = 6,
                                                                 .nodes = 10,
                                                                 .unions = 12,
                                                                 .refused = 14,
                                                                 .last_error = "first",
                                                                 .bans = 16,
                                                                 .banned_iterations = 18,
                                                                 .match_us = 22,
                                                                 .apply_us = 24}}}));
  EXPECT_EQ(all.tag, 7u);
  EXPECT_EQ(all.errors, 8u);
  EXPECT_EQ(all.work, 20);
  Accumulate({.last_error = "second"}, &all);
  EXPECT_EQ(all.last_error, "second");
}

// --- determinism

// Returns the whole contents of an e-graph, including ids.
std::string Everything(bool incremental, bool share) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const std::vector<Rule> rules = MathRules(math, &constants);
  math.Add(&graph, "(i (* x (+ (cos x) (- x 3))) x)");
  const Report report =
      Runner(
          &graph, rules,
          {.limits = {.iterations = 8, .nodes = 3000}, .incremental = incremental, .share = share})
          .Run();
  EXPECT_GT(graph.num_nodes(), 500u);
  std::string work;
  for (const RuleReport& rule : report.rules) work += std::to_string(rule.work) + " ";
  return DotText(graph, 100'000) + work;
}

TEST(Runner, SameInputSameGraphWithTheSameIds) {
  for (const bool incremental : {false, true}) {
    EXPECT_EQ(Everything(incremental, true), Everything(incremental, true));
    EXPECT_EQ(Everything(incremental, false), Everything(incremental, false));
  }
}

TEST(Runner, IncrementalLooksAtFewerRows) {
  double work[2];
  for (const bool incremental : {false, true}) {
    const Math math;
    MathConstants constants(&math);
    EGraph graph(&math.language(), &constants);
    const std::vector<Rule> rules = MathRules(math, &constants);
    math.Add(&graph, "(+ (* a b) (+ (* a c) (* a (+ e (* e f)))))");
    const Report report =
        Runner(&graph, rules,
               {.limits = {.iterations = 7}, .match_limit = 1'000'000, .incremental = incremental})
            .Run();
    work[incremental] = 0;
    for (const RuleReport& rule : report.rules) work[incremental] += rule.work;
  }
  EXPECT_LT(work[true], 0.7 * work[false]);
}

// --- Refusals ---

TEST(Runner, RefusedUnionsAreCountedForTheirRule) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  math.Add(&graph, "(+ 1 2)");
  math.Add(&graph, "(sin x)");
  const std::vector<Rule> rules =
      RulesOf(math, {{.name = "sound", .premises = {"(+ ?a ?b)"}, .conclusions = {"(+ ?b ?a)"}},
                     {.name = "unsound", .premises = {"(+ ?a ?b)"}, .conclusions = {"?a"}}});
  const Report report = Runner(&graph, rules).Run();
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  EXPECT_EQ(report.rules[0].refused, 0u);
  EXPECT_EQ(report.rules[1].refused, 2u);  // 3 is neither 1 nor 2
  EXPECT_EQ(report.rules[1].applied, 0u);
  EXPECT_EQ(report.rules[1].errors, report.rules[1].matches);
  EXPECT_EQ(report.rules[0].errors, 0u);
  EXPECT_THAT(report.rules[1].last_error, HasSubstr("value"));
  EXPECT_THAT(ReportText(report), HasSubstr("unsound"));
  ASSERT_FALSE(graph.refusals().empty());
  EXPECT_EQ(graph.refusals()[0].cause, Cause{1});
  EXPECT_TRUE(graph.Verify().ok());
}

TEST(Runner, CongruencesThatAreRefusedCountForTheRuleThatLedThere) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  for (const auto& [call, value] : {std::pair("(sin x)", "1"), std::pair("(sin y)", "2")}) {
    ASSERT_TRUE(graph.Union(math.Add(&graph, call), math.Add(&graph, value)).ok());
  }
  math.Add(&graph, "(list x y)");
  const std::vector<Rule> rules = RulesOf(
      math, {{.name = "all alike", .premises = {"(list ?a ?b)"}, .conclusions = {"?a = ?b"}}});
  const Report report = Runner(&graph, rules).Run();
  EXPECT_EQ(report.rules[0].unions, 1u);
  EXPECT_EQ(report.rules[0].refused, 1u);
  EXPECT_NE(math.Lookup(graph, "1"), math.Lookup(graph, "2"));
  EXPECT_TRUE(graph.Verify().ok());
}

TEST(Runner, ACyclicClassSaturates) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId x = math.Add(&graph, "x");
  math.Add(&graph, "0");
  const std::vector<Rule> rules = RulesOf(
      math, {{.name = "x is x + 0", .premises = {"?x = sym[?n]"}, .conclusions = {"(+ ?x 0)"}},
             {.name = "commutes", .premises = {"(+ ?a ?b)"}, .conclusions = {"(+ ?b ?a)"}}});
  const Report report = Runner(&graph, rules).Run();
  EXPECT_EQ(report.reason, StopReason::kSaturated);
  EXPECT_EQ(graph.num_nodes(), 4u);
  EXPECT_EQ(math.Lookup(graph, "(+ 0 (+ (+ x 0) 0))"), graph.Find(x));
}

TEST(Runner, ReportsNameEveryReason) {
  for (int i = 0; i <= static_cast<int>(StopReason::kCancelled); ++i) {
    EXPECT_STRNE(StopReasonText(static_cast<StopReason>(i)), "");
  }
}

}  // namespace
}  // namespace athanor::egraph
