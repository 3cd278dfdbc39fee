// Found by fuzz_test: a pool's window may be far larger than the tensor, and the reference visited
// each of its positions.
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(WindowBeyondItsTensorTest, OnlyWhatIsInsideIsVisited) {
  const Tensor x = Of(DType::kF32, {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  Attrs attrs = {{"mode", std::string("sum")},
                 {"kernel", std::vector<int64_t>{4096, 4096}},
                 {"strides", std::vector<int64_t>{1, 2}},
                 {"dilations", std::vector<int64_t>{1, 1}},
                 {"begin", Shape{2000, 2000}},
                 {"out", Shape{100, 100}}};
  // Every window holds all of x: a million visits instead of 2^24 times ten thousand.
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, attrs)), std::vector<double>(10000, 21));
  attrs["mode"] = std::string("mean");
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, attrs)), std::vector<double>(10000, 3.5));
  attrs["counted"] = Shape{4200, 4200};
  // The last window begins at (99, 198); what counts ends before it only along the second axis.
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, attrs)).back(),
            static_cast<double>(static_cast<float>(21.0 / (4096.0 * (4200 - 198)))));
}

}  // namespace
}  // namespace athanor
