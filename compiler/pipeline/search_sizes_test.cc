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
  for (const SizePoint& p : SearchSizes(graph, nullptr, flops, bytes, machine)) {
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

// Rows, wanted rows, sequences, blocks of each and of all.
TEST(SearchSizesTest, PagedCallsHaveShortAndLongContexts) {
  const auto sizes = [](const std::string& rows, int64_t flops_of_row) {
    const Graph graph = ParseGraph("graph \"g\" { dim T in " + rows + R"( dim R in [0, 512]
      dim S in [1, 64] dim B in [1, 512] dim N in [1, 40000]
      %0 = Input "q" : f32[T, 2, 4] %1 = StateRead "k" {role="keys"} : f32[16*N, 1, 4]
      %2 = StateRead "v" {role="values"} : f32[16*N, 1, 4] %3 = Input "table" : i32[S, B]
      %4 = Input "sequence" : i32[T] %5 = Input "position" : i32[T] %6 = Input "wanted" : i32[R]
      %7 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} %8 = Gather(%7, %6) {axis=0}
      output "y" = %8 })")
                            .value();
    const PagedSizes paged = PagedSizes::Of(graph).value();
    const Machine machine{.read_bytes_per_second = 30e9, .f32_flops_per_second = 200e9};
    std::vector<std::string> all;
    for (const SizePoint& p :
         SearchSizes(graph, &paged, flops_of_row * Expr::Symbol("T"), 1000, machine)) {
      all.push_back(absl::StrJoin(p, ","));
    }
    return absl::StrJoin(all, " ");
  };
  EXPECT_EQ(sizes("[1, 1]", 1000), "1,1,1,16,16 1,1,1,63,63");
  EXPECT_EQ(sizes("[5, 16]", 1000), "5,5,5,16,80 16,16,16,63,1008");
  EXPECT_EQ(sizes("[65, 512]", 1000), "65,1,1,16,16 512,2,2,63,126");
  // SmolLM2's: a quarter of the rows, though they take longer than is hoped for.
  EXPECT_EQ(sizes("[65, 512]", 270'000'000), "65,1,1,16,16 128,1,1,63,63");
  // A box without a bound: a quarter of 4,096 rows.
  EXPECT_EQ(sizes("[1, 16777216]", 270'000'000), "1,1,1,16,16 1024,4,4,63,252");
  EXPECT_EQ(sizes("[1, 16777216]", 1000), "1,1,1,16,16 4096,16,16,63,1008");
  EXPECT_EQ(sizes("[8192, 16777216]", 1000), "8192,32,32,16,512 8192,32,32,63,2016");
}

}  // namespace
}  // namespace athanor
