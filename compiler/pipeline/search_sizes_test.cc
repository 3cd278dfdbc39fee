#include "compiler/pipeline/search_sizes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

const Expr kB = Expr::Symbol("b"), kS = Expr::Symbol("s");

// Returns "1,1 2,128": the sizes in order, for the dims given as text.
std::string SizesOf(const std::string& dims, const Expr& flops, const Expr& bytes,
                    double flops_per_second = 200e9) {
  const Graph graph =
      ParseGraph(absl::StrCat("graph \"g\" { ", dims, " %0 = Input \"x\" : f32[4] %1 = Exp(%0) ",
                              "output \"y\" = %1 }"))
          .value();
  const Machine machine{.read_bytes_per_second = 30e9, .f32_flops_per_second = flops_per_second};
  std::vector<std::string> sizes;
  for (const SizePoint& p : SearchSizes(graph, flops, bytes, machine)) {
    sizes.push_back(absl::StrJoin(p, ","));
  }
  return absl::StrJoin(sizes, " ");
}

constexpr char kEncoder[] = "dim b in [1, 8] dim s in [1, 512]";
// The encoder of tests/models, without its attention.
const Expr kEncoderFlops = 21'233'664 * kB * kS;

TEST(SearchSizesTest, SmallestTypicalLargest) {
  EXPECT_EQ(SizesOf("dim b in [1, 64]", 1000 * kB, 1000 * kB), "1 16 64");
  EXPECT_EQ(SizesOf("dim b in [3, 8]", 1000 * kB, 1000 * kB), "3 8");
  EXPECT_EQ(SizesOf("dim b in [0, 2]", 1000 * kB, 1000 * kB), "1 2");
  EXPECT_EQ(SizesOf("", 1000, 1000), "");
}

TEST(SearchSizesTest, TheLargestIsWhatTheMachineDoesInTime) {
  EXPECT_EQ(SizesOf(kEncoder, kEncoderFlops, 1000 * kB * kS), "1,1 2,128 4,128");
  EXPECT_EQ(SizesOf(kEncoder, kEncoderFlops, 1000 * kB * kS, 2e12), "1,1 2,128 8,512");
  // Each row of a batch takes 4 ms at 30 GB/s.
  EXPECT_EQ(SizesOf("dim b in [1, 64]", 1000 * kB, 120'000'000 * kB), "1 8");
}

// The typical size is measured even if a call of it takes longer than one of the largest size may.
TEST(SearchSizesTest, TheTypicalIsNotCutForTheSakeOfTheLargest) {
  EXPECT_EQ(SizesOf(kEncoder, 2 * kEncoderFlops, 1000 * kB * kS), "1,1 2,128");
  EXPECT_EQ(SizesOf(kEncoder, 5 * kEncoderFlops, 1000 * kB * kS), "1,1 2,128");
  // But a call that takes far too long is avoided.
  EXPECT_EQ(SizesOf(kEncoder, 10'000 * kEncoderFlops, 1000 * kB * kS), "1,1");
}

}  // namespace
}  // namespace athanor
