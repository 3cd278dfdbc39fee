#include "compiler/search/kernels/repeats.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/fusion.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns "map 5, contract 7 over 3", by nodes of the text.
std::string Kernels(const std::string& text) {
  const absl::StatusOr<Graph> g =
      ParseGraph("graph \"\" {\n dim n in [1, 8]\n dim h in [1, 224]\n" + text + "}");
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return "";
  v1::Target target;
  target.set_vector_bytes(64);
  target.set_vector_registers(32);
  target.set_l2_bytes(1 << 20);
  const Genome genome = ChooseKernels(*g, target);
  std::string kernels;
  for (const KernelChoice& k : genome.kernels) {
    const std::string kind = ScheduleText(k);
    absl::StrAppend(&kernels, kernels.empty() ? "" : ", ", kind.substr(0, kind.find(' ')), " ",
                    k.root);
    if (k.anchor >= 0 && k.anchor != k.root) absl::StrAppend(&kernels, " over ", k.anchor);
  }
  return kernels;
}

constexpr char kWindows[] =
    "IndexMap(%3) {fill=f32[] {0.0}, map=map[n, 4, h, h, 3, 3]($0, $1, $2 + $4 - 1, $3 + $5 - 1)}";

// Activations are computed once, as the epilogue of the contraction before, not once in each
// window.
TEST(RepeatsTest, WhatWindowsReadHasMemory) {
  EXPECT_EQ(Kernels(absl::StrCat(R"(%0 = Input "x" : f32[n, 8, h, h] %1 = Parameter "w" : f32[4, 8]
      %2 = Contract(%0, %1) {spec="ncij,mc->nmij"} %3 = Tanh(%2) %4 = )",
                                 kWindows, R"( %5 = SumReduce(%4) {axes=[4, 5]}
      output "y" = %5)")),
            "contract 3 over 2, map 5");
  // A cast is no arithmetic, so it may be repeated in each window.
  EXPECT_EQ(Kernels(absl::StrCat(R"(%0 = Input "x" : f16[n, h, 4, h] %1 = Cast(%0) {dtype=f32}
      %2 = Constant {value=f32[] {2.0}}
      %3 = IndexMap(%1) {map=map[n, 4, h, h]($0, $2, $1, $3)} %4 = )",
                                 kWindows, R"( %5 = SumReduce(%4) {axes=[4, 5]}
      output "y" = %5)")),
            "map 5");
  // The windows do not overlap.
  EXPECT_EQ(Kernels(R"(%0 = Input "x" : f32[n, 4, 2 * h, 2 * h] %1 = Tanh(%0)
      %2 = IndexMap(%1) {map=map[n, 4, h, h, 2, 2]($0, $1, 2 * $2 + $4, 2 * $3 + $5)}
      %3 = MaxReduce(%2) {axes=[4, 5]} output "y" = %3)"),
            "map 3");
}

TEST(RepeatsTest, PositionsThatAllRowsShareHaveMemory) {
  EXPECT_EQ(Kernels(R"(%0 = Input "x" : f32[n, 4, h] %1 = Iota {axis=0, dtype=f64, shape=shape[2*h]}
      %2 = Constant {value=f64[] {3.0}} %3 = IndexMap(%2) {map=map[2 * h]()} %4 = Div(%1, %3)
      %5 = Floor(%4) %6 = Cast(%5) {dtype=i64} %7 = Gather(%0, %6) {axis=2} output "y" = %7)"),
            "map 6, map 7");
}

// Conditions of the position that are the same along rows never become tensors, however many nodes
// read them; those that differ along rows do.
TEST(RepeatsTest, ConditionsOfRowsAreComputedWhereTheyAreRead) {
  for (const int axis : {1, 2}) {
    EXPECT_EQ(Kernels(absl::StrCat(R"(%0 = Input "x" : f32[n, 8, h] %1 = Iota {axis=)", axis,
                                   R"(, dtype=i64, shape=shape[n, 8, h]}
      %2 = Constant {value=i64[] {3}} %3 = IndexMap(%2) {map=map[n, 8, h]()}
      %4 = LessThan(%1, %3) %5 = Floor(%0) %6 = Select(%4, %0, %5) %7 = Tanh(%0)
      %8 = Select(%4, %0, %7) output "y" = %6 output "z" = %8)")),
              axis == 1 ? "map 6, map 8" : "map 4, map 6, map 8");
  }
}

// Lanes along a window's few elements would be idle.
TEST(RepeatsTest, ShortReductionsHaveLanesAlongTheirResults) {
  for (const char* shape : {"[n, h, 3]", "[n, h, 4]"}) {
    EXPECT_EQ(Kernels(absl::StrCat("%0 = Input \"x\" : f32", shape,
                                   " %1 = SumReduce(%0) {axes=[2]} output \"y\" = %1")),
              "map 1");
  }
  for (const char* shape : {"[n, h, 9]", "[n, h, h]", "[n, 2, 3]", "[n, 2000, 3]"}) {
    const bool map = absl::string_view(shape) == "[n, 2000, 3]";
    EXPECT_EQ(Kernels(absl::StrCat("%0 = Input \"x\" : f32", shape,
                                   " %1 = SumReduce(%0) {axes=[2]} output \"y\" = %1")),
              map ? "map 1" : "point 1")
        << shape;
  }
  EXPECT_EQ(Kernels(R"(%0 = Input "x" : f32[n, h + 8]
      %1 = IndexMap(%0) {map=map[n, h, 9]($0, $1 + $2)} %2 = MaxReduce(%1) {axes=[2]}
      output "y" = %2)"),
            "map 2");
}

}  // namespace
}  // namespace athanor
