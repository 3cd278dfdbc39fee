// A leading axis is padded and split, with two or more axes behind it. Merging the axes of the loop
// nest simplified with the extent that an axis had before the merge, so the pad was lost.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

void Check(const std::string& text) {
  const auto graph = ParseGraph("graph \"g\" {\n" + text + "}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::mt19937 rng(1);
  ExpectMatchesReference(*graph, {RandomTensor(DType::kF32, {40, 4, 4}, rng)});
}

TEST(PaddedSplitAxisWrongTest, PadThenReshape) {
  Check(R"(%0 = Input "x" : f32[40, 4, 4]
           %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[48, 4, 4]($0, $1, $2)}
           %2 = IndexMap(%1) {map=map[3, 16, 4, 4](16*$0 + $1, $2, $3)}
           output "y" = %2)");
}

TEST(PaddedSplitAxisWrongTest, BlocksOfASum) {
  Check(R"(%0 = Input "x" : f32[40, 4, 4]
           %1 = IndexMap(%0) {fill=f32[] {0.0}, map=map[3, 16, 16, 4, 4](16*$0 + $1 - $2, $3, $4)}
           %2 = SumReduce(%1) {axes=[2]}
           output "y" = %2)");
}

}  // namespace
}  // namespace athanor
