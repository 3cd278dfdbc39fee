// Random e-graphs, rules and texts. Without ATHANOR_FUZZ_SECONDS a fixed number of rounds from a
// fixed seed; with it, the tests share that time, from a new seed. A failure prints the round's
// seed.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "compiler/egraph/math_rules_testing.h"
#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/naive_testing.h"
#include "compiler/egraph/runner.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  size_t Below(size_t n) { return random_() % n; }
  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[Below(items.size())];
  }

 private:
  std::mt19937 random_;
};

void Rounds(int count, const std::function<void(Dice&)>& round) {
  constexpr int kTests = 5;
  const char* seconds = std::getenv("ATHANOR_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(seconds ? std::atoi(seconds) * 1000 / kTests : 0);
  const char* first = std::getenv("ATHANOR_FUZZ_SEED");
  uint32_t seed = first     ? static_cast<uint32_t>(std::strtoul(first, nullptr, 10))
                  : seconds ? std::random_device()()
                            : 1;
  for (int i = 0; seconds ? std::chrono::steady_clock::now() < end : i < count; ++i, ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    round(dice);
    if (::testing::Test::HasFailure()) return;
  }
}

// Returns a term or, given variables, a pattern over few operators, so that many are equal.
std::string RandomTerm(Dice& dice, int depth, const std::vector<std::string>& leaves) {
  if (depth == 0 || dice.Below(4) == 0) return dice.Pick(leaves);
  const auto sub = [&] { return RandomTerm(dice, depth - 1, leaves); };
  switch (dice.Below(5)) {
    case 0:
      return "(sin " + sub() + ")";
    case 1:
      return "(round[" + std::to_string(dice.Below(2)) + "] " + sub() + ")";
    case 2:
      return "(* " + sub() + " " + sub() + ")";
    default:
      return "(+ " + sub() + " " + sub() + ")";
  }
}

void ExpectSound(EGraph* graph) {
  graph->Rebuild();
  const absl::Status status = graph->Verify();
  ASSERT_TRUE(status.ok()) << status;
}

// Adds, unions and rebuilds in any order, with values: every invariant holds each time.
TEST(EGraphFuzz, InvariantsHold) {
  Rounds(400, [](Dice& dice) {
    const Math math;
    MathConstants constants(&math, dice.Below(2) == 0);
    EGraph graph(&math.language(), dice.Below(3) == 0 ? nullptr : &constants);
    const std::vector<std::string> leaves = {"0", "1", "2", "x", "y", "z"};
    std::vector<ClassId> classes = {math.Add(&graph, "x")};
    for (size_t step = 5 + dice.Below(60); step > 0; --step) {
      switch (dice.Below(6)) {
        case 0:
          ExpectSound(&graph);
          break;
        case 1:
        case 2:
          // A refused union must leave the e-graph sound too.
          graph.Union(dice.Pick(classes), dice.Pick(classes)).status().IgnoreError();
          break;
        case 3: {
          const auto id = graph.Add(OpId{dice.Below(2) == 0 ? kAdd : kMul}, {},
                                    {dice.Pick(classes), dice.Pick(classes)});
          ASSERT_TRUE(id.ok());
          classes.push_back(*id);
          break;
        }
        default:
          classes.push_back(math.Add(&graph, RandomTerm(dice, 3, leaves)));
      }
    }
    ExpectSound(&graph);
  });
}

TEST(EGraphFuzz, CongruenceIsThatOfTheNaive) {
  Rounds(150, [](Dice& dice) {
    const Math math;
    EGraph graph(&math.language());
    NaiveEGraph naive;
    const std::vector<std::string> leaves = {"x", "y", "z", "1"};
    std::vector<std::string> terms = {"x"};
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 6; ++i) {
        terms.push_back(RandomTerm(dice, 3, leaves));
        math.Add(&graph, terms.back());
        naive.Add(math.Parse(terms.back()));
      }
      for (size_t i = dice.Below(3); i > 0; --i) {
        const std::string &a = dice.Pick(terms), b = dice.Pick(terms);
        ASSERT_TRUE(graph.Union(math.Add(&graph, a), math.Add(&graph, b)).ok());
        naive.Union(naive.Add(math.Parse(a)), naive.Add(math.Parse(b)));
      }
      ExpectSound(&graph);
      naive.Close();
      ASSERT_EQ(Difference(naive, graph), "");
    }
  });
}

// Returns a rule whose conclusion uses only variables of its premises.
RuleSpec RandomRule(Dice& dice, const std::string& name) {
  const std::vector<std::string> variables = {"?a", "?b", "?c", "1"};
  RuleSpec spec{.name = name};
  std::string left;
  do {
    left = RandomTerm(dice, 2, variables);
  } while (left[0] != '(');
  spec.premises = {"?r = " + left};
  if (dice.Below(3) == 0) spec.premises.push_back("?q = (+ ?a ?r)");
  std::vector<std::string> bound = {"1", "?r"};
  for (const std::string v : {"?a", "?b", "?c"}) {
    for (const std::string& premise : spec.premises) {
      if (premise.find(v) != std::string::npos) bound.push_back(v);
    }
  }
  spec.conclusions = {"?r = " + RandomTerm(dice, 2, bound)};
  return spec;
}

NaiveEGraph::NaiveRule Naive(const Math& math, const RuleSpec& spec) {
  Variables variables;
  NaiveEGraph::NaiveRule rule;
  for (const std::string& p : spec.premises) {
    rule.premises.push_back(*ParseEquation(math.language(), p, &variables));
  }
  for (const std::string& c : spec.conclusions) {
    rule.conclusions.push_back(*ParseEquation(math.language(), c, &variables));
  }
  return rule;
}

// Random rules over random terms: after every iteration, the classes equal those of naive matching,
// whether matching is incremental and shared or not.
TEST(EGraphFuzz, RulesFindWhatTheNaiveFinds) {
  int compared = 0;
  Rounds(120, [&compared](Dice& dice) {
    const Math math;
    std::vector<RuleSpec> specs;
    std::vector<NaiveEGraph::NaiveRule> naive_rules;
    for (size_t i = 1 + dice.Below(4); i > 0; --i) {
      specs.push_back(RandomRule(dice, "rule " + std::to_string(i)));
      naive_rules.push_back(Naive(math, specs.back()));
    }
    const std::vector<Rule> rules = RulesOf(math, specs);
    EGraph graphs[3] = {EGraph(&math.language()), EGraph(&math.language()),
                        EGraph(&math.language())};
    NaiveEGraph naive;
    for (int i = 0; i < 3; ++i) {
      const std::string term = RandomTerm(dice, 3, {"x", "y", "1"});
      for (EGraph& graph : graphs) math.Add(&graph, term);
      naive.Add(math.Parse(term));
    }
    std::vector<Runner> runners;
    for (int i = 0; i < 3; ++i) {
      runners.emplace_back(&graphs[i], rules,
                           RunOptions{.limits = {.iterations = 1},
                                      .match_limit = 1'000'000,
                                      .incremental = i > 0,
                                      .share = i < 2});
    }
    for (int iteration = 0; iteration < 4 && naive.nodes().size() < 60; ++iteration) {
      naive.Step(naive_rules);
      for (int i = 0; i < 3; ++i) {
        runners[i].Run();
        ASSERT_TRUE(graphs[i].Verify().ok()) << graphs[i].Verify();
        ASSERT_EQ(Difference(naive, graphs[i]), "")
            << "graph " << i << " iteration " << iteration << " " << specs[0].premises[0] << " => "
            << specs[0].conclusions[0];
        ++compared;
      }
    }
  });
  EXPECT_GT(compared, 300);
}

// With conditions, folding and changing values, incremental matching misses no match that full
// matching finds.
TEST(EGraphFuzz, IncrementalFindsWhatFullFinds) {
  Rounds(60, [](Dice& dice) {
    const Math math;
    MathConstants constants[2] = {MathConstants(&math), MathConstants(&math)};
    EGraph graphs[2] = {EGraph(&math.language(), &constants[0]),
                        EGraph(&math.language(), &constants[1])};
    std::vector<Rule> rules[2] = {MathRules(math, &constants[0]), MathRules(math, &constants[1])};
    const std::string term = RandomTerm(dice, 3, {"x", "y", "0", "1", "2"});
    std::vector<Runner> runners;
    for (int i = 0; i < 2; ++i) {
      math.Add(&graphs[i], "(d x " + term + ")");
      runners.emplace_back(&graphs[i], rules[i],
                           RunOptions{.limits = {.iterations = 1},
                                      .match_limit = 1'000'000,
                                      .incremental = i == 1,
                                      .share = i == 1});
    }
    for (int iteration = 0; iteration < 6 && graphs[0].num_nodes() < 400; ++iteration) {
      for (int i = 0; i < 2; ++i) {
        runners[i].Run();
        ASSERT_TRUE(graphs[i].Verify().ok()) << graphs[i].Verify();
      }
      ASSERT_EQ(Difference(NaiveEGraph(graphs[0]), graphs[1]), "") << term << " " << iteration;
      // Sets a value that no rule could derive.
      if (iteration != 2) continue;
      for (EGraph& graph : graphs) {
        ASSERT_TRUE(graph.Union(math.Add(&graph, "y"), math.Add(&graph, "3")).ok());
      }
    }
  });
}

TEST(EGraphFuzz, TextsAreRefusedOrRead) {
  const std::vector<std::string> pieces = {"(",    ")",  "[",     "]",  "?x", "?xs...", "+",  " ",
                                           "sin",  "1",  "round", "?_", "_",  "list",   "?",  "...",
                                           "[?n]", "\"", "?r = ", "=",  "\n", "[2]",    "pow"};
  int accepted = 0;
  Rounds(20'000, [&](Dice& dice) {
    const Math math;
    std::string text = RandomTerm(dice, 3, {"?a", "?b", "1", "x"});
    for (size_t i = dice.Below(3); i > 0; --i) {
      text.replace(dice.Below(text.size() + 1), dice.Below(4), dice.Pick(pieces));
    }
    Variables variables;
    const auto equation = ParseEquation(math.language(), text, &variables);
    if (!equation.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(equation.status())) << equation.status();
      return;
    }
    ++accepted;
    const std::string printed = PatternText(math.language(), equation->pattern, variables);
    Variables again;
    const auto reparsed = ParsePattern(math.language(), printed, &again);
    ASSERT_TRUE(reparsed.ok()) << text << " " << printed << reparsed.status();
    ASSERT_EQ(PatternText(math.language(), *reparsed, again), printed);
    MakeQuery(math.language(), {text}).status().IgnoreError();
  });
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace athanor::egraph
