// Attributes as large as int64 allows, and empty tensors with huge axes. They are refused or give
// empty results, quickly and without overflow.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 29;  // its square exceeds every limit on elements

Tensor None(std::vector<int64_t> shape, DType dtype = DType::kF32) {
  return Tensor::Zeros(dtype, std::move(shape));
}

TEST(HandlersHugeTest, NonMaxSuppressionWithoutBoxesVisitsNoImages) {
  const Tensor chosen = OneNode("NonMaxSuppression", 11)
                            .Fixed(None({kHuge, 0, 4}))
                            .Fixed(None({kHuge, kHuge, 0}))
                            .Fixed(Ints({1}))
                            .Result(Elem::kInt64);
  EXPECT_EQ(chosen, None({0, 3}, DType::kI64));
}

TEST(HandlersHugeTest, UniqueOfNothingVisitsNoRows) {
  const absl::StatusOr<std::vector<Tensor>> found = OneNode("Unique", 11)
                                                        .Fixed(None({kHuge, kHuge, 0}))
                                                        .Attr("axis", int64_t{2})
                                                        .Out(Elem::kFloat)
                                                        .Out(Elem::kInt64)
                                                        .Run();
  if (found.ok()) EXPECT_EQ((*found)[1], None({0}, DType::kI64));
  EXPECT_NE(found.status().code(), absl::StatusCode::kInternal) << found.status();
}

TEST(HandlersHugeTest, HeadsBeyondInt64AreNoneOfTheQuery) {
  const std::string refused = OneNode("GroupQueryAttention", 21, "com.microsoft")
                                  .In(None({1, 1, 8}))
                                  .Omit()
                                  .Omit()
                                  .Omit()
                                  .Omit()
                                  .In(None({1, 1}, DType::kI32))
                                  .Fixed(Of(DType::kI32, {1}, {3}))
                                  .Attr("num_heads", kMost - 1)
                                  .Attr("kv_num_heads", kMost - 1)
                                  .Error();
  EXPECT_THAT(refused, HasSubstr("(num_heads + 2 * kv_num_heads) * size"));
}

TEST(HandlersHugeTest, MatMulNBitsOfRowsAsLongAsInt64) {
  const std::string refused = OneNode("MatMulNBits", 21, "com.microsoft")
                                  .In(None({0, kMost}))
                                  .In(None({1, 1, 8}, DType::kU8))
                                  .In(None({1}))
                                  .Attr("K", kMost)
                                  .Attr("N", int64_t{1})
                                  .Attr("bits", int64_t{4})
                                  .Attr("block_size", int64_t{1} << 62)
                                  .Error();
  EXPECT_FALSE(refused.empty());
}

TEST(HandlersHugeTest, RecurrentStatesHaveALimit) {
  const std::string refused =
      OneNode("LSTM", 14).In(None({2, 0, 3})).In(None({1, 0, 3})).In(None({1, 0, kMost})).Error();
  EXPECT_THAT(refused, HasSubstr("a constant of 1 to 2147483648"));
}

// Checks operands whose missing axes would be read, or divided by.
TEST(HandlersHugeTest, OperandsOfTooFewAxesAreRefused) {
  EXPECT_THAT(OneNode("ConvInteger", 10)
                  .In(None({}, DType::kU8))
                  .In(None({1, 1, 1}, DType::kU8))
                  .In(None({2}, DType::kU8))
                  .Error(),
              HasSubstr("x_zero_point has shape [2], its tensor []"));
  EXPECT_THAT(OneNode("MultiHeadAttention", 21, "com.microsoft")
                  .In(None({4}))
                  .In(None({1, 3, 4}))
                  .In(None({1, 3, 4}))
                  .In(None({12}))
                  .Attr("num_heads", int64_t{2})
                  .Error(),
              HasSubstr("a bias of packed or split keys"));
  EXPECT_THAT(OneNode("RotaryEmbedding", 21, "com.microsoft")
                  .In(None({1, 2, 4}))
                  .In(None({1}, DType::kI64))
                  .In(None({4, 0}))
                  .In(None({4, 0}))
                  .Error(),
              HasSubstr("of 1 to 2147483648 columns"));
  EXPECT_THAT(OneNode("Attention", 21, "com.microsoft")
                  .In(None({1, 2, 4}))
                  .In(None({4, 12}))
                  .In(None({12}))
                  .Attr("num_heads", int64_t{2})
                  .Attr("qkv_hidden_sizes", std::vector<int64_t>{kMost, kMost, 14})
                  .Error(),
              HasSubstr("weights have 12 columns"));
}

TEST(HandlersHugeTest, DeformedKernelsHaveALimit) {
  const auto refused = [](const Tensor& x, const Tensor& w, int64_t group) {
    return OneNode("DeformConv", 19)
        .In(x)
        .In(w)
        .In(None({1, 1, 1, 1}))
        .Attr("group", group)
        .Error();
  };
  EXPECT_THAT(refused(None({0, 4, 3, 3}), None({kHuge, kHuge, 0, 1}), kMost),
              HasSubstr("group must divide both"));
  EXPECT_FALSE(refused(None({0, 0, kHuge, kHuge}), None({1, 0, 1 << 30, 1 << 30}), 1).empty());
}

}  // namespace
}  // namespace athanor::onnx
