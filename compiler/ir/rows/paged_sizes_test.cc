#include "compiler/ir/rows/paged_sizes.h"

#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Sizes = std::vector<int64_t>;

// A decoder's dims T, R, S, B, N, the first of these bounds.
Graph Decoder(int64_t fewest, int64_t most) {
  return ParseGraph(R"(graph "g" { dim T in [)" + std::to_string(fewest) + ", " +
                    std::to_string(most) + R"(] dim R in [0, 512] dim S in [1, 64]
      dim B in [1, 512] dim N in [1, 40000]
      %0 = Input "q" : f32[T, 2, 4] %1 = StateRead "k" {role="keys"} : f32[32*N, 1, 4]
      %2 = StateRead "v" {role="values"} : f32[32*N, 1, 4] %3 = Input "table" : i32[S, B]
      %4 = Input "sequence" : i32[T] %5 = Input "position" : i32[T] %6 = Input "wanted" : i32[R]
      %7 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=32} %8 = Gather(%7, %6) {axis=0}
      output "y" = %8 })")
      .value();
}

TEST(PagedSizesTest, KnowsTheDimsOfADecoder) {
  const PagedSizes paged = PagedSizes::Of(Decoder(5, 16)).value();
  EXPECT_EQ(paged.rows(), "T");
  EXPECT_EQ(paged.followers(), (std::vector<std::string>{"R", "S"}));
  EXPECT_EQ(paged.fewest_rows(), 5);
  EXPECT_EQ(paged.most_rows(), 16);
  EXPECT_EQ(paged.block(), 32);
}

TEST(PagedSizesTest, CallsHaveRoomForTheirContexts) {
  const PagedSizes paged = PagedSizes::Of(Decoder(1, 512)).value();
  EXPECT_EQ(paged.At({.rows = 8, .sequences = 3, .wanted = 2, .context = 33}),
            (Sizes{8, 2, 3, 2, 6}));
  // Rows of one sequence need blocks whatever the context is.
  EXPECT_EQ(paged.At({.rows = 100, .sequences = 1, .wanted = 0, .context = 1}),
            (Sizes{100, 0, 1, 4, 4}));
  // All is inside the bounds.
  EXPECT_EQ(paged.At({.rows = 1000, .sequences = 100, .wanted = 900, .context = 1 << 20}),
            (Sizes{512, 512, 64, 512, 64 * 512}));
  EXPECT_EQ(paged.At({.rows = 0, .sequences = 0, .wanted = 0, .context = 0}),
            (Sizes{1, 0, 1, 1, 1}));
  // Takes other dims, and one that it does not know.
  EXPECT_EQ(paged.At({.rows = 8, .sequences = 3, .wanted = 2, .context = 33},
                     {{"N", 1, 40000}, {"K", 5, 9}, {"T", 1, 7}}),
            (Sizes{6, 5, 7}));
}

TEST(PagedSizesTest, StatesOfManySequencesAreBounded) {
  Graph graph = Decoder(1, 64);
  for (NodeId state : graph.StateIds()) graph.nodes[state].type.shape[1] = 2048;  // 64 KiB a slot
  const PagedSizes paged = PagedSizes::Of(graph).value();
  // 2,048 slots: 64 blocks of 32.
  EXPECT_EQ(paged.At({.rows = 1, .sequences = 1, .wanted = 0, .context = 4000})[3], 64);
  EXPECT_EQ(paged.At({.rows = 16, .sequences = 16, .wanted = 0, .context = 4000})[3], 4);
  EXPECT_EQ(paged.At({.rows = 64, .sequences = 64, .wanted = 0, .context = 4000})[3], 1);
  EXPECT_EQ(paged.At({.rows = 64, .sequences = 1, .wanted = 0, .context = 20})[3], 2);
}

TEST(PagedSizesTest, FewRowsAreOfASequenceEach) {
  const auto usual = [](int64_t rows) { return PagedSizes::Usual(rows, 100); };
  for (int64_t rows : {1, 8, 64}) {
    EXPECT_EQ(usual(rows).sequences, rows);
    EXPECT_EQ(usual(rows).wanted, rows);
  }
  EXPECT_EQ(usual(65).sequences, 1);
  EXPECT_EQ(usual(512).sequences, 2);
  EXPECT_EQ(usual(512).wanted, 2);
}

// Nothing is wanted of the smallest, and no size of a box is left.
TEST(PagedSizesTest, ComparesTheSmallestAndManyRows) {
  for (const auto& [fewest, most, larger] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {5, 16, 16}, {65, 512, 128}}) {
    const PagedSizes paged = PagedSizes::Of(Decoder(fewest, most)).value();
    const std::vector<PagedCall> calls = paged.Compared();
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(paged.At(calls[0])[0], fewest);
    EXPECT_EQ(paged.At(calls[0])[1], 0);
    EXPECT_EQ(paged.At(calls[1])[0], larger);
    EXPECT_LE(paged.At(calls[1])[4], 8 * 4);
  }
}

TEST(PagedSizesTest, OthersHaveNone) {
  EXPECT_FALSE(PagedSizes::Of(ParseGraph(R"(graph "g" { dim T in [1, 4] %0 = Input "x" : f32[T]
      %1 = Exp(%0) output "y" = %1 })")
                                  .value())
                   .has_value());
  // Rows of no dim.
  EXPECT_FALSE(PagedSizes::Of(ParseGraph(R"(graph "g" { dim S in [1, 4] dim B in [1, 4]
      dim N in [1, 9] %0 = Input "q" : f32[3, 2, 4]
      %1 = StateRead "k" {role="keys"} : f32[16*N, 1, 4]
      %2 = StateRead "v" {role="values"} : f32[16*N, 1, 4] %3 = Input "table" : i32[S, B]
      %4 = Input "sequence" : i32[3] %5 = Input "position" : i32[3]
      %6 = PagedAttention(%0, %1, %2, %3, %4, %5) {block=16} output "y" = %6 })")
                                  .value())
                   .has_value());
}

}  // namespace
}  // namespace athanor
