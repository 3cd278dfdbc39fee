#include "compiler/search/regions/region.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/search/regions/region_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

absl::StatusOr<Graph> StitchOwn(const Graph& graph, const Regions& regions) {
  std::vector<const Graph*> own;
  for (const Region& r : regions.distinct) own.push_back(&r.graph);
  return Stitch(graph, regions, own);
}

// Checks the properties of every cut.
void ExpectSound(const Graph& graph, const Regions& regions, const CutOptions& options) {
  std::set<NodeId> seen;
  std::vector<int> instances(regions.distinct.size());
  for (const RegionInstance& i : regions.instances) {
    const Region& r = regions.distinct[i.region];
    ++instances[i.region];
    EXPECT_EQ(i.nodes.size(), static_cast<size_t>(r.nodes));
    EXPECT_LE(r.nodes, options.max_nodes);
    for (NodeId n : i.nodes) EXPECT_TRUE(seen.insert(n).second) << "%" << n << " is in two regions";
    EXPECT_EQ(i.inputs.size(), r.graph.InputIds().size());
    EXPECT_EQ(i.parameters.size(), r.graph.ParameterIds().size());
    EXPECT_EQ(i.states.size(), r.graph.StateIds().size());
    EXPECT_EQ(i.results.size(), r.graph.outputs.size());
  }
  for (size_t i = 0; i < regions.distinct.size(); ++i) {
    EXPECT_EQ(regions.distinct[i].instances, instances[i]);
    const absl::Status valid = Verify(regions.distinct[i].graph);
    EXPECT_TRUE(valid.ok()) << valid << ToText(regions.distinct[i].graph);
  }
  const absl::StatusOr<Graph> same = StitchOwn(graph, regions);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(Verify(*same).ok()) << Verify(*same);
  EXPECT_EQ(CanonicalHash(*same), CanonicalHash(graph)) << ToText(*same) << ToText(graph);
  EXPECT_EQ(same->dims, graph.dims);
  ASSERT_EQ(same->outputs.size(), graph.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(same->outputs[i].name, graph.outputs[i].name);
  }
  const auto names = [](const Graph& g, const std::vector<NodeId>& ids) {
    std::vector<std::string> all;
    for (NodeId n : ids) all.push_back(g.node(n).name);
    return all;
  };
  EXPECT_EQ(names(*same, same->InputIds()), names(graph, graph.InputIds()));
  EXPECT_EQ(names(*same, same->ParameterIds()), names(graph, graph.ParameterIds()));
  EXPECT_EQ(names(*same, same->StateIds()), names(graph, graph.StateIds()));
  EXPECT_EQ(same->updates.size(), graph.updates.size());
}

// Returns "20x6 3x1": nodes and instances of each distinct region.
std::string Shape(const Regions& regions) {
  std::string text;
  for (const Region& r : regions.distinct) {
    absl::StrAppend(&text, text.empty() ? "" : " ", r.nodes, "x", r.instances);
  }
  return text;
}

std::string CutShape(const Graph& graph, const CutOptions& options = {}) {
  const Regions regions = CutRegions(graph, options);
  ExpectSound(graph, regions, options);
  return Shape(regions);
}

TEST(RegionTest, EqualLayersAreOneRegion) {
  EXPECT_EQ(CutShape(Layers(6)), "12x6");
  EXPECT_EQ(CutShape(Layers(24)), "12x24");
  EXPECT_EQ(CutShape(Layers(48)), "12x48");
}

// Known magnitudes of a layer's weights are part of its key: facts that hold for other layers do
// not hold for one whose weight may be infinite.
TEST(RegionTest, LayersWithOtherMagnitudesAreOtherRegions) {
  Graph graph = Layers(6);
  for (const NodeId p : graph.ParameterIds()) SetMagnitude(20, &graph.nodes[p]);
  EXPECT_EQ(CutShape(graph), "12x6");
  const Regions known = CutRegions(graph);
  EXPECT_NE(known.distinct[0].key, CutRegions(Layers(6)).distinct[0].key);
  for (const NodeId p : known.distinct[0].graph.ParameterIds()) {
    EXPECT_EQ(MagnitudeOf(known.distinct[0].graph.node(p)), 20);
  }
  // Changes a weight of the third layer.
  const NodeId other = graph.ParameterIds()[7];
  for (const std::optional<int> magnitude : {std::optional<int>(), std::optional<int>(60)}) {
    SetMagnitude(magnitude, &graph.nodes[other]);
    const Regions regions = CutRegions(graph);
    ExpectSound(graph, regions, {});
    for (const RegionInstance& instance : regions.instances) {
      const Graph& region = regions.distinct[instance.region].graph;
      const std::vector<NodeId> ids = region.ParameterIds();
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(MagnitudeOf(region.node(ids[i])),
                  MagnitudeOf(graph.node(instance.parameters[i])));
      }
    }
  }
}

TEST(RegionTest, ARegionIsAGraphOfItsOwn) {
  const Regions regions = CutRegions(Layers(3));
  ASSERT_EQ(regions.distinct.size(), 1);
  const Graph& g = regions.distinct[0].graph;
  EXPECT_EQ(g.InputIds().size(), 1);
  EXPECT_EQ(g.node(g.InputIds()[0]).name, "x0");
  EXPECT_EQ(g.ParameterIds().size(), 3);
  ASSERT_EQ(g.outputs.size(), 1);
  EXPECT_EQ(g.outputs[0].name, "y0");
  // Copies of the layer's epsilon and of views of it and of the bias belong to the region.
  EXPECT_EQ(g.nodes.size(), 12 + 1 + 3 + 3);
  EXPECT_EQ(regions.instances[1].inputs, regions.instances[0].results);
}

TEST(RegionTest, ValuesUsedFarAway) {
  // Every layer uses a mask, and each layer's result is used at the end, as an output and in a sum.
  for (int layers : {6, 24, 48}) {
    BodyWriter w;
    int x = w.Node("Input \"x\" : f32[b, 16]");
    const int mask = w.Node("Exp(@0)", {w.Node("Input \"m\" : f32[b, 16]")});
    std::vector<int> taps;
    for (int i = 0; i < layers; ++i) {
      x = w.Node("Mul(@0, @1)", {AppendLayer(&w, x), mask});
      taps.push_back(x);
      if (i % 2) w.Output(x);
    }
    int sum = taps[0];
    for (int i = 1; i < layers; ++i) sum = w.Node("Add(@0, @1)", {sum, taps[i]});
    w.Output(sum);
    const Regions regions = CutRegions(w.Build());
    ExpectSound(w.Build(), regions, {});
    EXPECT_LE(regions.distinct.size(), 5) << Shape(regions);
    EXPECT_GE(regions.distinct[1].instances, layers - 3) << Shape(regions);
  }
}

TEST(RegionTest, OutputsBetweenTheStepsOfARecurrence) {
  for (bool last_first : {false, true}) {
    for (int steps : {12, 24, 48}) {
      BodyWriter w;
      int x = w.Node("Input \"x\" : f32[b, 16]");
      std::vector<int> outputs;
      for (int i = 0; i < steps; ++i) {
        x = w.Node("Sin(@0)", {x});
        outputs.push_back(w.Node("Exp2(@0)", {x}));
      }
      if (last_first) std::reverse(outputs.begin(), outputs.end());
      for (int o : outputs) w.Output(o);
      // The last step has no successor.
      EXPECT_EQ(CutShape(w.Build()), absl::StrCat("8x", steps / 4 - 1, " 8x1"));
    }
  }
}

TEST(RegionTest, OutputsThatAreLeavesAndDuplicates) {
  const Graph g = ParseBody(R"(
    %0 = Input "x" : f32[b, 16]
    %1 = Parameter "w" : f32[16]
    %2 = Constant {value=f32[] {2.0}}
    %3 = IndexMap(%2) {map=map[b, 16]()}
    %4 = Mul(%0, %3)
    output "c" = %2
    output "y" = %4
    output "x again" = %0
    output "y again" = %4
    output "view" = %3
    output "w again" = %1)");
  EXPECT_EQ(CutShape(g), "1x1");
}

TEST(RegionTest, GraphsOfOneNode) {
  EXPECT_EQ(CutShape(ParseBody("%0 = Input \"x\" : f32[b]\noutput \"y\" = %0")), "");
  EXPECT_EQ(CutShape(ParseBody("%0 = Input \"x\" : f32[b]\n%1 = Exp(%0)\noutput \"y\" = %1")),
            "1x1");
  EXPECT_EQ(CutShape(ParseBody("%0 = Iota {axis=0, dtype=i64, shape=shape[b]}\noutput \"y\" = %0")),
            "");
}

TEST(RegionTest, TiedWeightsAndSharedLiterals) {
  for (int layers : {6, 24}) {
    BodyWriter w;
    int x = w.Node("Input \"x\" : f32[b, 16]");
    const int tied = w.Parameter("f32[16, 16]");
    const int iota = w.Node("Iota {axis=1, dtype=f32, shape=shape[b, 16]}");
    const int two =
        w.Node("IndexMap(@0) {map=map[b, 16]()}", {w.Node("Constant {value=f32[] {2.0}}")});
    for (int i = 0; i < layers; ++i) {
      const int product = w.Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {x, tied});
      const int own = w.Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}",
                             {w.Node("Mul(@0, @1)", {product, two}), w.Parameter("f32[16, 16]")});
      const int moved = w.Node("Add(@0, @1)", {w.Node("Tanh(@0)", {own}), iota});
      const int twice = w.Node("Max(@0, @1)", {w.Node("Exp(@0)", {moved}), two});
      x = w.Node("Add(@0, @1)", {w.Node("Sqrt(@0)", {twice}), x});
    }
    w.Output(x);
    EXPECT_EQ(CutShape(w.Build()), absl::StrCat("9x", layers));
  }
}

// A value that every layer uses and that is no leaf is computed once: the first layer is not
// different because of it.
TEST(RegionTest, ALargeLiteralIsAWeight) {
  Graph g;
  g.dims = {{"b", 1, 8}};
  GraphBuilder b(&g);
  Tensor literal = Tensor::Zeros(DType::kF32, {200, 200});
  const NodeId x = *b.Input("x", {DType::kF32, {Expr::Symbol("b"), 200}});
  const NodeId y = *b.Add(Op::kContract, {x, *b.Constant(literal)}, {{"spec", "mk,kn->mn"}});
  b.Output("y", *b.Add(Op::kTanh, {y}));
  const Regions regions = CutRegions(g);
  ExpectSound(g, regions, {});
  ASSERT_EQ(regions.distinct.size(), 1);
  EXPECT_EQ(regions.distinct[0].graph.ParameterIds().size(), 1);
}

TEST(RegionTest, ParallelTables) {
  for (int tables : {3, 8, 26}) {
    BodyWriter w;
    int sum = -1;
    std::vector<int> rows;
    for (int i = 0; i < tables; ++i) {
      const int ids = w.Node(absl::StrCat("Input \"ids", i, "\" : i64[b, 3]"));
      const int table = w.Parameter(absl::StrCat("f32[", 100 + 7 * i, ", 16]"));
      rows.push_back(
          w.Node("SumReduce(@0) {axes=[1]}", {w.Node("Gather(@0, @1) {axis=0}", {table, ids})}));
    }
    for (int row : rows) sum = sum < 0 ? row : w.Node("Add(@0, @1)", {sum, row});
    w.Output(sum);
    EXPECT_EQ(CutShape(w.Build()), absl::StrCat(3 * tables - 1, "x1"));
  }
}

TEST(RegionTest, ABodyTwiceAndChainsOfScalings) {
  EXPECT_EQ(CutShape(Layers(2)), "12x2");
  BodyWriter w;
  const int first = w.Node("Input \"x\" : f32[b, 16]");
  int x = first;
  for (int i = 0; i < 12; ++i) {
    const int factor = w.Node(absl::StrCat("Constant {value=f32[] {", i % 3 + 2, ".0}}"));
    x = w.Node("Mul(@0, @1)", {x, w.Node("IndexMap(@0) {map=map[b, 16]()}", {factor})});
  }
  w.Output(w.Node("Add(@0, @1)", {x, first}));
  EXPECT_EQ(CutShape(w.Build()), "13x1");
}

TEST(RegionTest, EqualPartsOverOtherDimsAreOtherRegions) {
  BodyWriter w;
  int x = w.Node("Input \"x\" : f32[b, 16]"), y = w.Node("Input \"y\" : f32[s, 16]");
  for (int i = 0; i < 3; ++i) x = AppendLayer(&w, x);
  w.Output(x);
  for (int i = 0; i < 10; ++i) y = w.Node("Exp(@0)", {y});
  w.Output(y);
  BodyWriter v;
  x = v.Node("Input \"x\" : f32[b, 16]"), y = v.Node("Input \"y\" : f32[s, 16]");
  for (int i = 0; i < 10; ++i) x = v.Node("Exp(@0)", {x});
  for (int i = 0; i < 10; ++i) y = v.Node("Exp(@0)", {y});
  v.Output(x);
  v.Output(y);
  EXPECT_EQ(CutShape(w.Build()), "10x1 12x3");
  EXPECT_EQ(CutShape(v.Build(), {.max_nodes = 10}), "10x1 10x1");
}

TEST(RegionTest, JoinsNeighbours) {
  const Graph g = Layers(5);
  const Regions regions = CutRegions(g);
  const Regions joined = JoinRegions(g, regions, 0, 0);
  ExpectSound(g, joined, {});
  EXPECT_EQ(Shape(joined), "24x2 12x1");
}

TEST(RegionTest, StitchTakesOtherFormsAndRefusesStrangeOnes) {
  const Graph g = Layers(4);
  const Regions regions = CutRegions(g);
  Graph other = regions.distinct[0].graph;
  for (Node& n : other.nodes) {
    if (n.op == Op::kSilu) n.op = Op::kSigmoid;
  }
  absl::StatusOr<Graph> changed = Stitch(g, regions, {&other});
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(std::count_if(changed->nodes.begin(), changed->nodes.end(),
                          [](const Node& n) { return n.op == Op::kSigmoid; }),
            4);
  EXPECT_NE(CanonicalHash(*changed), CanonicalHash(g));

  Graph fewer = regions.distinct[0].graph;
  fewer.outputs.clear();
  EXPECT_EQ(Stitch(g, regions, {&fewer}).status().message(),
            "the form of region 0 has 0 outputs where its region has 1");
  Graph narrow = regions.distinct[0].graph;
  narrow.nodes[narrow.InputIds()[0]].type.dtype = DType::kF16;
  EXPECT_EQ(Stitch(g, regions, {&narrow}).status().message(),
            "the form of region 0 input 0 is f16[b, 16] where its region's is f32[b, 16]");
  EXPECT_FALSE(Stitch(g, regions, {}).ok());
}

// A cut may lie between a write and what reads it: the state is another region's then, and keeps
// its role.
TEST(RegionTest, StatesAreStatesOfRegions) {
  const Graph graph = StateLayers(6);
  // A layer of keys and one of values make a period.
  EXPECT_EQ(CutShape(graph), "16x3");
  for (int nodes = 1; nodes < 30; ++nodes) CutShape(graph, {.max_nodes = nodes, .min_nodes = 1});
  const Regions single = CutRegions(graph, {.max_nodes = 1, .min_nodes = 1});
  std::map<Op, std::set<std::string>> roles;  // of the states of regions of one node
  for (const Region& region : single.distinct) {
    ASSERT_EQ(region.nodes, 1);
    const std::vector<NodeId> states = region.graph.StateIds();
    if (states.empty()) continue;
    const Op op = region.graph.node(region.graph.outputs[0].node).op;
    EXPECT_EQ(region.graph.updates.size(), IsStateWrite(op) ? 1u : 0u);
    ASSERT_EQ(states.size(), 1u);
    EXPECT_EQ(region.graph.node(states[0]).name, "s0");
    roles[op].insert(GetAttr<std::string>(region.graph.node(states[0]).attrs, "role"));
  }
  const std::set<std::string> both = {"keys", "values"};
  EXPECT_EQ(roles,
            (std::map<Op, std::set<std::string>>{{Op::kStateWrite, both}, {Op::kGather, both}}));
}

// A write that nothing reads is in a region too.
TEST(RegionTest, WritesAreNeededWithoutReaders) {
  BodyWriter w;
  const int x = w.Node("Input \"x\" : f32[b, 16]"), slot = w.Node("Input \"slot\" : i32[b]");
  const int state = w.Node("StateRead \"s\" : f32[s, 16]");
  w.Update(w.Node("StateWrite(@0, @1, @2)", {state, slot, w.Node("Tanh(@0)", {x})}));
  w.Output(w.Node("Tanh(@0)", {x}));
  EXPECT_EQ(CutShape(w.Build()), "3x1");
}

TEST(RegionTest, StitchRefusesFormsThatWriteOtherStates) {
  const Graph g = StateLayers(2);
  const Regions regions = CutRegions(g, {.max_nodes = 50});
  ASSERT_EQ(regions.distinct.size(), 1u);
  const Graph& own = regions.distinct[0].graph;
  EXPECT_TRUE(Stitch(g, regions, {&own}).ok());
  Graph fewer = own;
  fewer.updates.pop_back();
  EXPECT_EQ(Stitch(g, regions, {&fewer}).status().message(),
            "the form of region 0 has 1 updates where its region has 2");
  Graph swapped = own;
  std::swap(swapped.nodes[swapped.updates[0]].inputs[0],
            swapped.nodes[swapped.updates[1]].inputs[0]);
  EXPECT_EQ(
      Stitch(g, regions, {&swapped}).status().message(),
      "the form of region 0 writes other states than its region, or other outputs are writes");
  Graph none = own;
  none.nodes[none.StateIds()[0]].type.dtype = DType::kF16;
  EXPECT_EQ(
      Stitch(g, regions, {&none}).status().message(),
      "the form of region 0 state 0 is f16[16*s, 1, 16] where its region's is f32[16*s, 1, 16]");
}

// Returns a graph of random ops of one type over earlier values, with outputs anywhere.
Graph RandomGraph(std::mt19937* random) {
  BodyWriter w;
  std::vector<int> values;
  for (int i = 0; i < 2; ++i) {
    values.push_back(w.Node(absl::StrCat("Input \"i", i, "\" : f32[b, 16]")));
  }
  for (int i = 0; i < 2; ++i) {
    values.push_back(w.Node("IndexMap(@0) {map=map[b, 16]($1)}", {w.Parameter("f32[16]")}));
    values.push_back(w.Node("IndexMap(@0) {map=map[b, 16]()}",
                            {w.Node(absl::StrCat("Constant {value=f32[] {", i, ".5}}"))}));
  }
  const int weight = w.Parameter("f32[16, 16]");
  const int size = 1 + static_cast<int>((*random)() % 120);
  const bool near = (*random)() % 2;  // takes operands mostly from the last few values
  const auto any = [&] {
    const size_t reach =
        near && (*random)() % 8 ? std::min<size_t>(4, values.size()) : values.size();
    return values[values.size() - 1 - (*random)() % reach];
  };
  for (int i = 0; i < size; ++i) {
    switch ((*random)() % 6) {
      case 0:
        values.push_back(w.Node("Tanh(@0)", {any()}));
        break;
      case 1:
        values.push_back(w.Node("Contract(@0, @1) {spec=\"mk,kn->mn\"}", {any(), weight}));
        break;
      case 2:
        values.push_back(w.Node("IndexMap(@0) {map=map[b, 16]($0, 15 - $1)}", {any()}));
        break;
      case 3: {
        const int sum = w.Node("SumReduce(@0) {axes=[1]}", {any()});
        values.push_back(w.Node("IndexMap(@0) {map=map[b, 16]($0)}", {sum}));
        break;
      }
      default:
        values.push_back(w.Node((*random)() % 2 ? "Add(@0, @1)" : "Mul(@0, @1)", {any(), any()}));
    }
  }
  w.Output(values.back());
  for (int i = static_cast<int>((*random)() % 4); i > 0; --i) {
    w.Output(values[(*random)() % values.size()]);
  }
  return w.Build();
}

TEST(RegionTest, RandomGraphsComeBackAsTheyWere) {
  std::mt19937 random(3);
  for (int round = 0; round < 150 && !testing::Test::HasFailure(); ++round) {
    const Graph graph = RandomGraph(&random);
    const CutOptions options{.max_nodes = 1 + static_cast<int>(random() % 40)};
    const Regions regions = CutRegions(graph, options);
    ExpectSound(graph, regions, options);
    if (regions.distinct.empty()) continue;
    const auto any = [&] { return static_cast<int>(random() % regions.distinct.size()); };
    ExpectSound(graph, JoinRegions(graph, regions, any(), any()), {.max_nodes = 80});
  }
}

TEST(RegionTest, AHundredThousandNodes) {
  EXPECT_EQ(Shape(CutRegions(Layers(5000))), "12x5000");
  // A graph without repetitions.
  std::mt19937 random(1);
  BodyWriter w;
  std::vector<int> values = {w.Node("Input \"x\" : f32[b, 16]")};
  for (int i = 0; i < 50000; ++i) {
    values.push_back(w.Node(random() % 2 ? "Add(@0, @1)" : "Mul(@0, @1)",
                            {values.back(), values[random() % values.size()]}));
  }
  w.Output(values.back());
  const Regions regions = CutRegions(w.Build());
  EXPECT_GE(regions.instances.size(), 50000 / 300);
  EXPECT_LE(regions.instances.size(), 50000 / 8);
}

}  // namespace
}  // namespace athanor
