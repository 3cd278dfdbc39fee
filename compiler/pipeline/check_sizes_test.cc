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
  AddCheckSizes(graph, flops, &request);
  std::vector<std::string> sizes;
  for (const auto& set : request.sizes()) {
    sizes.push_back(absl::StrCat(set.sampled() ? "~" : "", absl::StrJoin(set.values(), ",")));
  }
  return absl::StrJoin(sizes, " ");
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
