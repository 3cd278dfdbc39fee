#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"
#include "compiler/frontend/onnx/testing/node_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
using List = std::vector<int64_t>;

bool Says(const std::string& message, std::string_view part) {
  return message.find(part) != std::string::npos;
}

TEST(HandlersLinearTest, GemmInEveryForm) {
  const Tensor a = Of(DType::kF32, {2, 2}, {1, 2, 3, 4}), b = Of(DType::kF32, {2, 2}, {5, 6, 7, 8});
  EXPECT_EQ(ValuesOf(OneNode("Gemm", 11).In(a, {"m", 2}).In(b).Result()), (Values{19, 22, 43, 50}));
  EXPECT_EQ(ValuesOf(OneNode("Gemm", 11)
                         .In(a)
                         .In(b)
                         .In(Of(DType::kF32, {2, 1}, {1, 2}))
                         .Attr("transA", int64_t{1})
                         .Attr("transB", int64_t{1})
                         .Attr("alpha", 0.5f)
                         .Attr("beta", 10.0f)
                         .Result()),
            (Values{21.5, 25.5, 37, 43}));
  const Tensor c = Of(DType::kF32, {2}, {1, 2});
  EXPECT_EQ(ValuesOf(OneNode("Gemm", 6).In(a).In(b).In(c).Attr("broadcast", int64_t{1}).Result()),
            (Values{20, 24, 44, 52}));
  EXPECT_TRUE(Says(OneNode("Gemm", 6).In(a).In(b).In(c).Error(), "\"broadcast\""));
  const Tensor i = Of(DType::kI32, {1, 1}, {1 << 30});
  EXPECT_EQ(ValuesOf(OneNode("Gemm", 11).In(i).In(Of(DType::kI32, {1, 1}, {1})).Result()),
            (Values{1 << 30}));
  EXPECT_TRUE(Says(OneNode("Gemm", 11).In(i).In(i).Attr("alpha", 0.5f).Error(), "alpha"));
}

Values Sum(const std::string& equation, const std::vector<Tensor>& operands) {
  OneNode t("Einsum", 12);
  for (const Tensor& x : operands) t.In(x);
  return ValuesOf(t.Attr("equation", equation).Result());
}

TEST(HandlersLinearTest, Einsum) {
  const Tensor m = Of(DType::kF32, {2, 2}, {1, 2, 3, 4}), v = Of(DType::kF32, {2}, {10, 100});
  EXPECT_EQ(Sum("ij->ji", {m}), (Values{1, 3, 2, 4}));
  EXPECT_EQ(Sum("ij -> i", {m}), (Values{3, 7}));
  EXPECT_EQ(Sum("ii", {m}), (Values{5}));
  EXPECT_EQ(Sum("ii->i", {m}), (Values{1, 4}));
  EXPECT_EQ(Sum("ij,j", {m, v}), (Values{210, 430}));
  EXPECT_EQ(Sum("ba", {m}), (Values{1, 3, 2, 4}));  // implicit: in alphabetical order
  EXPECT_EQ(Sum("i,j->ij", {v, v}), (Values{100, 1000, 1000, 10000}));
  EXPECT_EQ(Sum("ij,jk,k->i", {m, m, v}), (Values{1070, 2350}));
  EXPECT_EQ(Sum("...j,j->...", {m, v}), (Values{210, 430}));
  EXPECT_EQ(Sum("...i,...i->...i", {Of(DType::kF32, {1, 2}, {1, 2}), m}), (Values{1, 4, 3, 8}));
  EXPECT_EQ(Sum("...->", {m}), (Values{10}));
  EXPECT_EQ(Sum("i,i->", {v, Of(DType::kF32, {1}, {2})}), (Values{220}));
  const auto refused = [&](const std::string& equation) {
    return OneNode("Einsum", 12).In(m).Attr("equation", equation).Error();
  };
  EXPECT_TRUE(Says(refused("i->i"), "1 letters"));
  EXPECT_TRUE(Says(refused("ij->k"), "all be in an operand's term"));
  EXPECT_TRUE(Says(refused("ij,jk->ik"), "2 terms for 1 operands"));
  EXPECT_TRUE(Says(refused("i+j"), "letters and one"));
}

TEST(HandlersLinearTest, EinsumOverDims) {
  const Tensor q = Count(DType::kF32, {2, 1, 3}), k = Count(DType::kF32, {2, 2, 3});
  EXPECT_EQ(OneNode("Einsum", 12)
                .In(q, {"b", "q", 3})
                .In(k, {"b", "k", 3})
                .Attr("equation", std::string("bqd,bkd->bqk"))
                .Result(),
            Of(DType::kF32, {2, 1, 2}, {5, 14, 86, 122}));
}

TEST(HandlersLinearTest, DetOfAnySize) {
  const auto det = [](const std::vector<int64_t>& shape, const Values& values) {
    return OneNode("Det", 11).In(Of(DType::kF64, shape, values)).Result();
  };
  EXPECT_EQ(ValuesOf(det({1, 1}, {-3})), (Values{-3}));
  EXPECT_EQ(ValuesOf(det({0, 0}, {})), (Values{1}));
  const Tensor two = det({2, 2, 2}, {1, 2, 3, 4, 0, 1, 1, 0});
  EXPECT_TRUE(CompareTensors(two, Of(DType::kF64, {2}, {-2, -1}), 1e-14, 0).ok());
  EXPECT_EQ(ValuesOf(det({3, 3}, {0, 0, 0, 1, 2, 3, 4, 5, 6})), (Values{0}));
  // Rows 2, 3, 1 of a triangle with 2, 3, 5, 7 on its diagonal: an even permutation, then an odd
  // one.
  const Tensor four = det({4, 4}, {0, 3, 1, 1, 0, 0, 5, 1, 2, 1, 1, 1, 0, 0, 0, 7});
  EXPECT_TRUE(CompareTensors(four, Of(DType::kF64, {}, {210}), 1e-14, 0).ok()) << ValuesOf(four)[0];
  const Tensor odd = det({4, 4}, {0, 3, 1, 1, 2, 1, 1, 1, 0, 0, 5, 1, 0, 0, 0, 7});
  EXPECT_TRUE(CompareTensors(odd, Of(DType::kF64, {}, {-210}), 1e-14, 0).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(ValuesOf(det({2, 2}, {nan, 1, 1, 1}))[0], ValuesOf(det({2, 2}, {nan, 1, 1, 1}))[0]);
  EXPECT_TRUE(Says(OneNode("Det", 11).In(Count(DType::kF64, {2, 3})).Error(), "square"));
}

TEST(HandlersLinearTest, FusedMatMul) {
  const Tensor a = Count(DType::kF32, {3, 2}), b = Count(DType::kF32, {3, 2});
  const Tensor y = OneNode("FusedMatMul", 13, "com.microsoft")
                       .In(a)
                       .In(b)
                       .Attr("transA", int64_t{1})
                       .Attr("alpha", 2.0f)
                       .Result();
  EXPECT_EQ(y, Of(DType::kF32, {2, 2}, {40, 52, 52, 70}));
  // [m, batch, k] by [k, batch, n]
  const Tensor z = OneNode("FusedMatMul", 13, "com.microsoft")
                       .In(Count(DType::kF32, {1, 2, 2}))
                       .In(Count(DType::kF32, {2, 2, 1}))
                       .Attr("transBatchA", int64_t{1})
                       .Attr("transBatchB", int64_t{1})
                       .Result();
  EXPECT_EQ(z, Of(DType::kF32, {2, 1, 1}, {2, 11}));
}

}  // namespace
}  // namespace athanor::onnx
