// A softmax is followed by a pad in front of its rows. The sums of the rows that only the pad has
// were hoisted, and read memory in front of the input.
#include <random>
#include <vector>

#include "compiler/ir/sample/compare.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

TEST(HoistedReductionOutsideTest, RowsOfAPadAreNotSummed) {
  const auto graph = ParseGraph(R"(graph "g" {
    %0 = Input "x" : f32[17, 4, 6, 2]
    %1 = IndexMap(%0) {map=map[51, 4, 6, 2]($0 - 17*floordiv($0, 17), $1, $2, $3)}
    %2 = MaxReduce(%1) {axes=[1]}
    %3 = Softmax(%2) {axis=2}
    %4 = IndexMap(%3) {map=map[51, 2]($0, 1, $1)}
    %5 = IndexMap(%4) {fill=f32[] {0.5}, map=map[55, 2]($0 - 4, $1)}
    output "y" = %5 })");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::mt19937 rng(1);
  const std::vector<Tensor> inputs = {RandomTensor(DType::kF32, {17, 4, 6, 2}, rng)};
  const auto want = Evaluate(*graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  for (int vector_bytes : {1, 16, 32, 0}) {
    auto compiled = Compile(*graph, {}, HostTarget(vector_bytes));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const auto got = compiled->Run(inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(CompareTensors((*got)[0], (*want)[0], 1e-5, 1e-5), absl::OkStatus());
  }
}

}  // namespace
}  // namespace athanor
