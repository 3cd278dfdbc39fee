#include "compiler/egraph/extract/extract.h"

#include <limits>
#include <map>
#include <random>

#include "compiler/egraph/math_rules_testing.h"
#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;

class ExtractTest : public ::testing::Test {
 protected:
  void Unite(const std::string& a, const std::string& b) {
    ASSERT_TRUE(graph_.Union(math_.Add(&graph_, a), math_.Add(&graph_, b)).ok());
    graph_.Rebuild();
  }
  // Costs by the text of a node's head; 1 if it is not listed.
  NodeCost Costs(std::map<std::string, double> costs) {
    return [this, costs](NodeId n) {
      const auto it = costs.find(math_.language().NodeText(graph_.op(n), graph_.payload(n)));
      return it == costs.end() ? 1 : it->second;
    };
  }
  std::string Text(const Choice& choice, ClassId root) {
    const absl::StatusOr<Term> term = ChoiceTerm(graph_, choice, root);
    return term.ok() ? TermText(math_.language(), *term) : term.status().ToString();
  }
  NodeId NodeOf(ClassId id, MathOp op) { return graph_.NodesOf(id, OpId{op})[0]; }

  Math math_;
  EGraph graph_{&math_.language()};
};

TEST_F(ExtractTest, CheapestTerm) {
  Unite("(* x 2)", "(+ x x)");
  const ClassId root = math_.Add(&graph_, "(sin (* x 2))");
  graph_.Rebuild();
  const Extractor cheap_add(graph_, Costs({{"*", 5}}));
  EXPECT_EQ(Text(*cheap_add.Extract({root}), root), "(sin (+ x x))");
  EXPECT_EQ(cheap_add.TreeCost(root), 4);
  const Extractor cheap_mul(graph_, Costs({{"+", 5}}));
  EXPECT_EQ(Text(*cheap_mul.Extract({root}), root), "(sin (* x 2))");
}

TEST_F(ExtractTest, CyclesAreNeverChosenEvenForFree) {
  Unite("x", "(+ x 0)");
  Unite("x", "(* x 1)");
  const ClassId x = math_.Add(&graph_, "x");
  const NodeCost free = [](NodeId) { return 0; };
  const Extractor extractor(graph_, free);
  EXPECT_EQ(Text(*extractor.Extract({x}), x), "x");
  // The only alternative to the cycle is expensive.
  const Extractor dear(graph_, Costs({{"x", 1000}, {"+", 0}, {"0", 0}}));
  EXPECT_EQ(Text(*dear.Extract({x}), x), "x");
}

TEST_F(ExtractTest, WhatIsNoTermIsNamed) {
  Unite("x", "(+ x 0)");
  const ClassId x = math_.Add(&graph_, "x");
  const Extractor extractor(graph_, Costs({{"x", std::numeric_limits<double>::infinity()}}));
  EXPECT_EQ(extractor.TreeRank(x), Extractor::kNone);
  EXPECT_EQ(extractor.Extract({x}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(extractor.Extract({x}).status().ToString(), HasSubstr("class 0 has no term"));
  EXPECT_FALSE(extractor.Extract({ClassId{}}).ok());
}

// Each user alone prefers its own expensive node; together they should share one.
TEST_F(ExtractTest, SharingBeatsTreeCost) {
  Unite("(sin a)", "(ln s)");
  Unite("(cos b)", "(list s)");
  const ClassId root = math_.Add(&graph_, "(+ (sin a) (+ (list s) (list s s)))");
  graph_.Rebuild();
  const NodeCost cost = Costs({{"a", 9}, {"b", 9}, {"s", 10}});
  const Extractor extractor(graph_, cost);
  EXPECT_EQ(Text(extractor.tree(), root), "(+ (sin a) (+ (cos b) (list s s)))");
  const absl::StatusOr<Choice> choice = extractor.Extract({root});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(Text(*choice, root), "(+ (ln s) (+ (list s) (list s s)))");
  EXPECT_EQ(*ChoiceCost(graph_, *choice, {root}, cost), 15);
  EXPECT_EQ(ChoiceTerm(graph_, *choice, root)->nodes.size(), 6u);  // s once
}

TEST_F(ExtractTest, RefiningTheInputNeverMakesItDearer) {
  // By tree cost s is worse than t, because its user counts it twice.
  Unite("(list s s)", "(list t)");
  const ClassId root = math_.Add(&graph_, "(list s s)");
  const NodeCost cost = Costs({{"s", 3}, {"t", 5}});
  const Extractor extractor(graph_, cost);
  EXPECT_EQ(*ChoiceCost(graph_, extractor.tree(), {root}, cost), 6);
  Choice input(graph_);
  for (const char* text : {"s", "(list s s)"}) {
    const ClassId id = math_.Lookup(graph_, text);
    for (const NodeId n : graph_.nodes(id)) {
      if (graph_.children(n).size() != 1) input.Set(id, n);
    }
  }
  EXPECT_EQ(*ChoiceCost(graph_, input, {root}, cost), 4);
  ASSERT_TRUE(extractor.Refine({root}, &input).ok());
  EXPECT_EQ(*ChoiceCost(graph_, input, {root}, cost), 4);
  EXPECT_EQ(*ChoiceCost(graph_, *extractor.Extract({root}), {root}, cost), 4);
}

TEST_F(ExtractTest, WrongChoicesAreNamed) {
  Unite("x", "(+ x 0)");
  const ClassId x = math_.Lookup(graph_, "x"), zero = math_.Lookup(graph_, "0");
  Choice choice(graph_);
  EXPECT_THAT(CheckChoice(graph_, choice, {x}).ToString(), HasSubstr("class 0: no node"));
  choice.Set(x, NodeOf(zero, kNum));
  EXPECT_THAT(CheckChoice(graph_, choice, {x}).ToString(), HasSubstr("is not in this class"));
  choice.Set(x, NodeOf(x, kAdd));
  choice.Set(zero, NodeOf(zero, kNum));
  EXPECT_THAT(CheckChoice(graph_, choice, {x}).ToString(), HasSubstr("cycle: c0 = (+ c0 c1), c0"));
  EXPECT_THAT(CheckChoice(graph_, choice, {ClassId{99}}).ToString(), HasSubstr("root 99"));
  choice.Set(x, NodeOf(x, kSym));
  EXPECT_TRUE(CheckChoice(graph_, choice, {x}).ok());
  EXPECT_FALSE(CheckChoice(graph_, Choice(), {x}).ok());
}

TEST_F(ExtractTest, ChosenOrderIsChildrenFirst) {
  const ClassId root = math_.Add(&graph_, "(+ (sin x) (* x y))");
  graph_.Rebuild();
  const Extractor extractor(graph_, Costs({}));
  const auto order = ChosenOrder(graph_, extractor.tree(), {root, math_.Lookup(graph_, "(sin x)")});
  ASSERT_TRUE(order.ok());
  ASSERT_EQ(order->size(), 5u);
  EXPECT_EQ(order->back(), root);
  EXPECT_EQ(order->front(), math_.Lookup(graph_, "x"));
}

TEST_F(ExtractTest, DeepTermsNeedNoDeepStack) {
  ClassId c = math_.Add(&graph_, "x");
  for (int i = 0; i < 200'000; ++i) c = *graph_.Add(OpId{kSin}, {}, {c});
  graph_.Rebuild();
  const NodeCost cost = Costs({});
  const Extractor extractor(graph_, cost);
  const auto choice = extractor.Extract({c});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(*ChoiceCost(graph_, *choice, {c}, cost), 200'001);
  const absl::StatusOr<Term> term = ChoiceTerm(graph_, *choice, c);
  ASSERT_TRUE(term.ok());
  EXPECT_EQ(TermText(math_.language(), *term, 2'000'000).size(), 200'000 * 6 + 1);
}

// --- properties over a saturated e-graph

class SaturatedTest : public ExtractTest {
 protected:
  SaturatedTest() {
    root_ = math_.Add(&graph_, "(+ (* a b) (+ (* a c) (* a (- c c))))");
    MathConstants constants(&math_);
    auto specs = MathSpecs(&constants);
    std::erase_if(specs, [](const RuleSpec& s) { return !s.conditions.empty(); });
    specs.push_back(
        {.name = "x is x + 0", .premises = {"?x = sym[_]"}, .conclusions = {"(+ ?x 0)"}});
    const std::vector<Rule> rules = RulesOf(math_, std::move(specs));
    Runner(&graph_, rules, {.limits = {.iterations = 6, .nodes = 4000}}).Run();
  }
  Choice RandomChoice(std::mt19937* random) {
    Choice choice(graph_);
    for (const ClassId id : graph_.Classes()) {
      const auto nodes = graph_.nodes(id);
      choice.Set(id, nodes[(*random)() % nodes.size()]);
    }
    return choice;
  }
  ClassId root_;
};

TEST_F(SaturatedTest, AnyChoiceBecomesAcyclicWithFewChanges) {
  const Extractor extractor(graph_, Costs({}));
  std::mt19937 random(4);
  int cyclic = 0;
  for (int i = 0; i < 300; ++i) {
    Choice choice = RandomChoice(&random);
    const bool good = CheckChoice(graph_, choice, {root_}).ok();
    cyclic += !good;
    const Choice before = choice;
    const absl::StatusOr<int> changed = extractor.EnforceAcyclic({root_}, &choice);
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_TRUE(CheckChoice(graph_, choice, {root_}).ok());
    EXPECT_EQ(*changed == 0, good);
    EXPECT_EQ(choice == before, good);
    Choice again = choice;
    EXPECT_EQ(*extractor.EnforceAcyclic({root_}, &again), 0);
  }
  EXPECT_GT(cyclic, 50);
  Choice empty;
  EXPECT_TRUE(extractor.EnforceAcyclic({root_}, &empty).ok());
  EXPECT_EQ(Text(empty, root_), Text(extractor.tree(), root_));
}

TEST_F(SaturatedTest, RefiningLowersCostFromAnyStart) {
  const NodeCost cost = Costs({{"*", 7}, {"+", 3}});
  const Extractor extractor(graph_, cost);
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    Choice choice = RandomChoice(&random);
    ASSERT_TRUE(extractor.EnforceAcyclic({root_}, &choice).ok());
    const double before = *ChoiceCost(graph_, choice, {root_}, cost);
    ASSERT_TRUE(extractor.Refine({root_}, &choice).ok());
    const absl::StatusOr<double> after = ChoiceCost(graph_, choice, {root_}, cost);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_LE(*after, before);
  }
  const absl::StatusOr<Choice> best = extractor.Extract({root_});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(Text(*best, root_), "(* a (+ b c))");
}

TEST_F(SaturatedTest, RanksLeadDown) {
  const Extractor extractor(graph_, Costs({}));
  for (const ClassId id : graph_.Classes()) {
    for (const ClassId child : graph_.children(extractor.tree().Get(id))) {
      EXPECT_LT(extractor.TreeRank(child), extractor.TreeRank(id));
    }
  }
}

}  // namespace
}  // namespace athanor::egraph
