#include "compiler/rules/terms/term_graph.h"

#include <string>

#include "compiler/rules/decompose/recognise.h"
#include "compiler/rules/families/rule_row.h"
#include "compiler/rules/terms/views.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Graph Parsed(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.value_or(Graph{});
}

std::unique_ptr<TermGraph> Terms(const Graph& graph) {
  absl::StatusOr<std::unique_ptr<TermGraph>> terms = TermGraph::Create(graph);
  EXPECT_TRUE(terms.ok()) << terms.status();
  return terms.ok() ? *std::move(terms) : nullptr;
}

// Returns the graph of a choice, after checks that hold for every such graph.
Graph Extracted(const TermGraph& terms, const egraph::Choice& choice) {
  absl::StatusOr<Graph> graph = terms.Extract(choice);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  EXPECT_TRUE(Verify(*graph).ok()) << Verify(*graph) << ToText(*graph);
  EXPECT_EQ(graph->dims, terms.graph().dims);
  EXPECT_EQ(graph->name, terms.graph().name);
  EXPECT_EQ(graph->outputs.size(), terms.graph().outputs.size());
  for (auto ids : {&Graph::InputIds, &Graph::ParameterIds}) {
    const std::vector<NodeId> got = ((*graph).*ids)(), want = (terms.graph().*ids)();
    EXPECT_EQ(got.size(), want.size());
    for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
      EXPECT_EQ(graph->node(got[i]).name, terms.graph().node(want[i]).name);
      EXPECT_EQ(graph->node(got[i]).type, terms.graph().node(want[i]).type);
    }
  }
  return *std::move(graph);
}

void ExpectOriginalComesBack(const Graph& graph) {
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  ASSERT_NE(terms, nullptr);
  const Graph again = Extracted(*terms, terms->Original());
  EXPECT_EQ(CanonicalHash(again), CanonicalHash(graph)) << ToText(again);
  // The nodes are in canonical order; Canonicalize would only change names.
  EXPECT_EQ(Canonicalize(again).nodes.size(), again.nodes.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(again.outputs[i].name, graph.outputs[i].name);
  }
  EXPECT_TRUE(terms->terms().Verify().ok()) << terms->terms().Verify();
}

// States are leaves, and their writes roots, whether an output needs them or not.
TEST(TermGraphTest, StatesComeBack) {
  const Graph graph = Parsed(R"(graph "g" {
  dim t in [1, 8]
  %0 = Input "x" : f32[t, 4]
  %1 = Input "i" : i32[t]
  %2 = StateRead "unused" {role=""} : f32[32, 4]
  %3 = StateRead "a" {role=""} : f32[32, 4]
  %4 = StateRead "b" {role=""} : f32[32, 4]
  %5 = StateWrite(%3, %1, %0)
  %6 = StateWrite(%4, %1, %0)
  %7 = Gather(%5, %1) {axis=0}
  output "y" = %7
  update %5
  update %6
})");
  ExpectOriginalComesBack(graph);
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  const Graph again = Extracted(*terms, terms->Original());
  ASSERT_EQ(again.updates.size(), 2u);
  EXPECT_EQ(again.node(again.node(again.updates[1]).inputs[0]).name, "b");
  EXPECT_EQ(again.StateIds().size(), 3u);
  const Graph recognised = Recognise(ComposeViews(graph)).value();
  EXPECT_EQ(CanonicalHash(recognised), CanonicalHash(graph));
}

TEST(TermGraphTest, WhatGoesInComesOut) {
  ExpectOriginalComesBack(Parsed(R"(graph "layer" {
  dim b in [1, 64]
  dim unused in [0, 3]
  %0 = Input "x" : f32[b, 8]
  %1 = Parameter "w" : f32[8, 4]
  %2 = Contract(%0, %1) {spec="xy,yz->xz"}
  %3 = Constant {value=f32[4] {1.0, -0.0, inf, nan(0x7fc00000)}}
  %4 = IndexMap(%3) {map=map[b, 4]($1)}
  %5 = Add(%2, %4)
  %6 = Gelu(%5)
  output "y" = %6
})"));
  for (const RuleRow& row : RuleRows()) {
    for (uint64_t seed = 0; seed < 5 && !row.is_switch(); ++seed) {
      ExampleBuilder e(seed, DType::kF16);
      row.example(e);
      ExpectOriginalComesBack(e.graph());
    }
  }
}

TEST(TermGraphTest, OutputsThatAreInputsConstantsOrEqual) {
  ExpectOriginalComesBack(Parsed(R"(graph "roots" {
  %0 = Input "unused" : i32[]
  %1 = Input "x" : f32[2]
  %2 = Parameter "spare" : f32[3]
  %3 = Parameter "w" : f32[2]
  %4 = Constant {value=f32[2] {1.0, 2.0}}
  %5 = Add(%1, %3)
  %6 = Add(%1, %3)
  %7 = Mul(%5, %6)
  output "same" = %1
  output "weight" = %3
  output "literal" = %4
  output "once" = %5
  output "twice" = %6
  output "again" = %5
})"));
}

TEST(TermGraphTest, OnlyWhatOutputsNeedIsThere) {
  const Graph graph = Parsed(R"(graph "dead" {
  %0 = Input "x" : f32[2]
  %1 = Exp(%0)
  %2 = Tanh(%0)
  output "y" = %1
})");
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  EXPECT_TRUE(terms->ClassOf(1).valid());
  EXPECT_FALSE(terms->ClassOf(2).valid());
  EXPECT_EQ(terms->terms().num_nodes(), 2u);
}

TEST(TermGraphTest, TheSameGraphGivesTheSameIds) {
  const Graph graph = Parsed(R"(graph "ids" {
  %0 = Input "x" : f32[2]
  %1 = Softmax(%0) {axis=0}
  %2 = Cast(%1) {dtype=f16}
  output "y" = %2
})");
  const std::unique_ptr<TermGraph> a = Terms(graph), b = Terms(graph);
  EXPECT_EQ(ToDot(*a), ToDot(*b));
  EXPECT_NE(ToDot(*a).find("Softmax[axis=0]"), std::string::npos) << ToDot(*a);
  EXPECT_NE(ToDot(*a).find("f16[2]"), std::string::npos);
}

TEST(TermGraphTest, AnotherChoiceIsAnotherGraph) {
  const Graph graph = Parsed(R"(graph "choice" {
  %0 = Input "x" : f32[2]
  %1 = Input "y" : f32[2]
  %2 = Add(%0, %1)
  %3 = Exp(%2)
  output "e" = %3
})");
  const Graph other = Parsed(R"(graph "other" {
  %0 = Input "y" : f32[2]
  %1 = Input "x" : f32[2]
  %2 = Add(%0, %1)
  %3 = Exp(%2)
  %4 = Tanh(%3)
  output "e" = %3
})");
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  const uint32_t before = terms->terms().node_bound();
  const auto imported = terms->Import(other, {{2, terms->ClassOf(2)}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->unions, 1u);
  EXPECT_EQ(imported->nodes, 2u);  // the swapped Add, and the Exp that became equal
  EXPECT_EQ(terms->terms().Find(imported->classes[3]), terms->ClassOf(3));
  EXPECT_FALSE(imported->classes[4].valid());
  // The original is still found among the additions, and so is the other graph.
  EXPECT_EQ(CanonicalHash(Extracted(*terms, terms->Original())), CanonicalHash(graph));
  egraph::Choice turned = terms->Original();
  for (const egraph::NodeId n : terms->terms().nodes(terms->ClassOf(2))) {
    if (n.value >= before) turned.Set(terms->ClassOf(2), n);
  }
  const Graph result = Extracted(*terms, turned);
  EXPECT_EQ(result.node(2).inputs, (std::vector<NodeId>{1, 0})) << ToText(result);
}

TEST(TermGraphTest, ValuesThatBecomeInputs) {
  // By x * 1 = x the output is the input, and choosing the product makes a cycle.
  const Graph graph = Parsed(R"(graph "one" {
  %0 = Input "x" : f32[2]
  %1 = Constant {value=f32[2] {1.0, 1.0}}
  %2 = Mul(%0, %1)
  output "y" = %2
})");
  const std::unique_ptr<TermGraph> terms = Terms(graph);
  ASSERT_TRUE(*terms->terms().Union(terms->ClassOf(2), terms->ClassOf(0)));
  terms->terms().Rebuild();
  const Graph result = Extracted(*terms, terms->Original());
  EXPECT_EQ(result.nodes.size(), 1u);
  EXPECT_EQ(result.outputs[0].node, 0);
  egraph::Choice cyclic = terms->Original();
  cyclic.Set(terms->ClassOf(0), terms->terms().NodesOf(terms->ClassOf(0), ToOpId(Op::kMul))[0]);
  EXPECT_EQ(terms->Extract(cyclic).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TermGraphTest, ImportsOnlyItsOwnInputs) {
  const std::unique_ptr<TermGraph> terms = Terms(Parsed(R"(graph "own" {
  dim b in [1, 4]
  %0 = Input "x" : f32[b]
  output "y" = %0
})"));
  const auto import = [&](const char* dims, const char* leaf) {
    return terms->Import(Parsed("graph \"g\" {\n" + std::string(dims) + "%0 = " + leaf +
                                "\n%1 = Exp(%0)\noutput \"y\" = %1\n}"),
                         {});
  };
  EXPECT_TRUE(import("dim b in [1, 4]\n", "Input \"x\" : f32[b]").ok());
  for (const auto& [dims, leaf] : std::vector<std::pair<const char*, const char*>>{
           {"dim b in [1, 5]\n", "Input \"x\" : f32[b]"},
           {"", "Input \"x\" : f32[2]"},
           {"dim b in [1, 4]\n", "Input \"x\" : f32[2]"},
           {"dim b in [1, 4]\n", "Input \"z\" : f32[b]"},
           {"dim b in [1, 4]\n", "Parameter \"x\" : f32[2]"}}) {
    EXPECT_EQ(import(dims, leaf).status().code(), absl::StatusCode::kInvalidArgument) << leaf;
  }
}

TEST(TermGraphTest, RefusedUnionsAreCounted) {
  const std::unique_ptr<TermGraph> terms = Terms(Parsed(R"(graph "types" {
  %0 = Input "x" : f32[2]
  %1 = Exp(%0)
  output "y" = %1
})"));
  const Graph other = Parsed(R"(graph "wrong" {
  %0 = Input "x" : f32[2]
  %1 = Cast(%0) {dtype=f16}
  output "y" = %1
})");
  const auto imported = terms->Import(other, {{1, terms->ClassOf(1)}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->refused, 1u);
  EXPECT_EQ(imported->unions, 0u);
}

}  // namespace
}  // namespace athanor
