// Tests the indices drawn for states: valid, and distinct while there are enough.
#include "server/tuner/run/inputs.h"

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr char kGraph[] = R"(graph "g" {
  dim t in [0, 300000]
  dim n in [0, 1000]
  %0 = Input "q" : f32[t, 2, 4]
  %1 = Input "slots" : i64[t]
  %2 = Input "table" : i32[3, 5]
  %3 = Input "sequence" : i32[t]
  %4 = Input "position" : i32[t]
  %5 = Input "u" : f32[t, 1, 4]
  %6 = StateRead "k" {role="keys"} : f32[16*n, 1, 4]
  %7 = StateRead "v" {role="values"} : f32[16*n, 1, 4]
  %8 = StateWrite(%6, %1, %5)
  %9 = PagedAttention(%0, %8, %7, %2, %3, %4) {block=16}
  output "y" = %9
  update %8
})";

std::set<int64_t> Values(const Tensor& tensor, int64_t limit) {
  std::set<int64_t> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const int64_t value = LoadScalar(tensor, i).i;
    EXPECT_TRUE(value >= 0 && value < limit) << value << " of " << limit;
    values.insert(value);
  }
  return values;
}

TEST(InputsTest, IndicesOfStatesAreValidAndDistinct) {
  const Graph graph = ParseGraph(kGraph).value();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (int64_t t : {0, 1, 7, 80}) {
      for (int64_t blocks : {15, 40}) {
        const Expr::Env dims = {{"t", t}, {"n", blocks}};
        const std::vector<Tensor> in = RandomInputs(graph, dims, seed, IndexChoice::kAny).value();
        ASSERT_EQ(in.size(), 8u);
        EXPECT_EQ(in[6].shape, (std::vector<int64_t>{16 * blocks, 1, 4}));
        EXPECT_EQ(Values(in[1], 16 * blocks).size(), static_cast<size_t>(t));
        EXPECT_EQ(Values(in[2], blocks).size(), 15u);
        Values(in[3], 3);
        EXPECT_EQ(Values(in[4], 5 * 16).size(), static_cast<size_t>(t));
        if (t < 80) EXPECT_EQ(Evaluate(graph, in).status(), absl::OkStatus());
      }
    }
  }
  // Too few blocks and positions: valid all the same.
  const std::vector<Tensor> in =
      RandomInputs(graph, {{"t", 500}, {"n", 2}}, 1, IndexChoice::kAny).value();
  Values(in[1], 32);
  Values(in[2], 2);
  Values(in[4], 80);
}

TEST(InputsTest, DistinctIndicesOfManyRowsAreComplete) {
  const Graph graph = ParseGraph(R"(graph "g" { dim t in [1, 300000]
      %0 = Input "i" : i32[t] %1 = Input "u" : f32[t] %2 = StateRead "s" : f32[t]
      %3 = StateWrite(%2, %0, %1) output "y" = %3 update %3 })")
                          .value();
  const auto drawn = DrawInputs(graph, {{"t", 200'000}}, 5, IndexChoice::kAny).value();
  EXPECT_EQ(Values(drawn[0].drawn, 200'000).size(), 200'000u);
  EXPECT_EQ(drawn[1].drawn.elements(), kMaxDrawn);
}

}  // namespace
}  // namespace athanor
