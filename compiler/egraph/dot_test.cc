#include "compiler/egraph/dot.h"

#include "compiler/egraph/math_testing.h"
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
  // Two bytes a character, so that a cut could fall within one.
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
