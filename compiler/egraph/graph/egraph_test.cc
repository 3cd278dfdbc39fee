#include "compiler/egraph/graph/egraph.h"

#include "compiler/egraph/math_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::egraph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rebuilds and checks all invariants.
void Settle(EGraph* graph) {
  graph->Rebuild();
  const absl::Status status = graph->Verify();
  ASSERT_TRUE(status.ok()) << status;
}

void Unite(EGraph* graph, ClassId a, ClassId b) {
  const absl::StatusOr<bool> united = graph->Union(a, b);
  ASSERT_TRUE(united.ok()) << united.status();
}

TEST(EGraph, EqualNodesAreOne) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId a = math.Add(&graph, "(+ x 1)");
  EXPECT_EQ(math.Add(&graph, "(+ x 1)"), a);
  EXPECT_NE(math.Add(&graph, "(+ 1 x)"), a);
  EXPECT_NE(math.Add(&graph, "(round[1] x)"), math.Add(&graph, "(round[2] x)"));
  EXPECT_EQ(graph.num_nodes(), 6u);
  EXPECT_EQ(graph.num_classes(), 6u);
  Settle(&graph);
}

TEST(EGraph, CongruenceClimbsToTheTop) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId with_a = math.Add(&graph, "(ln (sin (cos (+ a c))))");
  const ClassId with_b = math.Add(&graph, "(ln (sin (cos (+ b c))))");
  Unite(&graph, math.Add(&graph, "a"), math.Add(&graph, "b"));
  EXPECT_FALSE(graph.clean());
  EXPECT_NE(graph.Find(with_a), graph.Find(with_b));
  Settle(&graph);
  EXPECT_TRUE(graph.clean());
  EXPECT_EQ(graph.Find(with_a), graph.Find(with_b));
  EXPECT_EQ(graph.num_nodes(), 7u);  // a, b, c and one node of each kind above
  EXPECT_EQ(graph.num_classes(), 6u);
}

TEST(EGraph, NodesSayWhoAddedThem) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId a = math.Add(&graph, "a"), b = math.Add(&graph, "b");
  const OpId sin = math.language().Find("sin");
  const ClassId of_a = *graph.Add(sin, {}, {a}, Cause{3});
  EXPECT_EQ(*graph.Add(sin, {}, {a}, Cause{4}), of_a);
  const ClassId of_b = *graph.Add(sin, {}, {b}, Cause{5});
  EXPECT_EQ(graph.added_by(graph.nodes(a)[0]), Cause::kUser);
  EXPECT_EQ(graph.added_by(graph.nodes(of_a)[0]), Cause{3});
  // If two nodes become equal, the remaining one keeps its cause.
  ASSERT_TRUE(*graph.Union(a, b, Cause{6}));
  Settle(&graph);
  ASSERT_EQ(graph.nodes(of_b).size(), 1u);
  EXPECT_NE(graph.added_by(graph.nodes(of_b)[0]), Cause{6});
}

TEST(EGraph, UnionOfOneClassIsNoChange) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId a = math.Add(&graph, "a"), b = math.Add(&graph, "b");
  EXPECT_TRUE(*graph.Union(a, b));
  EXPECT_FALSE(*graph.Union(a, b));
  EXPECT_FALSE(*graph.Union(b, b));
  Settle(&graph);
}

TEST(EGraph, NestedCongruenceInOneRebuild) {
  // f^5(a) = a and f^3(a) = a give f(a) = a.
  const Math math;
  EGraph graph(&math.language());
  const auto sines = [&](int n) {
    std::string text = "a";
    for (int i = 0; i < n; ++i) text = "(sin " + text + ")";
    return math.Add(&graph, text);
  };
  Unite(&graph, sines(5), sines(0));
  Unite(&graph, sines(3), sines(0));
  Settle(&graph);
  EXPECT_EQ(graph.num_classes(), 1u);
  EXPECT_EQ(graph.num_nodes(), 2u);
  EXPECT_EQ(graph.Find(sines(1)), graph.Find(sines(0)));
}

TEST(EGraph, ACycleIsFinite) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId x = math.Add(&graph, "x");
  const ClassId sum = math.Add(&graph, "(+ x 0)");
  Unite(&graph, x, sum);
  Settle(&graph);
  EXPECT_EQ(math.Lookup(graph, "(+ (+ (+ x 0) 0) 0)"), graph.Find(x));
  EXPECT_EQ(graph.nodes(x).size(), 2u);
  EXPECT_EQ(graph.parents(x).size(), 1u);
}

TEST(EGraph, AddingBetweenUnionAndRebuild) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId before = math.Add(&graph, "(+ b b)");
  Unite(&graph, math.Add(&graph, "a"), math.Add(&graph, "b"));
  const ClassId after = math.Add(&graph, "(+ a b)");
  Settle(&graph);
  EXPECT_EQ(graph.Find(before), graph.Find(after));
  EXPECT_EQ(graph.num_nodes(), 3u);
}

TEST(EGraph, ListsAreSortedByOperatorAndId) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId x = math.Add(&graph, "x");
  for (const char* text : {"(sin x)", "(* x x)", "(+ x 1)", "(* x 1)", "(+ x x)"}) {
    math.Add(&graph, text);
  }
  Settle(&graph);
  const auto texts = [&](absl::Span<const NodeId> nodes) {
    std::vector<std::string> result;
    for (const NodeId n : nodes) result.push_back(graph.NodeText(n));
    return result;
  };
  EXPECT_THAT(texts(graph.parents(x)),
              ElementsAre("(+ c0 c3)", "(+ c0 c0)", "(* c0 c0)", "(* c0 c3)", "(sin c0)"));
  EXPECT_THAT(texts(graph.ParentsOf(x, OpId{kMul})), ElementsAre("(* c0 c0)", "(* c0 c3)"));
  EXPECT_TRUE(graph.ParentsOf(x, OpId{kCos}).empty());
  EXPECT_THAT(texts(graph.NodesOf(x, OpId{kSym})), ElementsAre("x"));
}

TEST(EGraph, StampsSayWhatChanged) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId a = math.Add(&graph, "a"), b = math.Add(&graph, "b");
  const ClassId top = math.Add(&graph, "(sin (cos b))");
  math.Add(&graph, "(cos c)");
  Settle(&graph);
  const uint32_t epoch = graph.epoch();
  EXPECT_EQ(epoch, 1u);
  math.Add(&graph, "a");
  Settle(&graph);
  EXPECT_EQ(graph.epoch(), epoch);  // an empty rebuild ends no epoch
  Unite(&graph, b, a);
  Settle(&graph);
  std::vector<std::string> changed;
  for (uint32_t i = 0; i < graph.node_bound(); ++i) {
    if (graph.stamp(NodeId{i}) > epoch) changed.push_back(graph.NodeText(NodeId{i}));
  }
  // `a` was merged into b, which has a parent. Nodes above (cos b) keep their children's classes.
  EXPECT_THAT(changed, ElementsAre("a"));
  EXPECT_EQ(graph.changes(OpId{kSin}).size(), 1u);
  EXPECT_TRUE(graph.IsClass(top));
}

TEST(EGraph, WrongCallsAreRefused) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId x = math.Add(&graph, "x");
  EXPECT_THAT(graph.Add(OpId{kSin}, {}, {x, x}).status().ToString(), HasSubstr("sin takes 1"));
  EXPECT_THAT(graph.Add(OpId{kSin}, {}, {ClassId{9}}).status().ToString(),
              HasSubstr("sin: child 0 is not a class"));
  EXPECT_THAT(graph.Union(x, ClassId{9}).status().ToString(), HasSubstr("class 9"));
  EXPECT_THAT(graph.Union(x, ClassId{}).status().ToString(), HasSubstr("invalid id"));
  EXPECT_FALSE(graph.Verify().ok());  // REQUIRES clean(), so it fails
  Settle(&graph);
  EXPECT_EQ(graph.num_nodes(), 1u);
  EXPECT_TRUE(graph.refusals().empty());
}

TEST(EGraph, ManyNodesInFewBytes) {
  const Math math;
  EGraph graph(&math.language());
  const ClassId x = math.Add(&graph, "x");
  ClassId c = x;
  for (int i = 0; i < 50000; ++i) c = *graph.Add(OpId{kAdd}, {}, {c, x});
  Settle(&graph);
  EXPECT_EQ(graph.num_nodes(), 50001u);
  EXPECT_LT(graph.Bytes(), 50000u * 256);
  EXPECT_GT(graph.Bytes(), 50000u * 40);
}

// --- Analyses ---

TEST(Analysis, ValuesClimbAndFold) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const ClassId c = math.Add(&graph, "(* (+ 1 2) (- 7 (+ x 0)))");
  Settle(&graph);
  EXPECT_EQ(math.Lookup(graph, "(+ 1 2)"), math.Lookup(graph, "3"));
  EXPECT_EQ(constants.Get(graph, c), std::nullopt);
  Unite(&graph, math.Add(&graph, "x"), math.Add(&graph, "5"));
  Settle(&graph);
  EXPECT_EQ(constants.Get(graph, c), 6);
  EXPECT_EQ(graph.Find(c), math.Lookup(graph, "6"));
  EXPECT_EQ(constants.Get(graph, ClassId{}), std::nullopt);
}

TEST(Analysis, AValueThatChangesStampsNodesAndParents) {
  const Math math;
  MathConstants constants(&math, /*fold=*/false);
  EGraph graph(&math.language(), &constants);
  const ClassId x = math.Add(&graph, "(ln x)"), y = math.Add(&graph, "(ln y)");
  math.Add(&graph, "(sin (ln x))");
  math.Add(&graph, "(cos (ln x))");
  math.Add(&graph, "(sin (ln y))");
  Settle(&graph);
  const uint32_t epoch = graph.epoch();
  Unite(&graph, x, math.Add(&graph, "4"));
  Settle(&graph);
  EXPECT_EQ(constants.Get(graph, x), 4);
  const NodeId sine = graph.ParentsOf(x, OpId{kSin})[0];
  EXPECT_GT(graph.value_stamp(sine), epoch);
  EXPECT_LE(graph.stamp(sine), epoch);
  EXPECT_LE(graph.value_stamp(graph.ParentsOf(y, OpId{kSin})[0]), epoch);
}

TEST(Analysis, ARefusedUnionChangesNothing) {
  const Math math;
  MathConstants constants(&math);
  EGraph graph(&math.language(), &constants);
  const ClassId two = math.Add(&graph, "2"), three = math.Add(&graph, "3");
  Settle(&graph);
  const absl::StatusOr<bool> united = graph.Union(two, three, Cause{7});
  EXPECT_EQ(united.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(united.status().ToString(), HasSubstr("value 2 is not 3"));
  EXPECT_TRUE(graph.clean());
  EXPECT_NE(graph.Find(two), graph.Find(three));
  EXPECT_EQ(constants.Get(graph, two), 2);
  ASSERT_EQ(graph.refusals().size(), 1u);
  EXPECT_EQ(graph.refusals()[0].kind, Refusal::Kind::kUnion);
  EXPECT_EQ(graph.refusals()[0].cause, Cause{7});
  EXPECT_EQ(graph.num_refused(Cause{7}), 1u);
  EXPECT_EQ(graph.num_refused(Cause{8}), 0u);
  Settle(&graph);
}

TEST(Analysis, ARefusedCongruenceKeepsBothNodesAndNamesItsCause) {
  const Math math;
  MathConstants constants(&math, /*fold=*/false);
  EGraph graph(&math.language(), &constants);
  const ClassId fx = math.Add(&graph, "(sin x)"), fy = math.Add(&graph, "(sin y)");
  Unite(&graph, fx, math.Add(&graph, "1"));
  Unite(&graph, fy, math.Add(&graph, "2"));
  Settle(&graph);
  ASSERT_TRUE(*graph.Union(math.Add(&graph, "x"), math.Add(&graph, "y"), Cause{3}));
  Settle(&graph);
  EXPECT_NE(graph.Find(fx), graph.Find(fy));
  EXPECT_EQ(graph.nodes(fx).size(), 2u);
  EXPECT_EQ(graph.nodes(fy).size(), 2u);
  ASSERT_EQ(graph.refusals().size(), 1u);
  EXPECT_EQ(graph.refusals()[0].kind, Refusal::Kind::kCongruence);
  EXPECT_EQ(graph.refusals()[0].cause, Cause{3});
  // The two nodes stay separate while their child is united with another class.
  Unite(&graph, math.Add(&graph, "(cos z)"), math.Add(&graph, "x"));
  Unite(&graph, math.Add(&graph, "(ln z)"), math.Add(&graph, "x"));
  Settle(&graph);
  EXPECT_NE(graph.Find(fx), graph.Find(fy));
}

// An analysis with values that the user sets for symbols.
class Sizes : public TypedAnalysis<int> {
 public:
  absl::StatusOr<int> Make(const EGraph& graph, NodeId n) const override {
    int size = 1;
    for (const ClassId c : graph.children(n)) size += Get(graph, c);
    if (size > 4) return absl::InvalidArgumentError("more than 4");
    return size;
  }
  absl::StatusOr<DidMerge> Merge(int* into, const int& from) const override {
    const DidMerge did{.into_changed = from < *into, .from_differs = *into < from};
    if (did.into_changed) *into = from;
    return did;
  }
};

TEST(Analysis, ARefusedNodeLeavesNoTrace) {
  const Math math;
  Sizes sizes;
  EGraph graph(&math.language(), &sizes);
  const ClassId c = math.Add(&graph, "(sin (sin (sin x)))");
  const absl::StatusOr<ClassId> more = graph.Add(OpId{kSin}, {}, {c}, Cause{1});
  EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(more.status().ToString(), HasSubstr("(sin c3): more than 4"));
  ASSERT_EQ(graph.refusals().size(), 1u);
  EXPECT_EQ(graph.refusals()[0].kind, Refusal::Kind::kNode);
  EXPECT_EQ(graph.num_nodes(), 4u);
  Settle(&graph);
  // The value is smaller now, so the same node is accepted; a cycle does not keep its value from
  // converging.
  Unite(&graph, c, math.Add(&graph, "x"));
  Settle(&graph);
  EXPECT_EQ(sizes.Get(graph, c), 1);
  EXPECT_TRUE(graph.Add(OpId{kSin}, {}, {c}).ok());
  Settle(&graph);
}

TEST(Analysis, KnownMerges) {
  std::optional<int> known = 1, unknown;
  EXPECT_TRUE(MergeKnown(&known, unknown, "sizes")->from_differs);
  EXPECT_TRUE(MergeKnown(&unknown, known, "sizes")->into_changed);
  EXPECT_EQ(unknown, 1);
  EXPECT_THAT(MergeKnown(&known, std::optional<int>(2), "sizes").status().ToString(),
              HasSubstr("sizes differ"));
}

}  // namespace
}  // namespace athanor::egraph
