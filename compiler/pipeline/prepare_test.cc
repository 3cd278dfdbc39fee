// Tests which ops keep their nodes until kernels are chosen.
#include "compiler/pipeline/prepare.h"

#include <algorithm>
#include <string>

#include "absl/strings/substitute.h"
#include "compiler/pipeline/golden_testing.h"
#include "compiler/pipeline/pipeline.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// A layer: what it writes is what it attends to. The second reads plain tensors.
constexpr char kPaged[] = R"(graph "g" {
  dim t in [1, 64]
  dim n in [1, 64]
  %0 = Input "x" : f32[t, 32]
  %1 = Input "table" : i32[4, 8]
  %2 = Input "sequence" : i32[t]
  %3 = Input "position" : i32[t]
  %4 = Input "slots" : i32[t]
  %5 = StateRead "k" {role="keys"} : f32[16*n, 2, 8]
  %6 = StateRead "v" {role="values"} : f32[16*n, 2, 8]
  %7 = IndexMap(%0) {map=map[t, 4, 8]($0, 8*$1 + $2)}
  %8 = IndexMap(%0) {map=map[t, 2, 8]($0, 8*$1 + $2)}
  %9 = StateWrite(%5, %4, %8)
  %10 = StateWrite(%6, %4, %8)
  %11 = PagedAttention(%7, %9, %10, %1, %2, %3) {block=16}
  %12 = Input "pool" : f32[128, 2, 8]
  %13 = PagedAttention(%11, %12, %12, %1, %2, %3) {block=16, window=7}
  %14 = IndexMap(%13) {map=map[t, 32]($0, floordiv($1, 8), mod($1, 8))}
  output "y" = %14
  update %9
  update %10
})";

int CountPaged(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [](const Node& n) { return IsPagedAttention(n.op); }));
}

TEST(PrepareTest, PagedAttentionIsDecomposedWithoutAKernel) {
  const absl::StatusOr<Graph> graph = ParseGraph(kPaged);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const bool plain : {false, true}) {
    for (const bool paged : {false, true}) {
      const absl::StatusOr<Prepared> prepared = Prepare(*graph, plain, paged);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      EXPECT_EQ(CountPaged(prepared->graph), paged && !plain ? 2 : 0);
    }
  }
}

// The kernel's code and scratch grow with heads and widths, and its vectors are whole groups.
TEST(PrepareTest, PagedAttentionIsDecomposedWhereTheKernelDoesNotFit) {
  const auto kernels = [](const char* slots, int64_t heads, int64_t depth, int64_t width) {
    const absl::StatusOr<Graph> graph = ParseGraph(absl::Substitute(
        R"(graph "g" { dim t in [1, 64] dim n in [1, 64] %0 = Input "q" : f32[t, $1, $2]
           %1 = Input "k" : f32[$0, 1, $2] %2 = Input "v" : f32[$0, 1, $3]
           %3 = Input "table" : i32[1, 2] %4 = Input "s" : i32[t] %5 = Input "p" : i32[t]
           %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6 })",
        slots, heads, depth, width));
    EXPECT_TRUE(graph.ok()) << graph.status();
    return CountPaged(Prepare(*graph)->graph);
  };
  EXPECT_EQ(kernels("32", 64, 512, 512), 1);
  EXPECT_EQ(kernels("16*n", 1, 1, 1), 1);
  EXPECT_EQ(kernels("20", 1, 8, 8), 0);
  EXPECT_EQ(kernels("n", 1, 8, 8), 0);
  EXPECT_EQ(kernels("32", 65, 8, 8), 0);
  EXPECT_EQ(kernels("32", 1, 513, 8), 0);
  EXPECT_EQ(kernels("32", 1, 8, 513), 0);
}

TEST(PrepareTest, CpusHaveAKernelOfPagedAttention) {
  const absl::StatusOr<Graph> graph = ParseGraph(kPaged);
  ASSERT_TRUE(graph.ok()) << graph.status();
  v1::Target scalars = GoldenTarget();
  scalars.set_vector_bytes(1);
  for (const v1::Target& target : {GoldenTarget(), scalars, GoldenGpu()}) {
    const absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(*graph, target);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int kernels = 0;
    for (const v1::Kernel& kernel : plan->kernels()) {
      if (kernel.name().find("PagedAttention") != std::string::npos) ++kernels;
    }
    EXPECT_EQ(kernels, target.vector_bytes() > 1 ? 2 : 0) << target.device();
  }
}

}  // namespace
}  // namespace athanor
