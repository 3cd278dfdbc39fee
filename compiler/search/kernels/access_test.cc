#include "compiler/search/kernels/access.h"

#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

Expr A(int i) { return Expr::Axis(i); }
Expr S(const char* name) { return Expr::Symbol(name); }

Bounds Dims() {
  Bounds b;
  b.Set("b", 1, 64);
  b.Set("s", 1, 512);
  return b;
}

std::string Inverted(const IndexMap& map, const Shape& operand) {
  std::vector<Expr> at;
  Bounds bounds = Dims();
  for (size_t i = 0; i < operand.size(); ++i) {
    at.push_back(S(("x" + std::to_string(i)).c_str()));
    bounds.SetExtent("x" + std::to_string(i), operand[i]);
  }
  std::optional<std::vector<Expr>> inverse = InvertMap(map, operand, at, bounds);
  return inverse ? ShapeToString(*inverse) : "none";
}

TEST(InvertMapTest, PermutationsAndMerges) {
  const Expr b = S("b"), s = S("s");
  EXPECT_EQ(Inverted({{b, 3, s}, {A(0), A(2), A(1)}}, {b, s, 3}), "[x0, x2, x1]");
  EXPECT_EQ(Inverted({{b, 64}, {A(0), FloorDiv(A(1), 16), Mod(A(1), 16)}}, {b, 4, 16}),
            "[x0, 16*x1 + x2]");
  EXPECT_EQ(Inverted({{b * s, 64}, {FloorDiv(A(0), s), Mod(A(0), s), A(1)}}, {b, s, 64}),
            "[s*x0 + x1, x2]");
  EXPECT_EQ(
      Inverted({{24}, {FloorDiv(A(0), 12), Mod(FloorDiv(A(0), 4), 3), Mod(A(0), 4)}}, {2, 3, 4}),
      "[12*x0 + 4*x1 + x2]");
  // An inserted axis of size 1 is read at 0.
  EXPECT_EQ(Inverted({{b, 1, s}, {A(0), A(2)}}, {b, s}), "[x0, 0, x1]");
}

TEST(InvertMapTest, Splits) {
  const Expr b = S("b"), s = S("s");
  // Attention heads out of a projection, in place and moved to the front.
  EXPECT_EQ(Inverted({{b, s, 4, 16}, {A(0), A(1), 16 * A(2) + A(3)}}, {b, s, 64}),
            "[x0, x1, floordiv(x2, 16), -16*floordiv(x2, 16) + x2]");
  EXPECT_EQ(Inverted({{b, 4, s, 16}, {A(0), A(2), 16 * A(1) + A(3)}}, {b, s, 64}),
            "[x0, floordiv(x2, 16), x1, -16*floordiv(x2, 16) + x2]");
  // Splits an axis into three, in any order.
  EXPECT_EQ(Inverted({{4, 2, 3}, {A(0) + 12 * A(1) + 4 * A(2)}}, {24}),
            "[-4*floordiv(x0, 4) + x0, floordiv(x0, 12), "
            "-3*floordiv(x0, 12) + floordiv(x0, 4)]");
  // Splits by a dim.
  EXPECT_EQ(Inverted({{b, s, 8}, {s * A(0) + A(1), A(2)}}, {b * s, 8}),
            "[floordiv(x0, s), -floordiv(x0, s)*s + x0, x1]");
  // A single head.
  EXPECT_EQ(Inverted({{b, 1, 16}, {A(0), 16 * A(1) + A(2)}}, {b, 16}),
            "[x0, floordiv(x1, 16), -16*floordiv(x1, 16) + x1]");
  // An axis is split and another merged.
  EXPECT_EQ(Inverted({{4, 6}, {2 * A(0) + FloorDiv(A(1), 3), Mod(A(1), 3)}}, {8, 3}),
            "[floordiv(x0, 2), -6*floordiv(x0, 2) + 3*x0 + x1]");
}

TEST(InvertMapTest, SplitsThatAreNotOneToOne) {
  const Expr b = S("b"), s = S("s");
  EXPECT_EQ(Inverted({{4, 15}, {16 * A(0) + A(1)}}, {64}), "none");       // with gaps
  EXPECT_EQ(Inverted({{4, 16}, {15 * A(0) + A(1)}}, {64}), "none");       // overlapping
  EXPECT_EQ(Inverted({{4, 16}, {A(0) + A(1)}}, {64}), "none");            // a diagonal
  EXPECT_EQ(Inverted({{4, 16}, {32 * A(0) + 2 * A(1)}}, {64}), "none");   // the even ones
  EXPECT_EQ(Inverted({{4, 16}, {16 * A(0) + A(1)}}, {65}), "none");       // all but one element
  EXPECT_EQ(Inverted({{8, 8}, {16 * A(0) + A(1)}}, {64}), "none");        // beyond the operand
  EXPECT_EQ(Inverted({{b, s}, {b * A(0) + A(1)}}, {b * s}), "none");      // sizes swapped
  EXPECT_EQ(Inverted({{b, s}, {s * A(0) + A(1) + 1}}, {b * s}), "none");  // shifted
  EXPECT_EQ(Inverted({{b, s}, {s * (b - 1) - s * A(0) + A(1)}}, {b * s}), "none");  // reversed
}

TEST(InvertMapTest, NotOneToOne) {
  const Expr b = S("b"), s = S("s");
  EXPECT_EQ(Inverted({{b, s}, {A(0)}}, {b}), "none");               // repeated
  EXPECT_EQ(Inverted({{b, 3}, {A(0), A(1)}}, {b, 4}), "none");      // covers a part only
  EXPECT_EQ(Inverted({{s, s}, {A(0), A(0)}}, {s, s}), "none");      // the diagonal
  EXPECT_EQ(Inverted({{b, 4}, {A(0), 3 - A(1)}}, {b, 4}), "none");  // reversed: not proved
  EXPECT_EQ(Inverted({{b, 4}, {A(0), 0}}, {b, 4}), "none");         // one column
  EXPECT_EQ(Inverted({{b * s}, {FloorDiv(A(0), b), Mod(A(0), b)}}, {b, s}),
            "none");  // sizes swapped
}

Accesses Collect(const char* text, Bounds* bounds = nullptr) {
  absl::StatusOr<Graph> g = ParseGraph(text);
  EXPECT_TRUE(g.ok()) << g.status();
  std::vector<bool> memory;
  for (const Node& n : g->nodes) memory.push_back(n.op == Op::kInput || n.op == Op::kParameter);
  Bounds known = g->DimBounds();
  NodeId root = g->outputs[0].node;
  std::vector<Expr> at;
  for (size_t i = 0; i < g->node(root).type.shape.size(); ++i) {
    at.push_back(S(("x" + std::to_string(i)).c_str()));
    known.SetExtent("x" + std::to_string(i), g->node(root).type.shape[i]);
  }
  if (bounds != nullptr) *bounds = known;
  return CollectAccesses(*g, memory, root, at, known);
}

std::string LoadText(const Access& a) {
  return std::to_string(a.node) + ShapeToString(a.coordinates) + (a.inside_reduction ? "r" : "");
}

TEST(CollectAccessesTest, ViewsAndElementwise) {
  Accesses a = Collect(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 4, 8]
    %1 = Input "w" : f32[32]
    %2 = IndexMap(%0) {map=map[b, 32]($0, floordiv($1, 8), mod($1, 8))}
    %3 = IndexMap(%1) {map=map[b, 32]($1)}
    %4 = Add(%2, %3)
    %5 = Mul(%4, %2)
    output "y" = %5
  })");
  ASSERT_EQ(a.loads.size(), 2u);  // the shared view is read once
  EXPECT_EQ(LoadText(a.loads[0]), "0[x0, floordiv(x1, 8), -8*floordiv(x1, 8) + x1]");
  EXPECT_EQ(LoadText(a.loads[1]), "1[x1]");
  EXPECT_TRUE(a.reductions.empty());
  EXPECT_EQ(a.widest_bytes, 4);
}

TEST(CollectAccessesTest, ReductionsContractionsAndGathers) {
  Accesses a = Collect(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f16[b, 8]
    %1 = Input "w" : f16[8, 5]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = SumReduce(%0) {axes=[1]}
    %4 = IndexMap(%3) {map=map[b, 5]($0)}
    %5 = Add(%2, %4)
    output "y" = %5
  })");
  ASSERT_EQ(a.reductions.size(), 2u);
  EXPECT_EQ(LoadText(a.reductions[0]), "2[x0, x1]");
  EXPECT_EQ(LoadText(a.reductions[1]), "3[x0]");
  ASSERT_EQ(a.loads.size(), 3u);
  EXPECT_EQ(LoadText(a.loads[0]), "0[x0, $r0]r");
  EXPECT_EQ(LoadText(a.loads[1]), "1[$r0, x1]r");
  EXPECT_EQ(LoadText(a.loads[2]), "0[x0, $r1]r");
  EXPECT_EQ(a.widest_bytes, 4);  // sums of f16 are in f32

  Accesses gather = Collect(R"(graph "" {
    %0 = Input "table" : f32[100, 8]
    %1 = Input "ids" : i32[3]
    %2 = Gather(%0, %1) {axis=0}
    output "y" = %2
  })");
  ASSERT_EQ(gather.loads.size(), 2u);
  EXPECT_EQ(LoadText(gather.loads[0]), "1[x0]");
  EXPECT_EQ(LoadText(gather.loads[1]), "0[$r0, x1]");
}

TEST(CollectAccessesTest, IndicesAreWhatCoordinatesAreUsedForBesideLoads) {
  Accesses a = Collect(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b]
    %1 = IndexMap(%0) {map=map[b + 2]($0 - 1), fill=f32[] {0.0}}
    %2 = Iota {shape=shape[b + 2], axis=0, dtype=f32}
    %3 = Add(%1, %2)
    output "y" = %3
  })");
  ASSERT_EQ(a.indices.size(), 2u);
  EXPECT_EQ(a.indices[0].ToString(), "x0 - 1");
  EXPECT_EQ(a.indices[1].ToString(), "x0");
}

// A Concat of [b, 3, h] and [b, 5, h]: the position decides which one is read, as far as the bounds
// tell.
TEST(CollectAccessesTest, SelectsByThePlace) {
  const char* text = R"(graph "" {
    dim b in [1, 64]
    dim h in [1, 64]
    %0 = Input "x" : f32[b, 3, h]
    %1 = Input "y" : f32[b, 5, h]
    %2 = IndexMap(%0) {map=map[b, 8, h]($0, $1, $2), fill=f32[] {0.0}}
    %3 = IndexMap(%1) {map=map[b, 8, h]($0, $1 - 3, $2), fill=f32[] {0.0}}
    %4 = Iota {shape=shape[b, 8, h], axis=1, dtype=i64}
    %5 = Constant {value=i64[] {3}}
    %6 = IndexMap(%5) {map=map[b, 8, h]()}
    %7 = LessThan(%4, %6)
    %8 = Select(%7, %2, %3)
    output "z" = %8
  })";
  Bounds bounds;
  const Accesses both = Collect(text, &bounds);
  EXPECT_EQ(both.loads.size(), 2u);
  ASSERT_EQ(both.choices.size(), 1u);
  EXPECT_EQ(both.choices[0].coordinate, S("x1"));
  EXPECT_EQ(both.choices[0].extent, Expr(3));
  EXPECT_EQ(both.conditions.size(), 2u);
  EXPECT_EQ(both.widest_bytes, 4);  // not the 8 of the position
  const absl::StatusOr<Graph> g = ParseGraph(text);
  const std::vector<bool> memory = {true, true, false, false, false, false, false, false, false};
  for (const bool first : {true, false}) {
    bounds.Set("x1", first ? 0 : 3, first ? 2 : 7);
    const Accesses one = CollectAccesses(*g, memory, 8, {S("x0"), S("x1"), S("x2")}, bounds);
    ASSERT_EQ(one.loads.size(), 1u);
    EXPECT_EQ(LoadText(one.loads[0]), first ? "0[x0, x1, x2]" : "1[x0, x1 - 3, x2]");
    EXPECT_TRUE(one.choices.empty());
    EXPECT_TRUE(one.conditions.empty());
  }
  // Before it is decided whether the condition has memory, both values are read.
  EXPECT_EQ(CollectAccesses(*g, memory, 8, {S("x0"), S("x1"), S("x2")}, bounds, 7).loads.size(),
            4u);
}

TEST(CollectAccessesTest, SelectsOfDataAreNoneByThePlace) {
  const Accesses a = Collect(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b]
    %1 = Input "at" : i64[b]
    %2 = Iota {shape=shape[b], axis=0, dtype=i64}
    %3 = LessThan(%2, %1)
    %4 = Floor(%0)
    %5 = Select(%3, %0, %4)
    output "z" = %5
  })");
  EXPECT_TRUE(a.choices.empty());
  EXPECT_EQ(a.loads.size(), 2u);
  EXPECT_EQ(a.widest_bytes, 8);
}

TEST(RowMajorOffsetTest, Strides) {
  EXPECT_EQ(RowMajorOffset({S("b"), S("s"), 4}, {A(0), A(1), A(2)}),
            4 * S("s") * A(0) + 4 * A(1) + A(2));
  EXPECT_EQ(RowMajorOffset({}, {}), Expr(0));
}

TEST(RootCoordinatesTest, ThroughEpilogues) {
  absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 8]
    %1 = Input "w" : f32[8, 6]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
    %3 = Exp(%2)
    %4 = IndexMap(%3) {map=map[6, b]($1, $0)}
    %5 = Input "r" : f32[6, b]
    %6 = Add(%4, %5)
    output "y" = %6
  })");
  ASSERT_TRUE(g.ok()) << g.status();
  std::vector<bool> memory(g->nodes.size());
  memory[0] = memory[1] = memory[5] = true;
  auto at = RootCoordinates(*g, memory, 6, 2, {S("r"), S("c")}, g->DimBounds());
  ASSERT_TRUE(at.has_value());
  EXPECT_EQ(ShapeToString(*at), "[c, r]");
  EXPECT_FALSE(RootCoordinates(*g, memory, 6, 0, {S("r"), S("c")}, g->DimBounds()).has_value());
}

// Reports whether the output of `rest` is an epilogue of the contraction %2 : f32[b, 8].
bool IsEpilogueOf2(const std::string& rest) {
  absl::StatusOr<Graph> g = ParseGraph(R"(graph "" {
    dim b in [1, 64]
    %0 = Input "x" : f32[b, 8]
    %1 = Input "w" : f32[8, 8]
    %2 = Contract(%0, %1) {spec="mk,kn->mn"}
  )" + rest + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  std::vector<bool> memory(g->nodes.size());
  memory[0] = memory[1] = true;
  return IsEpilogue(*g, memory, g->outputs[0].node, 2);
}

TEST(IsEpilogueTest, EachElementOnceAtItsOwnPlace) {
  EXPECT_TRUE(IsEpilogueOf2("output \"y\" = %2"));
  EXPECT_TRUE(IsEpilogueOf2("%3 = Exp(%2) output \"y\" = %3"));
  EXPECT_TRUE(
      IsEpilogueOf2("%3 = IndexMap(%2) {map=map[2, b, 4]($1, 4*$0 + $2)} "
                    "output \"y\" = %3"));
  EXPECT_TRUE(
      IsEpilogueOf2("%3 = IndexMap(%2) {map=map[8, b]($1, $0)} %4 = Exp(%3) "
                    "%5 = Mul(%3, %4) output \"y\" = %5"));
  // A value and its mirror image, a repeated value, a sum.
  EXPECT_FALSE(
      IsEpilogueOf2("%3 = IndexMap(%2) {map=map[b, 8]($0, 7 - $1)} "
                    "%4 = Add(%2, %3) output \"y\" = %4"));
  EXPECT_FALSE(IsEpilogueOf2("%3 = IndexMap(%2) {map=map[b, 8, 2]($0, $1)} output \"y\" = %3"));
  EXPECT_FALSE(IsEpilogueOf2("%3 = SumReduce(%2) {axes=[1]} output \"y\" = %3"));
}

}  // namespace
}  // namespace athanor
