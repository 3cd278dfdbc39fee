#include "compiler/pipeline/check_sizes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns "1,1 17,19 ~4,200": the sizes in order, sampled ones with a ~.
std::string SizesOf(const char* text, const Expr& flops) {
  const Graph graph = ParseGraph(text).value();
  internal::CheckRequest request;
  AddCheckSizes(graph, flops, nullptr, &request);
  std::vector<std::string> sizes;
  for (const auto& set : request.sizes()) {
    sizes.push_back(absl::StrCat(set.sampled() ? "~" : "", absl::StrJoin(set.values(), ",")));
  }
  return absl::StrJoin(sizes, " ");
}

// The same for calls of a decoder whose rows T have these bounds; its other dims are R, S, B, N.
std::string PagedSizesOf(const std::string& rows, int64_t flops_of_row) {
  const Graph graph = ParseGraph("graph \"g\" { dim T in " + rows + R"( dim R in [0, 512]
      dim S in [1, 64] dim B in [1, 512] dim N in [1, 40000]
      %0 = Input "q" : f32[T, 2, 4] %1 = StateRead "k" {role="keys"} : f32[16*N, 1, 4]
      %2 = StateRead "v" {role="values"} : f32[16*N, 1, 4] %3 = Input "table" : i32[S, B]
      %4 = Input "sequence" : i32[T] %5 = Input "position" : i32[T] %6 = Input "wanted" : i32[R]
      %7 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} %8 = Gather(%7, %6) {axis=0}
      output "y" = %8 })")
                          .value();
  const PagedSizes paged = PagedSizes::Of(graph).value();
  internal::CheckRequest request;
  AddCheckSizes(graph, flops_of_row * Expr::Symbol("T"), &paged, &request);
  std::vector<std::string> sizes;
  for (const auto& set : request.sizes()) {
    sizes.push_back(absl::StrCat(set.sampled() ? "~" : "", absl::StrJoin(set.values(), ",")));
  }
  return absl::StrJoin(sizes, " ");
}

// States have slots for the contexts of the call, not as many as they may have.
TEST(CheckSizesTest, PagedCallsHaveContexts) {
  EXPECT_EQ(PagedSizesOf("[1, 1]", 1000), "1,0,1,1,1 1,2,3,3,9 ~1,1,1,32,32");
  EXPECT_EQ(PagedSizesOf("[65, 512]", 1000), "65,0,1,5,5 65,2,3,3,9 ~512,2,2,32,64");
  // Fewer rows where all take too long.
  EXPECT_EQ(PagedSizesOf("[1, 512]", 1'000'000), "1,0,1,1,1 3,2,3,3,9 ~64,64,64,32,2048");
}

const Expr kB = Expr::Symbol("b"), kS = Expr::Symbol("s");

TEST(CheckSizesTest, SmallRangesAreComparedWhole) {
  EXPECT_EQ(SizesOf(R"(graph "g" { dim b in [1, 64] %0 = Input "x" : f32[b, 10] %1 = Exp(%0)
    output "y" = %1 })",
                    10 * kB),
            "1 64");
  EXPECT_EQ(SizesOf(R"(graph "g" { %0 = Input "x" : f32[10] %1 = Exp(%0) output "y" = %1 })", 10),
            "");
}

TEST(CheckSizesTest, LargeRangesAreSampledHalfWayAndAtTheLargestThatIsQuick) {
  // At most 2 * 16 MiB / 8 bytes elements.
  EXPECT_EQ(SizesOf(R"(graph "g" { dim b in [1, 1000000000] %0 = Input "x" : f32[b] %1 = Exp(%0)
    output "y" = %1 })",
                    kB),
            "1 67 ~1448 ~2097153");
  EXPECT_EQ(SizesOf(R"(graph "g" { dim b in [1, 8] dim s in [1, 512] %0 = Input "x" : f32[b, s, 384]
    %1 = Exp(%0) output "y" = %1 })",
                    384 * kB * kS),
            "1,1 8,39 ~8,512");
}

TEST(CheckSizesTest, LargeConstantsAreSampledEverywhere) {
  const std::string sizes = SizesOf(R"(graph "g" { dim b in [1, 8] %0 = Input "x" : f32[b, 4096]
    %1 = Parameter "w" : f32[4096, 4096] %2 = Contract(%0, %1) {spec="bk,kn->bn"} output "y" = %2 })",
                                    2 * 4096 * 4096 * kB);
  EXPECT_EQ(sizes, "~1 ~2");
}

// A kernel that packs weights is the same for all sizes of the model's dims.
TEST(CheckSizesTest, DimsThatMeanNothingAreNotVaried) {
  EXPECT_EQ(
      SizesOf(R"(graph "g" { dim b in [2, 8] dim s in [1, 512] %0 = Parameter "w" : f32[90, 90]
    %1 = IndexMap(%0) {map=map[90, 90]($1, $0)} output "y" = %1 })",
              0),
      "2,1");
}

// A table may have any size if only some rows are gathered.
TEST(CheckSizesTest, TablesAreNotMoved) {
  EXPECT_EQ(SizesOf(R"(graph "g" { dim b in [1, 100] %0 = Parameter "t" : f32[2000000000, 64]
    %1 = Input "i" : i64[b] %2 = Gather(%0, %1) {axis=0} output "y" = %2 })",
                    0),
            "~1 ~10 ~100");
}

}  // namespace
}  // namespace athanor
