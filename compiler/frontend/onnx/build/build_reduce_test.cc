#include "compiler/frontend/onnx/build/build_reduce.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(BuildReduceTest, AxesLeaveOrStayAsOne) {
  Built t({{"b", 1, 8}});
  const Value x = t.Input(Elem::kInt32, {Expr::Symbol("b"), 2, 3});
  const Tensor in = Count(DType::kI32, {2, 2, 3});
  const Tensor rows = t.Try(Reduce(t.b(), Op::kSumReduce, x, {2, 0, 2}, false), {in}).value();
  EXPECT_EQ(rows, Of(DType::kI32, {2}, {24, 42}));
  const Tensor kept = t.Try(Reduce(t.b(), Op::kMaxReduce, x, {2, 0}, true), {in}).value();
  EXPECT_EQ(kept, Of(DType::kI32, {1, 2, 1}, {8, 11}));
  EXPECT_EQ(Reduce(t.b(), Op::kSumReduce, x, {}, true).node, x.node);
}

TEST(BuildReduceTest, MeanRoundsOnceAndDoesNotOverflow) {
  Built t({{"n", 0, 9}});
  const Value y = Mean(t.b(), t.Input(Elem::kFloat16, {Expr::Symbol("n"), 2}), {0}, true);
  EXPECT_EQ(y.elem, Elem::kFloat16);
  const Tensor got = t.Try(y, {Of(DType::kF16, {3, 2}, {60000, 1, 60000, 1, 60000, 2})}).value();
  EXPECT_EQ(got, Of(DType::kF16, {1, 2}, {60000, 4.0 / 3}));
  for (double v : ValuesOf(t.Try(y, {Tensor::Zeros(DType::kF16, {0, 2})}).value())) {
    EXPECT_TRUE(std::isnan(v));
  }
  Built u;
  const Value z = Mean(u.b(), u.Input(Elem::kInt32, {2}), {0}, false);
  EXPECT_EQ(ValuesOf(u.Try(z, {Of(DType::kI32, {2}, {-4, -3})}).value()), Values{-3});
}

Values Extreme(Elem elem, bool largest, bool last, const Values& row) {
  Built t({{"n", 1, 9}});
  const Value y =
      ArgExtreme(t.b(), t.Input(elem, {1, Expr::Symbol("n")}), 1, largest, last, /*keepdims=*/true);
  EXPECT_EQ(y.elem, Elem::kInt64);
  const int64_t n = static_cast<int64_t>(row.size());
  const Tensor got = t.Try(y, {Of(CarrierOf(elem), {1, n}, row)}).value();
  EXPECT_EQ(got.shape, (std::vector<int64_t>{1, 1}));
  return ValuesOf(got);
}

TEST(BuildReduceTest, ArgExtremeTies) {
  for (const Elem elem : {Elem::kFloat, Elem::kDouble, Elem::kFloat16, Elem::kBFloat16, Elem::kInt8,
                          Elem::kInt64, Elem::kUInt8, Elem::kUInt64}) {
    SCOPED_TRACE(ElemName(elem));
    const Values row = {3, 1, 7, 7, 1};
    EXPECT_EQ(Extreme(elem, true, false, row), Values{2});
    EXPECT_EQ(Extreme(elem, true, true, row), Values{3});
    EXPECT_EQ(Extreme(elem, false, false, row), Values{1});
    EXPECT_EQ(Extreme(elem, false, true, row), Values{4});
    EXPECT_EQ(Extreme(elem, false, false, {5}), Values{0});
  }
}

TEST(BuildReduceTest, ArgExtremeEdges) {
  EXPECT_EQ(Extreme(Elem::kFloat, true, false, {1, kNaN, kInf, kNaN}), Values{1});
  EXPECT_EQ(Extreme(Elem::kFloat, true, true, {1, kNaN, kInf, kNaN}), Values{3});
  EXPECT_EQ(Extreme(Elem::kFloat, false, false, {1, -kInf, kNaN}), Values{2});
  EXPECT_EQ(Extreme(Elem::kFloat, true, false, {-kInf, -kInf}), Values{0});
  EXPECT_EQ(Extreme(Elem::kFloat, false, true, {0.0, -0.0}), Values{1});
  EXPECT_EQ(Extreme(Elem::kInt8, false, false, {-127, -128, 127}), Values{1});
  EXPECT_EQ(Extreme(Elem::kUInt8, false, false, {255, 0, 1}), Values{1});
  EXPECT_EQ(Extreme(Elem::kUInt8, true, false, {0, 200, 100}), Values{1});
}

// Computes numpy.matmul by its definition.
Tensor Product(const Tensor& a, const Tensor& b, const std::vector<int64_t>& result) {
  const auto at = [](const Tensor& t, const std::vector<int64_t>& index) {
    int64_t flat = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      flat = flat * t.shape[i] + (t.shape[i] == 1 ? 0 : index[i]);
    }
    return ValuesOf(t)[flat];
  };
  const bool vector_a = a.shape.size() == 1, vector_b = b.shape.size() == 1;
  const int64_t inner = a.shape.back();
  const size_t batch = result.size() - !vector_a - !vector_b;
  Values values;
  for (int64_t i = 0; i < Tensor::Zeros(DType::kF64, result).elements(); ++i) {
    std::vector<int64_t> index(result.size());
    for (int64_t k = static_cast<int64_t>(result.size()) - 1, rest = i; k >= 0; --k) {
      index[k] = rest % result[k];
      rest /= result[k];
    }
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      std::vector<int64_t> left, right;
      for (size_t j = 0; j < batch; ++j) {
        if (batch - j + 2 <= a.shape.size()) left.push_back(index[j]);
        if (batch - j + 2 <= b.shape.size()) right.push_back(index[j]);
      }
      if (!vector_a) left.push_back(index[batch]);
      left.push_back(k);
      right.push_back(k);
      if (!vector_b) right.push_back(index.back());
      sum += at(a, left) * at(b, right);
    }
    values.push_back(sum);
  }
  return Of(a.dtype, result, values);
}

void ExpectMatMul(const Shape& a, const Shape& b, const std::vector<int64_t>& result) {
  SCOPED_TRACE(ShapeToString(a) + " @ " + ShapeToString(b));
  Built t({{"b", 1, 8}, {"s", 1, 8}});
  const Expr::Env sizes = {{"b", 2}, {"s", 3}};
  const Tensor x = Count(DType::kF64, ConcreteShape(a, sizes).value());
  const Tensor w = Count(DType::kF64, ConcreteShape(b, sizes).value());
  const Value y = MatMul(t.b(), t.Input(Elem::kDouble, a), t.Input(Elem::kDouble, b));
  const absl::StatusOr<Tensor> got = t.Try(y, {x, w});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, Product(x, w, result));
}

TEST(BuildReduceTest, MatMulOfEveryRank) {
  const Expr b = Expr::Symbol("b"), s = Expr::Symbol("s");
  ExpectMatMul({s, 4}, {4, 5}, {3, 5});
  ExpectMatMul({4}, {4}, {});
  ExpectMatMul({4}, {4, 5}, {5});
  ExpectMatMul({s, 4}, {4}, {3});
  ExpectMatMul({b, s, 4}, {4, 5}, {2, 3, 5});
  ExpectMatMul({4}, {b, 4, 5}, {2, 5});
  ExpectMatMul({b, s, 4}, {4}, {2, 3});
  ExpectMatMul({b, s, 4}, {b, 4, s}, {2, 3, 3});
  ExpectMatMul({b, 1, s, 4}, {1, 5, 4, 2}, {2, 5, 3, 2});
  ExpectMatMul({1, 5, s, 4}, {b, 1, 4, 2}, {2, 5, 3, 2});
  ExpectMatMul({1, 1, 4}, {1, 4, 1}, {1, 1, 1});
  ExpectMatMul({b, 5, s, 4}, {5, 4, 2}, {2, 5, 3, 2});
  ExpectMatMul({s, 0}, {0, 2}, {3, 2});
}

TEST(BuildReduceTest, MatMulRefusesWhatDoesNotFit) {
  const auto message = [](const Shape& a, const Shape& b) {
    Built t({{"b", 1, 8}, {"s", 1, 8}});
    MatMul(t.b(), t.Input(Elem::kFloat, a), t.Input(Elem::kFloat, b));
    return std::string(t.b().status().message());
  };
  EXPECT_EQ(message({2, 3}, {4, 5}),
            "matrix operands [2, 3] and [4, 5]: the summed axes have sizes 3 and 4; they must be "
            "equal");
  EXPECT_EQ(message({Expr::Symbol("b"), 2, 3}, {Expr::Symbol("s"), 3, 5}),
            "matrix operands [b, 2, 3] and [s, 3, 5]: the batch axes of sizes b and s must be "
            "equal or 1 for every size of the dims");
  EXPECT_NE(message({}, {4}).find("rank 1 or more"), std::string::npos);
}

TEST(BuildReduceTest, Contract) {
  Built t;
  const Value x = t.Input(Elem::kInt8, {2, 2});
  const Value y = Contract(t.b(), "mk,nk->nm", x, x);
  const Tensor in = Of(DType::kI8, {2, 2}, {1, 2, 3, 100});
  EXPECT_EQ(ValuesOf(t.Try(y, {in}).value()),
            (Values{5, -53, -53, static_cast<double>(static_cast<int8_t>(10009))}));
}

}  // namespace
}  // namespace athanor::onnx
