#include "compiler/search/regions/region_joins.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/rules/terms/views.h"
#include "compiler/search/regions/region_forms.h"
#include "compiler/search/regions/region_testing.h"
#include "compiler/search/search/search.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {
namespace {

constexpr char kHeadsOut[] = "IndexMap(@0) {map=map[b, 4, s, 8]($0, $2, $1, $3)}";
constexpr char kHeadsIn[] = "IndexMap(@0) {map=map[b, s, 4, 8]($0, $2, $1, $3)}";

// Appends attention over x [b, s, heads, 8], which the op wants as [b, heads, s, 8], and a
// residual. The layout of x decides which views remain.
int AppendAttention(BodyWriter* w, int x) {
  const int heads = w->Node(kHeadsOut, {x});
  const int mixed = w->Node("Attention(@0, @0, @0) {scale=0.5}", {heads});
  return w->Node("Add(@0, @1)", {x, w->Node(kHeadsIn, {mixed})});
}

Graph AttentionLayers(int count, bool inner_output = false) {
  BodyWriter w;
  int x = w.Node("Input \"x\" : f32[b, s, 4, 8]");
  for (int i = 0; i < count; ++i) {
    x = AppendAttention(&w, x);
    if (inner_output && i == count / 2) w.Output(x);
  }
  w.Output(x);
  return w.Build();
}

RegionFormsOptions Options(const Graph& graph) {
  return {.sizes = {SizePoint(graph.dims.size(), 8)},
          .machine = Machine::Typical({}),
          .cut = {.max_nodes = 4, .min_nodes = 3},
          .max_joins = 0};
}

std::unique_ptr<RegionForms> Make(const Graph& graph, const RegionFormsOptions& options) {
  auto forms = RegionForms::Create(graph, options);
  EXPECT_TRUE(forms.ok()) << forms.status();
  return forms.ok() ? *std::move(forms) : nullptr;
}

int Views(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [](const Node& n) { return n.op == Op::kIndexMap; }));
}

bool IsJoined(const RegionForms& forms, int form) {
  return absl::StrContains(forms.About(form), "boundary_layouts(");
}

// --- Layouts of one region ---

TEST(RegionLayoutsTest, TheStoredValueReadBackIsTheValue) {
  const Shape shape = {Expr::Symbol("b"), 1, 0, Expr::Symbol("s")};
  const BoundaryLayout layout{{3, 1, 0, 2}};
  const IndexMap stored = StoredMap(shape, layout), value = ValueMap(shape, layout);
  EXPECT_EQ(stored.shape, (Shape{Expr::Symbol("s"), 1, Expr::Symbol("b"), 0}));
  EXPECT_EQ(value.shape, shape);
  Graph graph;
  graph.dims = {{"b", 1, 4}, {"s", 1, 4}};
  graph.nodes = {{Op::kInput, {}, {}, {DType::kF32, shape}, "x"},
                 {Op::kIndexMap, {0}, {{"map", stored}}, {DType::kF32, stored.shape}, ""},
                 {Op::kIndexMap, {1}, {{"map", value}}, {DType::kF32, shape}, ""}};
  graph.outputs = {{"y", 2}};
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph);
  EXPECT_EQ(ComposeViews(graph).outputs[0].node, 0);
  EXPECT_EQ(LayoutText(layout), "[3,1,0,2]");
}

TEST(RegionLayoutsTest, TuplesAreBoundedAndStartWithNoChange) {
  const BoundaryLayout a{{1, 0}}, b{{0, 2, 1}}, c{{2, 0, 1}};
  const PortLayouts layouts{{{a}, {}, {b, c}}, {{a}}};
  const std::vector<LayoutTuple> all = TuplesOf(layouts, 100);
  EXPECT_EQ(all.size(), 2u * 3 * 2);
  EXPECT_EQ(all[0], (LayoutTuple{{{}, {}, {}}, {{}}}));
  EXPECT_EQ(all[1], (LayoutTuple{{a, {}, {}}, {{}}}));
  const std::vector<LayoutTuple> few = TuplesOf(layouts, 4);
  EXPECT_EQ(few.size(), 4u);
  EXPECT_EQ(few.back(), (LayoutTuple{{a, {}, b}, {a}}));
  EXPECT_EQ(TuplesOf(layouts, 1).size(), 1u);
}

std::unique_ptr<LayoutTerms> Terms(const Graph& region, const PortLayouts& layouts) {
  const NodeCosts costs(region.dims, {{8, 8}}, Machine::Typical({}));
  auto terms = LayoutTerms::Create(region, layouts, {}, {}, costs);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return terms.ok() ? *std::move(terms) : nullptr;
}

TEST(RegionLayoutsTest, TheRulesMakeTheEndsUseOfTheirLayouts) {
  const Graph region = ParseBody(R"(
    %0 = Input "x" : f32[b, 16] %1 = Parameter "w" : f32[16, 24]
    %2 = Tanh(%0) %3 = Contract(%2, %1) {spec="mk,kn->mn"} %4 = Exp(%3) output "y" = %4)");
  const BoundaryLayout swapped{{1, 0}};
  const auto terms = Terms(region, {{{swapped}}, {{swapped}}});
  ASSERT_NE(terms, nullptr);
  for (const LayoutTuple& tuple : TuplesOf(terms->layouts(), 4)) {
    const std::vector<LayoutTerms::Way> ways = terms->Ways(tuple, 2);
    ASSERT_FALSE(ways.empty());
    const Graph& stored = ways[0].stored;
    ASSERT_TRUE(Verify(stored).ok()) << Verify(stored) << ToText(stored);
    EXPECT_EQ(Views(stored), 0) << ToText(stored);
    const Shape x = {Expr::Symbol("b"), 16}, y = {Expr::Symbol("b"), 24};
    EXPECT_EQ(stored.node(stored.InputIds()[0]).type.shape, StoredMap(x, tuple.inputs[0]).shape);
    EXPECT_EQ(stored.node(stored.outputs[0].node).type.shape, StoredMap(y, tuple.outputs[0]).shape);
    const Graph same = AsItIs(stored, region, tuple);
    ASSERT_TRUE(Verify(same).ok()) << Verify(same) << ToText(same);
    EXPECT_EQ(same.node(same.InputIds()[0]).type.shape, x);
    EXPECT_EQ(same.node(same.outputs[0].node).type.shape, y);
  }
}

TEST(RegionLayoutsTest, WantedIsWhatNodesReadThroughOrWrite) {
  const Graph region = ParseBody(R"(
    %0 = Input "q" : f32[b, s, 4, 8] %1 = Input "k" : f32[b, s] %2 = Input "l" : f32[7, s]
    %3 = IndexMap(%0) {map=map[b, 4, s, 8]($0, $2, $1, $3)} %4 = Exp(%3)
    %5 = Contract(%1, %2) {spec="bs,ns->bn"} %6 = Input "m" : f32[s, b]
    %7 = Tanh(%6) %8 = IndexMap(%7) {map=map[b, s]($1, $0)}
    output "e" = %4 output "c" = %5 output "t" = %8)");
  const auto terms = TermGraph::Create(region);
  ASSERT_TRUE(terms.ok()) << terms.status();
  const PortLayouts wanted = WantedLayouts(**terms, region);
  using Layouts = std::vector<BoundaryLayout>;
  EXPECT_EQ(wanted.inputs[0], (Layouts{{{0, 2, 1, 3}}}));
  EXPECT_EQ(wanted.inputs[1], (Layouts{{{1, 0}}}));
  EXPECT_EQ(wanted.inputs[2], (Layouts{{{1, 0}}}));
  EXPECT_EQ(wanted.inputs[3], Layouts());
  EXPECT_EQ(wanted.outputs[0], Layouts());
  EXPECT_EQ(wanted.outputs[2], (Layouts{{{1, 0}}}));
}

// --- Joins ---

TEST(RegionJoinsTest, LayersKeepAStreamAsTheyAllWantIt) {
  for (const int layers : {3, 8, 24}) {
    const Graph graph = AttentionLayers(layers);
    const auto forms = Make(graph, Options(graph));
    forms->UseCost([](const Graph& g) { return Views(g); });
    EXPECT_EQ(Views(graph), 2 * layers);
    const std::vector<int> near = forms->Neighbours(0);
    ASSERT_FALSE(near.empty());
    // The graph's own input and output keep their layouts; nothing between them is transposed.
    EXPECT_EQ(Views(forms->graph(near[0])), 2) << ToText(forms->graph(near[0]));
    EXPECT_TRUE(absl::StrContains(forms->About(near[0]), "[0,2,1,3]x")) << forms->About(near[0]);
    EXPECT_TRUE(Verify(forms->graph(near[0])).ok());
    // From there layouts gain nothing more.
    for (const int next : forms->Neighbours(near[0])) {
      EXPECT_GE(Views(forms->graph(next)), 2);
    }
  }
}

TEST(RegionJoinsTest, AValueThatTheGraphGivesStaysAsItIs) {
  const Graph graph = AttentionLayers(8, /*inner_output=*/true);
  const auto forms = Make(graph, Options(graph));
  forms->UseCost([](const Graph& g) { return Views(g); });
  const std::vector<int> near = forms->Neighbours(0);
  ASSERT_FALSE(near.empty());
  const Graph& best = forms->graph(near[0]);
  EXPECT_TRUE(IsJoined(*forms, near[0]));
  // A view remains for each output; the second half reads the value in the layout it had before.
  EXPECT_EQ(Views(best), 3) << ToText(best);
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    EXPECT_EQ(best.node(best.outputs[o].node).type, graph.node(graph.outputs[o].node).type);
  }
}

TEST(RegionJoinsTest, ConversionsThatOutweighTheGainAreNotTaken) {
  // A single layer between ends that keep their layouts: views inside, or outside.
  BodyWriter w;
  const int x = w.Node("Exp(@0)", {w.Node("Input \"x\" : f32[b, s, 4, 8]")});
  const int y = AppendAttention(
      &w, w.Node("SumReduce(@0) {axes=[0]}",
                 {w.Node("IndexMap(@0) {map=map[3, b, s, 4, 8]($1, $2, $3, $4)}", {x})}));
  w.Output(w.Node("Tanh(@0)", {w.Node("Exp(@0)", {y})}));
  const Graph graph = w.Build();
  const auto forms = Make(graph, Options(graph));
  ASSERT_FALSE(forms->joins()->variants().empty());
  // Ends of a region in another layout cost more than all views together.
  forms->UseCost([](const Graph& g) {
    const bool turned = g.node(g.InputIds()[0]).type.shape[1].IsConstant(4) ||
                        g.node(g.outputs[0].node).type.shape[1].IsConstant(4);
    return Views(g) + (turned ? 10.0 : 0.0);
  });
  for (const int form : forms->Neighbours(0)) {
    EXPECT_FALSE(IsJoined(*forms, form)) << forms->About(form);
  }
}

TEST(RegionJoinsTest, LayoutsThatBringNothingAreNoForms) {
  const Graph graph = Layers(6);
  const auto forms = Make(graph, Options(graph));
  forms->UseCost([](const Graph&) { return 1.0; });
  for (const int form : forms->Neighbours(0)) EXPECT_FALSE(IsJoined(*forms, form));
}

TEST(RegionJoinsTest, AxesOfSize0And1AndSeveralUses) {
  for (const char* sizes : {"b, 1, s", "b, 0, s", "1, 1, 1", "s, b, 1"}) {
    SCOPED_TRACE(sizes);
    const std::vector<std::string> axes = absl::StrSplit(sizes, ", ");
    const std::string turned = absl::StrCat(axes[0], ", ", axes[2], ", ", axes[1]);
    BodyWriter w;
    const int x = w.Node(absl::StrCat("Input \"x\" : f32[", sizes, "]"));
    const int first = w.Node("Exp(@0)", {w.Node("Tanh(@0)", {x})});
    int last = first;
    for (int i = 0; i < 3; ++i) {
      const int view = w.Node(absl::StrCat("IndexMap(@0) {map=map[", turned, "]($0, $2, $1)}"),
                              {w.Node("Add(@0, @1)", {last, first})});
      const int soft = w.Node("Exp(@0)", {w.Node("Tanh(@0)", {view})});
      last = w.Node(absl::StrCat("IndexMap(@0) {map=map[", sizes, "]($0, $2, $1)}"), {soft});
    }
    w.Output(last);
    w.Output(w.Node("Sin(@0)", {last}));
    const Graph graph = w.Build();
    const auto forms = Make(graph, Options(graph));
    forms->UseCost([](const Graph& g) { return Views(g); });
    std::vector<Graph> made;
    for (const int form : forms->Neighbours(0)) made.push_back(forms->graph(form));
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const absl::StatusOr<Graph> random = forms->RandomForm(seed);
      ASSERT_TRUE(random.ok()) << random.status();
      made.push_back(*random);
    }
    const Expr::Env dims = {{"b", 2}, {"s", 3}};
    std::vector<int64_t> shape;
    for (const Expr& e : graph.node(graph.InputIds()[0]).type.shape) {
      shape.push_back(*e.Evaluate(dims));
    }
    Tensor input = Tensor::Zeros(DType::kF32, shape);
    for (int64_t i = 0; i < input.elements(); ++i) {
      input.data<float>()[i] = 0.1F * static_cast<float>(i) - 0.3F;
    }
    const auto want = Evaluate(graph, {input}, &dims);
    ASSERT_TRUE(want.ok()) << want.status();
    for (const Graph& other : made) {
      ASSERT_TRUE(Verify(other).ok()) << Verify(other) << ToText(other);
      const auto got = Evaluate(other, {input}, &dims);
      ASSERT_TRUE(got.ok()) << got.status();
      // No sum is computed in another order.
      for (size_t o = 0; o < want->size(); ++o) EXPECT_EQ((*got)[o].bytes, (*want)[o].bytes);
    }
  }
}

// Forms and joins of layers with states write the same, whatever lies between the regions.
TEST(RegionJoinsTest, StatesStayAsTheyAre) {
  const Graph graph = StateLayers(4);
  const Expr::Env dims = {{"b", 5}, {"s", 2}};
  std::vector<Tensor> arguments;
  for (const NodeId n : graph.ArgumentIds()) {
    const TensorType& type = graph.node(n).type;
    Tensor& t =
        arguments.emplace_back(Tensor::Zeros(type.dtype, ConcreteShape(type.shape, dims).value()));
    for (int64_t i = 0; i < t.elements(); ++i) {
      const bool slot = type.dtype == DType::kI32;
      StoreScalar(t, i,
                  slot ? Scalar::Signed(DType::kI32, 31 - 7 * i)
                       : Scalar::Float(type.dtype, 0.03 * static_cast<double>(i % 23) - 0.3));
    }
  }
  const auto want = Evaluate(graph, arguments, &dims);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(want->size(), 5u);
  for (const int nodes : {6, 60}) {
    RegionFormsOptions options = Options(graph);
    options.cut = {.max_nodes = nodes, .min_nodes = 2};
    const auto forms = Make(graph, options);
    std::vector<Graph> made;
    for (const int form : forms->Neighbours(0)) made.push_back(forms->graph(form));
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const absl::StatusOr<Graph> random = forms->RandomForm(seed);
      ASSERT_TRUE(random.ok()) << random.status();
      made.push_back(*random);
    }
    EXPECT_GT(made.size(), 8u);
    for (const Graph& other : made) {
      ASSERT_TRUE(Verify(other).ok()) << Verify(other) << ToText(other);
      const auto got = Evaluate(other, arguments, &dims);
      ASSERT_TRUE(got.ok()) << got.status() << ToText(other);
      ASSERT_EQ(got->size(), want->size());
      for (size_t o = 0; o < want->size(); ++o) {
        EXPECT_TRUE(CompareTensors((*got)[o], (*want)[o], 1e-5, 1e-5).ok()) << ToText(other);
      }
    }
  }
}

TEST(RegionJoinsTest, TheSameGraphGivesTheSameJoins) {
  const auto texts = [] {
    const Graph graph = AttentionLayers(5, true);
    const auto forms = Make(graph, Options(graph));
    forms->UseCost([](const Graph& g) { return Views(g); });
    std::vector<std::string> all;
    for (const int form : forms->Neighbours(0)) {
      all.push_back(forms->About(form) + ToText(forms->graph(form)));
    }
    for (uint64_t seed = 0; seed < 6; ++seed) all.push_back(ToText(*forms->RandomForm(seed)));
    return all;
  };
  EXPECT_EQ(texts(), texts());
}

TEST(RegionJoinsTest, EqualLayersHaveAsManyVariantsAsOne) {
  std::vector<size_t> variants;
  for (const int layers : {6, 24, 48}) {
    const Graph graph = AttentionLayers(layers);
    variants.push_back(Make(graph, Options(graph))->joins()->variants().size());
  }
  EXPECT_GT(variants[0], 0u);
  EXPECT_EQ(variants[0], variants[1]);
  EXPECT_EQ(variants[1], variants[2]);
}

// Returns the report of a search by the cost model.
SearchReport Searched(const Graph& graph, RegionFormsOptions options) {
  v1::Target target;
  target.set_vector_bytes(64);
  target.set_vector_registers(32);
  target.set_l1_bytes(32 << 10);
  target.set_l2_bytes(1 << 20);
  target.set_threads(2);
  options.machine = Machine::Typical(target);
  Search search(Make(graph, options), target, options.machine,
                {.sizes = options.sizes, .mode = SearchMode::kFast});
  for (Search::Step step = search.Next(); !step.done; step = search.Next()) {
    search.TellPlan(step.plan, true);
  }
  return search.Report();
}

// The second contraction sums y along its rows and packs it, unless the first one writes it
// transposed.
TEST(RegionJoinsTest, ASearchTakesAJoin) {
  const Graph graph = ParseBody(R"(
    %0 = Input "x" : f32[b, 64] %1 = Parameter "w" : f32[64, 128] %2 = Input "q" : f32[256, 128]
    %3 = Contract(%0, %1) {spec="mk,kn->mn"} %4 = Tanh(%3)
    %5 = Contract(%2, %4) {spec="mk,nk->mn"} %6 = Exp(%5) output "y" = %6)");
  RegionFormsOptions options = Options(graph);
  options.sizes = {{64, 64}};
  options.cut = {.max_nodes = 2, .min_nodes = 1};
  const SearchReport joined = Searched(graph, options);
  EXPECT_TRUE(absl::StrContains(joined.rules, "boundary_layouts(r0.y0[1,0]x1)")) << joined.rules;
  options.rules.disabled = {"boundary_layouts"};
  EXPECT_LT(joined.predicted, 0.98 * Searched(graph, options).predicted);
}

TEST(RegionJoinsTest, WithoutTimeThereAreTheFormsOfEachRegion) {
  const Graph graph = AttentionLayers(3);
  RegionFormsOptions options = Options(graph);
  options.join_time = absl::ZeroDuration();
  const auto forms = Make(graph, options);
  ASSERT_NE(forms->joins(), nullptr);
  EXPECT_TRUE(forms->joins()->variants().empty());
  for (const RegionReport& r : forms->Report()) EXPECT_EQ(r.stop, egraph::StopReason::kSaturated);
  for (const int form : forms->Neighbours(0)) EXPECT_FALSE(IsJoined(*forms, form));
  for (uint64_t seed = 0; seed < 4; ++seed) EXPECT_TRUE(forms->RandomForm(seed).ok());
}

TEST(RegionJoinsTest, ARowSwitchesThemOff) {
  const Graph graph = AttentionLayers(3);
  for (const char* name : {"boundary_layouts", "layout"}) {
    RegionFormsOptions options = Options(graph);
    options.rules.disabled = {name};
    const auto forms = Make(graph, options);
    EXPECT_EQ(forms->joins(), nullptr);
    for (const int form : forms->Neighbours(0)) EXPECT_FALSE(IsJoined(*forms, form));
  }
}

}  // namespace
}  // namespace athanor
