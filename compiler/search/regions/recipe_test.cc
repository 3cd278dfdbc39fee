// Tests of recipes as text, and as forms in the spaces of other graphs.
#include "compiler/search/regions/recipe.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/terms_testing.h"
#include "compiler/search/regions/region_forms.h"
#include "compiler/search/regions/region_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Graph Primitive(const Graph& graph) {
  absl::StatusOr<Graph> made = Decompose(graph, [&](const Node& n) {
    std::vector<const TensorType*> operands;
    for (NodeId i : n.inputs) operands.push_back(&graph.node(i).type);
    return OpInfo(n.op).composite() && !HasKernel(n.op, operands);
  });
  EXPECT_TRUE(made.ok()) << made.status();
  return CanonicalizeLike(*made, graph);
}

// Returns the same graph with dims of other names, in another order, and with other bounds.
Graph Renamed(Graph graph, int64_t max) {
  std::map<std::string, Expr, std::less<>> names;
  for (Dim& dim : graph.dims) {
    const std::string name = absl::StrCat("some_", dim.name);
    names.emplace(std::exchange(dim.name, name), Expr::Symbol(name));
    dim.max = max;
  }
  SubstituteDims(names, &graph);
  std::reverse(graph.dims.begin(), graph.dims.end());
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
  return graph;
}

std::unique_ptr<RegionForms> Make(const Graph& graph, std::vector<RegionRecipe> recipes = {},
                                  RuleChoice rules = {}) {
  auto forms = RegionForms::Create(graph, {.sizes = {SizePoint(graph.dims.size(), 8)},
                                           .machine = Machine::Typical({}),
                                           .rules = std::move(rules),
                                           .recipes = std::move(recipes)});
  EXPECT_TRUE(forms.ok()) << forms.status();
  return forms.ok() ? *std::move(forms) : nullptr;
}

// Returns recipes of all regions of a form, without memory.
std::vector<RegionRecipe> RecipesOf(const RegionForms& forms, int form) {
  std::vector<RegionRecipe> recipes;
  for (RegionPart& part : forms.Parts(form)) {
    recipes.push_back({std::move(part.region), {.form = std::move(part.form)}});
  }
  return recipes;
}

// Assigns the recipes to the regions of a graph with other bounds, as a cache does.
std::vector<RegionRecipe> ForBoxesOf(const Graph& graph, std::vector<RegionRecipe> recipes) {
  for (RegionRecipe& r : recipes) {
    for (const Region& region : CutRegions(graph).distinct) {
      const RegionName name = NameOf(region.graph);
      if (name.hash == r.region.hash) r.region = name;
    }
  }
  return recipes;
}

constexpr char kKernel[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

TEST(RecipeTest, ReadsWhatItWrites) {
  Recipe recipe{.form = "graph \"region\" {\n}\n"};
  for (int round = 0; round < 2; ++round) {
    const absl::StatusOr<Recipe> same = ParseRecipe(RecipeText(recipe));
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(*same, recipe);
    recipe.memory = {0, 7, 2147483647};
    recipe.schedules = {{kKernel, "row unroll=2"}, {std::string(64, 'a'), "scatter"}};
  }
}

TEST(RecipeTest, RefusesWhatIsNone) {
  const std::string kernel = absl::StrCat("kernel ", kKernel, " row unroll=2\n");
  EXPECT_TRUE(ParseRecipe(absl::StrCat("memory 1 2\n", kernel, "form\n")).ok());
  const std::pair<std::string, std::string> cases[] = {
      {"", "the line \"form\" is missing"},
      {"tile 4", "the line \"form\" is missing"},
      {"tile 4\nform\n", "line 1: a line must begin with memory, kernel or form"},
      {"memory x\nform\n", "line 1: \"x\" is not a node index"},
      {"memory1\nform\n", "line 1: a line must begin with memory, kernel or form"},
      {"memory -1\nform\n", "line 1: \"-1\" is not a node index"},
      {"memory 99999999999\nform\n", "line 1: \"99999999999\" is not a node index"},
      {"memory\nkernel 12 row unroll=2\nform\n", "line 2: \"12\" is not 64"},
      {absl::StrCat("memory\n", kernel, kernel, "form\n"), "line 3: kernel 0123456789abcdef"},
      {absl::StrCat("memory\nkernel ", kKernel, " row unroll=x\nform\n"), "line 2: schedule: "},
      {absl::StrCat("memory\nkernel ", kKernel, "\nform\n"), "line 2: schedule: "},
  };
  for (const auto& [text, why] : cases) {
    const absl::Status refused = ParseRecipe(text).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(refused.message().find(why), std::string::npos) << refused;
  }
}

TEST(RecipeTest, ARegionsNameIsFreeOfNamesAndBounds) {
  const Graph graph = Primitive(EncoderLayers(2, 32));
  Graph other = Renamed(graph, 48);
  for (const NodeId p : other.ParameterIds()) SetMagnitude(60, &other.nodes[p]);
  std::set<std::string> hashes[2], boxes[2], facts[2];
  for (int i = 0; i < 2; ++i) {
    for (const Region& region : CutRegions(i == 0 ? graph : other).distinct) {
      const RegionName name = NameOf(region.graph);
      hashes[i].insert(name.hash);
      boxes[i].insert(name.dim_box);
      facts[i].insert(name.facts);
    }
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_TRUE(boxes[1].contains("d0=1..48 d1=1..48")) << *boxes[1].begin();
  EXPECT_FALSE(boxes[0].contains("d0=1..48 d1=1..48"));
  EXPECT_NE(facts[0].begin()->find("p0=20"), std::string::npos) << *facts[0].begin();
  EXPECT_NE(facts[1].begin()->find("p0=60"), std::string::npos) << *facts[1].begin();
}

TEST(RecipeTest, FormsAreFoundInAnotherGraph) {
  for (const bool encoder : {true, false}) {
    const auto layers = [&](int count) {
      return Primitive(encoder ? EncoderLayers(count, 32) : DecoderLayers(count, 32));
    };
    const Graph first = layers(2), second = Renamed(layers(2), 48);
    const auto from = Make(first);
    std::set<int> all;
    for (const int form : from->Neighbours(0)) {
      all.insert(form);
      if (all.size() > 12) continue;
      for (const int next : from->Neighbours(form)) all.insert(next);
    }
    int plain = 0;
    for (const int form : all) {
      const std::vector<RegionRecipe> recipes = RecipesOf(*from, form);
      ASSERT_FALSE(recipes.empty());
      // Regions with other layouts at their ends have no recipe.
      if (from->About(form).find("boundary_layouts") != std::string::npos) continue;
      ++plain;
      const auto to = Make(second, ForBoxesOf(second, recipes));
      const std::vector<RecipeForm> found = to->FromRecipes();
      ASSERT_EQ(found.size(), 1u) << from->About(form);
      EXPECT_EQ(found[0].recipes.size(), recipes.size());
      EXPECT_EQ(CanonicalHash(to->graph(found[0].form)), CanonicalHash(from->graph(form)))
          << from->About(form) << "\n"
          << to->About(found[0].form);
    }
    EXPECT_GT(plain, 3);
  }
}

TEST(RecipeTest, FormsThatWriteStatesAreFoundInAnotherGraph) {
  const Graph first = StateLayers(4), second = Renamed(StateLayers(4), 48);
  const auto from = Make(first);
  int plain = 0;
  for (const int form : from->Neighbours(0)) {
    if (from->About(form).find("boundary_layouts") != std::string::npos) continue;
    ++plain;
    const std::vector<RegionRecipe> recipes = RecipesOf(*from, form);
    const auto to = Make(second, ForBoxesOf(second, recipes));
    const std::vector<RecipeForm> found = to->FromRecipes();
    ASSERT_EQ(found.size(), 1u) << from->About(form);
    EXPECT_EQ(found[0].recipes.size(), recipes.size());
    const Graph& made = to->graph(found[0].form);
    EXPECT_EQ(made.updates.size(), 4u);
    EXPECT_EQ(CanonicalHash(made), CanonicalHash(from->graph(form))) << from->About(form);
  }
  EXPECT_GT(plain, 0);
  // A form that leaves its write out, or writes another row, is none of the region's.
  for (const Region& region : CutRegions(first).distinct) {
    Graph idle = region.graph;
    idle.updates.clear();
    EXPECT_FALSE(FormFor({.form = FormText(idle, region.graph)}, region.graph).ok());
  }
}

TEST(RecipeTest, FormsOfRulesThatAreSwitchedOffAreNotTaken) {
  const Graph graph = Primitive(EncoderLayers(2, 32));
  const auto from = Make(graph);
  RuleChoice none;
  for (const std::string_view family : RuleFamilies()) none.disabled.insert(std::string(family));
  int other = 0;
  for (const int form : from->Neighbours(0)) {
    if (from->About(form).find("boundary_layouts") != std::string::npos) continue;
    const auto to = Make(graph, RecipesOf(*from, form), none);
    for (const RecipeForm& found : to->FromRecipes()) EXPECT_EQ(found.form, 0);
    ++other;
  }
  EXPECT_GT(other, 0);
}

TEST(RecipeTest, MemoryIsFoundInAnotherGraph) {
  const Graph first = Primitive(EncoderLayers(3, 32));
  const auto from = Make(first);
  const int form = from->Neighbours(0)[0];
  std::vector<RegionRecipe> recipes;
  std::set<NodeId> nodes_marked;
  const auto text = [](const Graph& graph, NodeId n) {
    return absl::StrCat(std::string(OpName(graph.node(n).op)), " ",
                        graph.node(n).type.shape.size());
  };
  for (RegionPart& part : from->Parts(form)) {
    RegionRecipe& r = recipes.emplace_back(RegionRecipe{part.region, {.form = part.form}});
    for (size_t place = 0; place < part.nodes[0].size(); ++place) {
      if (part.nodes[0][place] < 0 || place % 3 != 0) continue;
      r.recipe.memory.insert(static_cast<int>(place));
    }
    for (const std::vector<NodeId>& nodes : part.nodes) {
      for (const int place : r.recipe.memory) {
        if (nodes[place] >= 0) nodes_marked.insert(nodes[place]);
      }
    }
  }
  std::multiset<std::string> marked;  // values with memory, as op and rank
  for (const NodeId n : nodes_marked) marked.insert(text(from->graph(form), n));
  ASSERT_GT(marked.size(), 5u);
  const Graph second = Renamed(first, 48);
  const auto to = Make(second, ForBoxesOf(second, recipes));
  const std::vector<RecipeForm> found = to->FromRecipes();
  ASSERT_EQ(found.size(), 1u);
  std::multiset<std::string> same;
  for (const auto& [node, memory] : found[0].memory) {
    if (memory) same.insert(text(to->graph(found[0].form), node));
  }
  EXPECT_EQ(same, marked);
}

TEST(RecipeTest, WhatIsNoFormOfTheRegionIsRefused) {
  const Graph graph = Primitive(EncoderLayers(1, 32));
  const auto forms = Make(graph);
  const Graph& region = forms->regions().distinct[0].graph;
  const std::string good = FormText(region, region);
  ASSERT_TRUE(FormFor({.form = good}, region).ok()) << FormFor({.form = good}, region).status();
  EXPECT_EQ(CanonicalHash(*FormFor({.form = good}, region)), CanonicalHash(region));
  const std::pair<std::string, std::string> cases[] = {
      {"", "expected \"graph\""},
      {"graph \"region\" {\n dim d7 in [1, 2]\n %0 = Input \"x0\" : f32[d7]\n output \"y0\" = %0 }",
       "the region has no dim d7"},
      {"graph \"region\" {\n %0 = Input \"other\" : f32[2]\n output \"y0\" = %0 }",
       "the region has no Input \"other\" : f32[2]"},
      {"graph \"region\" {\n %0 = Constant {value=f32[] {1}}\n output \"y0\" = %0 }",
       "its outputs are f32[]"},
  };
  for (const auto& [text, why] : cases) {
    const absl::Status refused = FormFor({.form = text}, region).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(refused.message().find(why), std::string::npos) << refused;
  }
  // The ends are right, but the function is another: no e-graph contains it.
  RegionRecipe wrong{NameOf(region), {.form = good}};
  const size_t op = wrong.recipe.form.find(" Add(");
  ASSERT_NE(op, std::string::npos) << good;
  wrong.recipe.form.replace(op, 5, " Mul(");
  if (FormFor(wrong.recipe, region).ok()) {
    EXPECT_TRUE(Make(graph, {wrong})->FromRecipes().empty());
  } else {
    ADD_FAILURE() << FormFor(wrong.recipe, region).status();
  }
}

}  // namespace
}  // namespace athanor
