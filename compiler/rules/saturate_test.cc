#include "compiler/rules/saturate.h"

#include <algorithm>
#include <string>

#include "compiler/rules/decompose/recognise_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::unique_ptr<TermGraph> Terms(const Graph& graph) {
  absl::StatusOr<std::unique_ptr<TermGraph>> terms = TermGraph::Create(graph);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return terms.ok() ? *std::move(terms) : nullptr;
}

egraph::Report Grown(TermGraph* terms, const RuleChoice& choice,
                     const SaturationOptions& options = {}) {
  const absl::StatusOr<egraph::Report> report = Saturate(terms, choice, options);
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(terms->terms().clean());
  EXPECT_TRUE(terms->terms().Verify().ok()) << terms->terms().Verify();
  return report.value_or(egraph::Report{});
}

const egraph::RuleReport& Of(const egraph::Report& report, const std::string& name) {
  const auto rule = std::find_if(report.rules.begin(), report.rules.end(),
                                 [&](const egraph::RuleReport& r) { return r.name == name; });
  EXPECT_NE(rule, report.rules.end()) << name;
  return *rule;
}

// Disables all families except these.
RuleChoice Only(std::initializer_list<std::string_view> families) {
  RuleChoice choice;
  for (const std::string_view family : RuleFamilies()) {
    if (std::find(families.begin(), families.end(), family) == families.end()) {
      choice.disabled.insert(std::string(family));
    }
  }
  return choice;
}

// Extracts the graph with op `wanted` wherever possible and `avoided` nowhere.
Graph With(const TermGraph& terms, Op wanted, Op avoided) {
  const egraph::Extractor extractor(terms.terms(), [&](egraph::NodeId n) {
    if (terms.terms().op(n) == ToOpId(avoided)) return 1e6;
    return terms.terms().op(n) == ToOpId(wanted) ? 0.0 : 1.0;
  });
  const absl::StatusOr<egraph::Choice> choice = extractor.Extract(terms.Roots());
  EXPECT_TRUE(choice.ok()) << choice.status();
  const absl::StatusOr<Graph> graph = terms.Extract(*choice);
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph);
  return *graph;
}

Graph Attention() {
  Build b;
  return b.Done({b.x.Add(Op::kAttention,
                         {b.In("q", {2, 3, 4}), b.In("k", {2, 5, 4}), b.In("v", {2, 5, 6})})});
}

TEST(SaturateTest, DecompositionRowsAreRules) {
  const Graph graph = Attention();
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  const egraph::Report report = Grown(terms.get(), Only({"decompose"}));
  EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
  EXPECT_EQ(Of(report, "decompose_attention").applied, 1u);
  // The contractions inside it are decomposed too.
  EXPECT_EQ(Of(report, "decompose_contract").applied, 2u);
  EXPECT_EQ(RuleRows()[Of(report, "decompose_contract").tag].name, "decompose_contract");
  // The result equals that of the decomposition pass.
  const absl::StatusOr<Graph> decomposed =
      Decompose(graph, [](const Node& n) { return n.op == Op::kAttention; });
  EXPECT_EQ(CanonicalHash(With(*terms, Op::kContract, Op::kAttention)), CanonicalHash(*decomposed));
  EXPECT_EQ(CanonicalHash(With(*terms, Op::kAttention, Op::kContract)), CanonicalHash(graph));
  // Checks which rule added each node.
  const egraph::EGraph& e = terms->terms();
  const egraph::ClassId root = terms->Roots()[0];
  for (const egraph::NodeId n : e.nodes(root)) {
    if (e.op(n) == ToOpId(Op::kAttention)) {
      EXPECT_EQ(e.added_by(n), egraph::Cause::kUser);
    } else {
      EXPECT_EQ(report.rules[static_cast<uint32_t>(e.added_by(n))].name, "decompose_attention");
    }
  }
}

TEST(SaturateTest, RecognitionRowsRunOnGraphsTakenOut) {
  // Contractions, then attention over them: the second row needs the first one's matches.
  const Graph graph = Primitives(Attention());
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  const egraph::Report report = Grown(terms.get(), Only({"recognise"}));
  EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
  EXPECT_EQ(Of(report, "recognise_contract").matches, 2u);
  EXPECT_EQ(Of(report, "recognise_attention").matches, 1u);
  EXPECT_EQ(RuleRows()[Of(report, "recognise_attention").tag].name, "recognise_attention");
  EXPECT_GT(Of(report, "recognise_attention").nodes, 0u);
  EXPECT_EQ(CanonicalHash(With(*terms, Op::kAttention, Op::kContract)), CanonicalHash(Attention()));
}

TEST(SaturateTest, RecognitionSeesWhatRulesMade) {
  // A rule decomposes a composite, and a recognition row matches inside the result.
  Build b;
  const Graph graph = b.Done(
      {b.Dot(b.In("p", {3, 4}), b.x.Map(b.In("q", {5, 4}), {4, 5}, {A(1), A(0)}), "mk,kn->mn")});
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  const egraph::Report report = Grown(terms.get(), Only({"decompose", "recognise"}));
  EXPECT_EQ(report.reason, egraph::StopReason::kSaturated);
  EXPECT_EQ(With(*terms, Op::kContract, Op::kSumReduce).nodes.size(), 3u);
}

TEST(SaturateTest, ChoicesSwitchRowsOff) {
  const std::unique_ptr<TermGraph> terms = Terms(Attention());
  const egraph::Report report = Grown(terms.get(), {.disabled = {"decompose_attention"}});
  for (const egraph::RuleReport& rule : report.rules) EXPECT_NE(rule.name, "decompose_attention");
  EXPECT_EQ(terms->terms().nodes(terms->Roots()[0]).size(), 1u);
  EXPECT_TRUE(Grown(terms.get(), Only({})).rules.empty());
}

TEST(SaturateTest, LimitsAndCancellationAreTyped) {
  const Graph graph = Attention();
  const auto reason = [&](const SaturationOptions& options) {
    const std::unique_ptr<TermGraph> terms = Terms(graph);
    const egraph::Report report = Grown(terms.get(), {}, options);
    // The graph is still there for every stop reason.
    EXPECT_EQ(CanonicalHash(*terms->Extract(terms->Original())), CanonicalHash(graph));
    return report.reason;
  };
  EXPECT_EQ(reason({}), egraph::StopReason::kSaturated);
  EXPECT_EQ(reason({.limits = {.iterations = 0}}), egraph::StopReason::kIterationLimit);
  EXPECT_EQ(reason({.limits = {.iterations = 1}}), egraph::StopReason::kIterationLimit);
  EXPECT_EQ(reason({.limits = {.nodes = 10}}), egraph::StopReason::kNodeLimit);
  EXPECT_EQ(reason({.limits = {.bytes = 1000}}), egraph::StopReason::kByteLimit);
  EXPECT_EQ(reason({.limits = {.time = absl::ZeroDuration()}}), egraph::StopReason::kTimeLimit);
  EXPECT_EQ(reason({.cancel = [] { return true; }}), egraph::StopReason::kCancelled);
  int questions = 0;
  EXPECT_EQ(reason({.cancel = [&] { return ++questions > 5; }}), egraph::StopReason::kCancelled);
}

TEST(SaturateTest, IterationsCountOverAllRuns) {
  const std::unique_ptr<TermGraph> terms = Terms(Primitives(Attention()));
  const egraph::Report report = Grown(terms.get(), {}, {.limits = {.iterations = 3}});
  EXPECT_LE(report.iterations.size(), 3u);
}

TEST(SaturateTest, TheSameGraphGrowsTheSame) {
  const std::unique_ptr<TermGraph> a = Terms(Attention()), b = Terms(Attention());
  Grown(a.get(), {});
  Grown(b.get(), {});
  EXPECT_EQ(ToDot(*a), ToDot(*b));
}

TEST(SaturateTest, AWrongRowIsNamed) {
  const RuleRow row = {
      .name = "broken",
      .family = "algebra",
      .algebra = "names no op",
      .rewrites = [](const TermLanguage&, const FactsAnalysis&) {
        return std::vector<egraph::RuleSpec>{{.premises = {"(Plus ?x ?y)"}, .conclusions = {"?x"}}};
      }};
  const std::unique_ptr<TermGraph> terms = Terms(Attention());
  const absl::Status status = SaturateWith(terms.get(), {&row}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(status.message().find("broken"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace athanor
