#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/message.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

Graph Parse(const std::string& text) {
  absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << text << graph.status();
  return graph.ok() ? *std::move(graph) : Graph();
}

std::string HashOf(const std::string& text) {
  const Graph graph = Parse(text);
  const Graph canonical = Canonicalize(graph);
  EXPECT_TRUE(Verify(canonical).ok()) << ToText(canonical) << Verify(canonical);
  EXPECT_EQ(ToText(Canonicalize(canonical)), ToText(canonical)) << "canonical form is not stable";
  return CanonicalHash(graph);
}

// A graph with every kind of attribute; `from` is replaced by `to` (which must occur).
constexpr std::string_view kBase = R"(graph "g" {
  dim b in [1, 64]
  dim s in [1, 512]
  %0 = Input "x" : f32[b, 64]
  %1 = Input "t" : f32[b, s]
  %2 = Parameter "w" : f32[64, 10]
  %3 = Parameter "v" : f32[64, 10]
  %4 = Contract "h"(%0, %2) {spec="mk,kn->mn"}
  %5 = Contract(%0, %3) {spec="mk,kn->mn"}
  %6 = Div(%4, %5)
  %7 = Constant {value=f32[2] {1.0, 2.0}}
  %8 = IndexMap(%7) {map=map[b, 10](floordiv($1, 5))}
  %9 = Add(%6, %8)
  %10 = Gelu(%9)
  %11 = SumReduce(%1) {axes=[1]}
  %12 = Iota {axis=0, dtype=i32, shape=shape[b, s]}
  %13 = Softmax(%1) {axis=1}
  %14 = Attention(%0, %0, %0) {causal=true, scale=0.5}
  output "y" = %10
  output "z" = %11
  output "i" = %12
  output "p" = %13
  output "a" = %14
}
)";

std::string With(const std::vector<std::pair<std::string, std::string>>& edits) {
  std::string text(kBase);
  for (const auto& [from, to] : edits) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    for (; at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

TEST(CanonicalHash, IgnoresWhatHasNoMeaning) {
  const std::string base = HashOf(With({}));
  ASSERT_EQ(base.size(), 64u);
  const std::vector<std::vector<std::pair<std::string, std::string>>> equal = {
      {{"graph \"g\"", "graph \"other\""}},
      {{"Input \"x\"", "Input \"data\""}, {"Parameter \"w\"", "Parameter \"weight\""}},
      {{"Contract \"h\"", "Contract"}, {"output \"y\"", "output \"result\""}},
      {{"%10 ", "%77 "}, {"%10\n", "%77\n"}},
      {{"mk,kn->mn", "iz,zJ->iJ"}},
      {{"[b, ", "[zz, "}, {"dim b", "dim zz"}},
      {{"dim b in [1, 64]", "dim b in [2, 32]"}},
      {{"dim b in [1, 64]\n  dim s in [1, 512]", "dim s in [1, 512]\n  dim b in [1, 64]"}},
      {{"dim s in", "dim unused in [0, 1]\n  dim s in"}},
      {{"Gelu(%9)", "Gelu(%9) {approximate=\"none\"}"}},
      // a dead node
      {{"  %10 =", "  %20 = Exp(%9)\n  %10 ="}},
      // a duplicate of node 8, used instead of it
      {{"  %9 = Add(%6, %8)",
        "  %21 = IndexMap(%7) {map=map[b, 10](floordiv($1, 5))}\n  %9 = Add(%6, %21)"}},
      // a duplicated literal and its reader
      {{"  %9 = Add(%6, %8)",
        "  %22 = Constant {value=f32[2] {1.0, 2.0}}\n"
        "  %21 = IndexMap(%22) {map=map[b, 10](floordiv($1, 5))}\n  %9 = Add(%6, %21)"}},
  };
  for (const auto& edits : equal) EXPECT_EQ(HashOf(With(edits)), base) << With(edits);
}

TEST(CanonicalHash, IgnoresTheOrderOfNodes) {
  const std::string base = HashOf(With({}));
  std::string text = With({});
  // Independent nodes are moved to other valid places.
  for (const std::string& line :
       {std::string("  %12 = Iota {axis=0, dtype=i32, shape=shape[b, s]}\n"),
        std::string("  %7 = Constant {value=f32[2] {1.0, 2.0}}\n")}) {
    text.erase(text.find(line), line.size());
    text.insert(text.find("  %0 ="), line);
  }
  const std::string five = "  %5 = Contract(%0, %3) {spec=\"mk,kn->mn\"}\n";
  text.erase(text.find(five), five.size());
  text.insert(text.find("  %4 ="), five);
  EXPECT_EQ(HashOf(text), base) << text;
}

TEST(CanonicalHash, SeesEverythingElse) {
  const std::vector<std::vector<std::pair<std::string, std::string>>> different = {
      {},
      {{"Div(%4, %5)", "Div(%5, %4)"}},
      {{"Div(%4, %5)", "Pow(%4, %5)"}},
      {{"Div(%4, %5)", "Div(%4, %4)"}},
      {{"{1.0, 2.0}", "{1.0, 3.0}"}},
      {{"{1.0, 2.0}", "{1.0, -2.0}"}},
      {{"floordiv($1, 5)", "floordiv($1, 6)"}},
      {{"floordiv($1, 5)", "0"}},
      {{"map=map[b, 10](floordiv($1, 5))", "map=map[b, 10](floordiv($1, 5)), fill=f32[] {0.0}"}},
      {{"Gelu(%9)", "Gelu(%9) {approximate=\"tanh\"}"}},
      {{"dim s in", "dim s2 in [2, 2]\n  dim s in"},
       {"  output \"y\"", "  %30 = Input \"p\" : i64[2]\n  output \"y\""}},
      {{"dim s in", "dim s2 in [2, 2]\n  dim s in"},
       {"  output \"y\"", "  %30 = Input \"p\" {value=i64[2] {1, 2}} : i64[2]\n  output \"y\""}},
      {{"dim s in", "dim s2 in [2, 2]\n  dim s in"},
       {"  output \"y\"", "  %30 = Input \"p\" {value=i64[2] {1, 3}} : i64[2]\n  output \"y\""}},
      {{"axes=[1]", "axes=[0]"}},
      {{"axes=[1]", "axes=[0, 1]"}},
      {{"axes=[1]", "axes=[]"}},
      {{"{axis=0, dtype=i32", "{axis=1, dtype=i32"}},
      {{"dtype=i32", "dtype=i64"}},
      {{"shape=shape[b, s]", "shape=shape[b, s + 1]"}},
      {{"shape=shape[b, s]", "shape=shape[s, b]"}},
      {{"Softmax(%1) {axis=1}", "Softmax(%1) {axis=0}"}},
      {{"causal=true", "causal=false"}},
      {{"scale=0.5", "scale=0.25"}},
      {{", scale=0.5", ""}},
      {{"Input \"t\" : f32", "Input \"t\" : f16"}},
      {{"f32[b, s]", "f32[s, s]"}, {"axes=[1]", "axes=[1]"}},
      {{"f32[b, s]", "f32[b, 2*s]"}},
      {{"output \"y\" = %10\n  output \"z\" = %11", "output \"z\" = %11\n  output \"y\" = %10"}},
      {{"output \"y\" = %10", "output \"y\" = %9"}},
      {{"output \"a\" = %14", "output \"a\" = %14\n  output \"again\" = %14"}},
      {{"%2 = Parameter \"w\" : f32[64, 10]\n  %3 = Parameter \"v\"",
        "%3 = Parameter \"v\" : f32[64, 10]\n  %2 = Parameter \"w\""},
       {"Div(%4, %5)", "Mod(%4, %5)"}},
      {{"Div(%4, %5)", "Mod(%4, %5)"}},
      {{"%3 = Parameter \"v\" : f32[64, 10]\n",
        "%3 = Parameter \"v\" : f32[64, 10]\n  %30 = Parameter \"unused\" : f32[]\n"}},
      {{"%3 = Parameter \"v\"", "%3 = Input \"v\""}},
  };
  std::set<std::string> seen;
  for (const auto& edits : different) {
    EXPECT_TRUE(seen.insert(HashOf(With(edits))).second) << With(edits);
  }
}

// Dims that first meet inside one expression are told apart by their roles, not by their names.
TEST(CanonicalHash, CompoundDimsDoNotDependOnNames) {
  const auto text = [](std::string_view p, std::string_view q, std::string_view size) {
    return Cat("graph \"g\" { dim ", p, " in [1, 8] dim ", q, " in [1, 8]\n%0 = Input \"x\" : f32[",
               size, "]\n%1 = Input \"y\" : f32[", p, "*", p, "*", q, "]\noutput \"y\" = %0\n}");
  };
  EXPECT_EQ(HashOf(text("a", "b", "a + 2*b")), HashOf(text("b", "a", "b + 2*a")));
  EXPECT_EQ(HashOf(text("a", "b", "a + b")), HashOf(text("b", "a", "a + b")));
  EXPECT_NE(HashOf(text("a", "b", "a + 2*b")), HashOf(text("a", "b", "b + 2*a")));
}

TEST(Canonicalize, NamesAndOrdersCanonically) {
  const Graph graph = Parse(R"(graph "g" {
  dim rows in [1, 4]
  %0 = Parameter "w" : f32[3]
  %1 = Input "x" : f32[rows, 3]
  %2 = Exp(%1)
  %3 = IndexMap(%0) {map=map[rows, 3]($1)}
  %4 = Exp(%1)
  %5 = Mul(%3, %4)
  %6 = Add(%5, %2)
  output "a" = %6
  output "b" = %1
})");
  EXPECT_EQ(ToText(Canonicalize(graph)), R"(graph "" {
  dim d0 in [1, 4]
  %0 = Input "x0" : f32[d0, 3]
  %1 = Parameter "p0" : f32[3]
  %2 = IndexMap(%1) {map=map[d0, 3]($1)} : f32[d0, 3]
  %3 = Exp(%0) : f32[d0, 3]
  %4 = Mul(%2, %3) : f32[d0, 3]
  %5 = Add(%4, %3) : f32[d0, 3]
  output "y0" = %5
  output "y1" = %0
}
)");
}

TEST(Canonicalize, SurvivesDepth) {
  Graph graph;
  GraphBuilder builder(&graph);
  NodeId x = builder.Input("x", {DType::kF32, {4}}).value();
  for (int i = 0; i < 90'000; ++i) x = builder.Add(Op::kExp, {x}).value();
  builder.Output("y", x);
  ASSERT_TRUE(Verify(graph).ok());
  EXPECT_EQ(Canonicalize(graph).nodes.size(), graph.nodes.size());
}

}  // namespace
}  // namespace athanor
