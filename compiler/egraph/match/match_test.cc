#include "compiler/egraph/match/match.h"

#include <algorithm>
#include <random>

#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/naive_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class MatchTest : public ::testing::Test {
 protected:
  Query Parse(const std::vector<std::string>& premises, std::vector<Condition> conditions = {}) {
    absl::StatusOr<Query> query = MakeQuery(math_.language(), premises, std::move(conditions));
    EXPECT_TRUE(query.ok()) << query.status();
    return *query;
  }

  // Returns matches as "x=a y=b"; a class is written as its first node.
  std::vector<std::string> Texts(const Query& query, uint32_t since = 0,
                                 bool reads_values = false) {
    const MatchOutcome outcome =
        FindMatches(graph_, {{.query = &query, .since = since, .reads_values = reads_values}}, {});
    std::vector<std::string> texts;
    for (size_t i = 0; i < outcome.lists[0].size(); ++i) {
      texts.push_back(Text(query, outcome.lists[0][i]));
    }
    return texts;
  }

  std::string Text(const Query& query, absl::Span<const uint32_t> values) {
    const Match match(&graph_, &query.variables(), values);
    std::string text;
    for (uint32_t v = 0; v < query.variables().size(); ++v) {
      const Variable& variable = query.variables()[v];
      if (variable.name.empty()) continue;
      if (!text.empty()) text += ' ';
      text += variable.name + "=";
      if (variable.kind == VariableKind::kClass) text += ClassText(match.Class(v));
      if (variable.kind == VariableKind::kPayload) {
        text += std::to_string(math_.Value(match.Payload(v)));
      }
      for (const ClassId c : match.Rest(v)) text += ClassText(c);
    }
    return text;
  }

  std::string ClassText(ClassId c) {
    const NodeId n = *std::min_element(graph_.nodes(c).begin(), graph_.nodes(c).end());
    return math_.language().NodeText(graph_.op(n), graph_.payload(n));
  }

  void Unite(const std::string& a, const std::string& b) {
    const auto united = graph_.Union(math_.Add(&graph_, a), math_.Add(&graph_, b));
    ASSERT_TRUE(united.ok()) << united.status();
    graph_.Rebuild();
  }

  void Add(const std::vector<std::string>& terms) {
    for (const std::string& term : terms) math_.Add(&graph_, term);
    graph_.Rebuild();
  }

  Math math_;
  MathConstants constants_{&math_, /*fold=*/false};
  EGraph graph_{&math_.language(), &constants_};
};

TEST_F(MatchTest, OneAtom) {
  Add({"(+ a b)", "(+ c c)", "(* a b)"});
  EXPECT_THAT(Texts(Parse({"(+ ?x ?y)"})), UnorderedElementsAre("x=a y=b", "x=c y=c"));
  EXPECT_THAT(Texts(Parse({"(+ ?x ?x)"})), ElementsAre("x=c"));
  EXPECT_THAT(Texts(Parse({"(- ?x ?x)"})), ElementsAre());
}

TEST_F(MatchTest, NestedThroughAClass) {
  Add({"(* a (+ b c))"});
  Unite("(+ b c)", "(+ d1 d2)");
  EXPECT_THAT(Texts(Parse({"(* ?x (+ ?y ?z))"})),
              UnorderedElementsAre("x=a y=b z=c", "x=a y=d1 z=d2"));
}

TEST_F(MatchTest, PayloadsAndLiterals) {
  Add({"(round[2] (round[3] x))", "(round[4] (round[4] y))", "(+ x 0)", "(+ x 1)"});
  EXPECT_THAT(Texts(Parse({"(round[?a] (round[?b] ?x))"})),
              UnorderedElementsAre("a=2 b=3 x=x", "a=4 b=4 x=y"));
  EXPECT_THAT(Texts(Parse({"(round[?a] (round[?a] ?x))"})), ElementsAre("a=4 x=y"));
  EXPECT_THAT(Texts(Parse({"(round[3] ?x)"})), ElementsAre("x=x"));
  EXPECT_THAT(Texts(Parse({"(round[_] ?x)"})).size(), 4u);
  EXPECT_THAT(Texts(Parse({"(+ ?x 0)"})), ElementsAre("x=x"));
  EXPECT_THAT(Texts(Parse({"(+ ?_ num[?n])"})), UnorderedElementsAre("n=0", "n=1"));
}

TEST_F(MatchTest, AnyNumberOfChildren) {
  Add({"(list a b c)", "(list a)", "(list (sin d0))", "list"});
  EXPECT_THAT(Texts(Parse({"(list ?x ?xs...)"})),
              UnorderedElementsAre("x=a xs=bc", "x=a xs=", "x=sin xs="));
  EXPECT_THAT(Texts(Parse({"(list ?xs...)"})),
              UnorderedElementsAre("xs=abc", "xs=a", "xs=sin", "xs="));
  EXPECT_THAT(Texts(Parse({"(list ?x)"})), UnorderedElementsAre("x=a", "x=sin"));
  EXPECT_THAT(Texts(Parse({"(list (sin ?x) ?xs...)"})), ElementsAre("x=d0 xs="));
}

TEST_F(MatchTest, SeveralPremises) {
  Add({"(* x a)", "(* x b)", "(* y a)", "(sin (* x a))"});
  EXPECT_THAT(Texts(Parse({"?p = (* ?x ?y)", "?q = (* ?x ?z)", "(sin ?p)"})),
              UnorderedElementsAre("p=* x=x y=a q=* z=a", "p=* x=x y=a q=* z=b"));
  // Without a common variable, every pair matches.
  EXPECT_THAT(Texts(Parse({"(* ?a ?b)", "(sin ?c)"})).size(), 3u);
}

TEST_F(MatchTest, ConditionsSeeTheirVariables) {
  Add({"(round[2] x)", "(round[3] y)", "(+ (round[3] z) w)"});
  const Condition odd("odd", {"n"}, [&](const Match& m) {
    EXPECT_FALSE(m.Class("x").valid());  // not among its variables
    return math_.Value(m.Payload("n")) % 2 == 1;
  });
  EXPECT_THAT(Texts(Parse({"(round[?n] ?x)"}, {odd})), UnorderedElementsAre("n=3 x=y", "n=3 x=z"));
  const Condition all("all", {}, [&](const Match& m) { return m.Class("w").valid(); });
  EXPECT_THAT(Texts(Parse({"(+ (round[?n] ?x) ?w)"}, {odd, all})), ElementsAre("n=3 x=z w=w"));
}

TEST_F(MatchTest, OnlyNewRows) {
  Add({"(* a (+ b c))", "(* p q)"});
  const Query query = Parse({"(* ?x (+ ?y ?z))"});
  EXPECT_EQ(Texts(query).size(), 1u);
  uint32_t epoch = graph_.epoch();
  EXPECT_THAT(Texts(query, epoch), ElementsAre());
  Add({"(* d0 (+ b c))", "(+ u v)"});
  EXPECT_THAT(Texts(query, epoch), ElementsAre("x=d0 y=b z=c"));
  epoch = graph_.epoch();
  Unite("q", "(+ u v)");
  EXPECT_THAT(Texts(query, epoch), ElementsAre("x=p y=u z=v"));
  epoch = graph_.epoch();
  Unite("(+ u v)", "(+ b c)");
  // Matches both sums under both products that had only one of them, and under p.
  EXPECT_EQ(Texts(query).size(), 6u);
  const size_t fresh = Texts(query, epoch).size();
  EXPECT_GE(fresh, 3u);
  EXPECT_LE(fresh, 6u);
}

TEST_F(MatchTest, ANewValueIsNewsToThoseWhoReadIt) {
  Add({"(sin x)", "(sin y)"});
  const Query query = Parse({"(sin ?x)"}, {Condition("is 4", {"x"}, [&](const Match& m) {
                              return constants_.Get(m.graph(), m.Class("x")) == 4;
                            })});
  EXPECT_THAT(Texts(query), ElementsAre());
  const uint32_t epoch = graph_.epoch();
  // The heavier class x stays, so none of its rows changes.
  Add({"(cos x)"});
  const uint32_t later = graph_.epoch();
  Unite("x", "4");
  EXPECT_THAT(Texts(query, later), ElementsAre());
  EXPECT_THAT(Texts(query, later, /*reads_values=*/true), ElementsAre("x=x"));
  EXPECT_THAT(Texts(query, epoch, /*reads_values=*/true), ElementsAre("x=x"));
}

TEST_F(MatchTest, TheLimitStopsOneQueryNotTheOthers) {
  for (int i = 0; i < 50; ++i) math_.Add(&graph_, "(sin (+ x " + std::to_string(i) + "))");
  graph_.Rebuild();
  const Query sines = Parse({"(sin (+ ?x ?y))"}), again = Parse({"(sin (+ ?a ?b))"});
  const MatchOutcome outcome =
      FindMatches(graph_, {{.query = &sines, .limit = 49}, {.query = &again, .limit = 50}}, {});
  EXPECT_TRUE(outcome.lists[0].over_limit);
  EXPECT_EQ(outcome.lists[0].size(), 0u);
  EXPECT_FALSE(outcome.lists[1].over_limit);
  EXPECT_EQ(outcome.lists[1].size(), 50u);
}

TEST_F(MatchTest, CommonBeginningsAreLookedForOnce) {
  for (int i = 0; i < 50; ++i) math_.Add(&graph_, "(sin (+ x " + std::to_string(i) + "))");
  graph_.Rebuild();
  int tests = 0;
  const Condition counted("counted", {"y"}, [&](const Match&) { return ++tests > 0; });
  const Query a = Parse({"(sin (+ ?x ?y))"}, {counted}), b = Parse({"(sin (+ ?x ?y))"}, {counted});
  const std::vector<MatchRequest> requests = {{.query = &a}, {.query = &b}};
  const MatchOutcome together = FindMatches(graph_, requests, {});
  EXPECT_EQ(tests, 50);
  const MatchOutcome apart = FindMatches(graph_, requests, {.share = false});
  EXPECT_EQ(tests, 150);
  EXPECT_EQ(together.lists[0].values, apart.lists[0].values);
  EXPECT_EQ(together.lists[1].values, apart.lists[1].values);
  EXPECT_DOUBLE_EQ(together.lists[0].work * 2, apart.lists[0].work);
}

TEST_F(MatchTest, StopEndsTheSearch) {
  for (int i = 0; i < 200; ++i) math_.Add(&graph_, "(+ x " + std::to_string(i) + ")");
  graph_.Rebuild();
  const Query pairs = Parse({"(+ ?x ?y)", "(+ ?a ?b)"});
  const MatchOutcome outcome =
      FindMatches(graph_, {{.query = &pairs}}, {.stop = [](size_t) { return true; }});
  EXPECT_TRUE(outcome.stopped);
  EXPECT_LT(outcome.lists[0].size(), 200u * 200u);
}

// The shortest list is used, not the order of the pattern, so a node with many parents does not
// make it slow.
TEST_F(MatchTest, WorkFollowsTheShortestList) {
  for (int i = 0; i < 1000; ++i) math_.Add(&graph_, "(* hub " + std::to_string(i) + ")");
  Add({"(list hub (* hub 7))"});
  const Query query = Parse({"(list ?h ?p)", "?p = (* ?h ?k)"});
  const MatchOutcome outcome = FindMatches(graph_, {{.query = &query}}, {});
  EXPECT_EQ(outcome.lists[0].size(), 1u);
  EXPECT_LT(outcome.lists[0].work, 10);
}

// --- compared with naive matching, on random e-graphs

// Adds terms over few operators, some of them equal, to both.
void Fill(const Math& math, std::mt19937& random, EGraph* graph, NaiveEGraph* naive) {
  std::vector<std::string> terms = {"1", "x"};
  const auto pick = [&] { return terms[random() % terms.size()]; };
  for (int i = 0; i < 14; ++i) {
    const std::string a = pick(), b = pick();
    const std::vector<std::string> more = {
        "(sin " + a + ")", "(round[" + std::to_string(random() % 2) + "] " + a + ")",
        "(* " + a + " " + b + ")", "(+ " + a + " " + b + ")", "(+ " + b + " " + a + ")"};
    terms.push_back(more[random() % more.size()]);
  }
  for (const std::string& t : terms) {
    math.Add(graph, t);
    naive->Add(math.Parse(t));
  }
  for (int i = 0; i < 5; ++i) {
    const std::string a = pick(), b = pick();
    ASSERT_TRUE(graph->Union(math.Add(graph, a), math.Add(graph, b)).ok());
    naive->Union(naive->Add(math.Parse(a)), naive->Add(math.Parse(b)));
  }
  graph->Rebuild();
  naive->Close();
}

// Returns the number of distinct values of the named variables; the naive matcher binds only these.
size_t CountMatches(const EGraph& graph, const Query& query) {
  const MatchOutcome outcome = FindMatches(graph, {{.query = &query}}, {});
  std::set<std::vector<uint32_t>> distinct;
  for (size_t i = 0; i < outcome.lists[0].size(); ++i) {
    std::vector<uint32_t> named;
    for (uint32_t v = 0; v < query.variables().size(); ++v) {
      if (!query.variables()[v].name.empty()) named.push_back(outcome.lists[0][i][v]);
    }
    distinct.insert(named);
  }
  return distinct.size();
}

TEST(MatchAgainstNaive, RandomGraphsAndPatterns) {
  const Math math;
  const std::vector<std::vector<std::string>> queries = {
      {"(+ ?x ?y)"},
      {"(+ ?x (* ?y ?x))"},
      {"(* (+ ?x ?y) (+ ?y ?z))"},
      {"(sin (round[?n] ?x))"},
      {"(+ (round[?n] ?x) (round[?n] ?y))"},
      {"?p = (+ ?x ?y)", "?q = (* ?x ?y)"},
      {"?p = (+ ?x ?y)", "?p = (* ?y ?z)"},
      {"?a = (+ ?b ?c)", "?b = (+ ?c ?a)", "?c = (+ ?a ?b)"},
      {"(sin ?x)", "(+ 1 ?x)", "(+ ?x ?y)"}};
  std::mt19937 random(3);
  size_t total = 0;
  for (int round = 0; round < 150; ++round) {
    EGraph graph(&math.language());
    NaiveEGraph naive;
    Fill(math, random, &graph, &naive);
    ASSERT_EQ(Difference(naive, graph), "");
    for (const auto& premises : queries) {
      Variables variables;
      std::vector<Equation> equations;
      for (const std::string& p : premises) {
        equations.push_back(*ParseEquation(math.language(), p, &variables));
      }
      const size_t count = CountMatches(graph, *MakeQuery(math.language(), premises));
      EXPECT_EQ(count, naive.Matches(equations).size()) << premises[0];
      total += count;
    }
  }
  EXPECT_GT(total, 1000u);
}

}  // namespace
}  // namespace athanor::egraph
