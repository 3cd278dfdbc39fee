#include "compiler/egraph/graph/dot.h"

#include "absl/strings/str_cat.h"
#include "compiler/egraph/dot_testing.h"
#include "compiler/egraph/math_rules_testing.h"
#include "compiler/egraph/math_testing.h"
#include "compiler/egraph/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Dot, ClassesAreClustersAndChildrenEdges) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const ClassId sum = math.Add(&graph, "(+ x 0)");
  graph.Union(sum, math.Add(&graph, "x")).status().IgnoreError();
  graph.Rebuild();
  EXPECT_EQ(DotText(graph), R"(digraph egraph {
  compound=true
  node [shape=box style=rounded]
  subgraph cluster_0 {
    style=dotted label="c0"
    n2 [label="+"]
    n0 [label="x"]
  }
  subgraph cluster_1 {
    style=dotted label="c1: = 0"
    n1 [label="0"]
  }
  n2 -> n2 [lhead=cluster_0 taillabel="0"]
  n2 -> n1 [lhead=cluster_1 taillabel="1"]
}
)");
}

TEST(Dot, LabelsAreEscaped) {
  const PayloadText text{[](PayloadId) { return "say \"\\\"\n"; },
                         [](std::string_view) { return PayloadId{0}; }};
  const absl::StatusOr<Language> language = Language::Make({{"f", 0, text}});
  EGraph graph(&*language);
  ASSERT_TRUE(graph.Add(OpId{0}, PayloadId{0}, {}).ok());
  graph.Rebuild();
  EXPECT_THAT(DotText(graph), HasSubstr(R"([label="f[say \"\\\"\n]"])"));
}

TEST(Dot, LongLabelsAreCut) {
  // Two bytes per character, so that a cut could fall inside one.
  std::string long_text = "x";
  for (int i = 0; i < 200; ++i) long_text += "\xc3\xa9";
  const PayloadText text{[&](PayloadId) { return long_text; },
                         [](std::string_view) { return PayloadId{0}; }};
  const absl::StatusOr<Language> language = Language::Make({{"f", 0, text}});
  EGraph graph(&*language);
  ASSERT_TRUE(graph.Add(OpId{0}, PayloadId{0}, {}).ok());
  graph.Rebuild();
  EXPECT_THAT(DotText(graph), HasSubstr("\xc3\xa9...\"]"));
  EXPECT_LT(DotText(graph).size(), 400u);
}

// A reader finds all classes, nodes and edges, for any contents of labels.
TEST(Dot, ReadsBack) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const std::vector<Rule> rules = MathRules(math, &constants);
  math.Add(&graph, "(i (* x (+ (cos x) (- x 3))) x)");
  Runner(&graph, rules, {.limits = {.iterations = 5, .nodes = 2000}}).Run();
  const absl::StatusOr<DotPicture> picture = ParseDot(DotText(graph, graph.num_nodes()));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_EQ(picture->clusters.size(), graph.num_classes());
  size_t nodes = 0, edges = 0;
  for (const ClassId id : graph.Classes()) {
    const auto cluster = picture->clusters.find(absl::StrCat("cluster_", id.value));
    ASSERT_NE(cluster, picture->clusters.end()) << id.value;
    EXPECT_EQ(cluster->second.size(), graph.nodes(id).size());
    nodes += cluster->second.size();
    for (const NodeId n : graph.nodes(id)) edges += graph.children(n).size();
  }
  EXPECT_EQ(nodes, graph.num_nodes());
  EXPECT_EQ(picture->edges.size(), edges);
  for (const DotPicture::Edge& edge : picture->edges) {
    EXPECT_TRUE(picture->clusters.at(edge.attributes.at("lhead")).contains(edge.to));
  }
}

TEST(Dot, TheReaderFindsWhatIsWrong) {
  EXPECT_TRUE(ParseDot("digraph g { a [label=\"}\\\"\"] subgraph c { b } a -> b }").ok());
  for (const char* wrong :
       {"", "digraph g {", "digraph g { a }}", "digraph g { a [label=\"x] }", "digraph g { a a }",
        "digraph g { a -> b }", "digraph g { a [label] }", "digraph g { subgraph c { a }"}) {
    EXPECT_FALSE(ParseDot(wrong).ok()) << wrong;
  }
}

TEST(Dot, LargeGraphsAreCut) {
  const Math math;
  EGraph graph(&math.language());
  math.Add(&graph, "(+ (sin x) (cos y))");
  graph.Rebuild();
  EXPECT_THAT(DotText(graph, 3), HasSubstr("// 2 nodes left out"));
  EXPECT_THAT(DotText(graph, 3), Not(HasSubstr("\"+\"")));
  EXPECT_THAT(DotText(graph, 5), Not(HasSubstr("left out")));
}

}  // namespace
}  // namespace athanor::egraph
