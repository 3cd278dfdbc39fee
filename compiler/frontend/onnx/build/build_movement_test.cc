#include "compiler/frontend/onnx/build/build_movement.h"

#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Checks that the row-major order of elements, and so the bytes, stay the same for all shapes.
void ExpectReshape(const std::vector<Dim>& dims, const Shape& from, const Shape& to,
                   const Expr::Env& sizes) {
  SCOPED_TRACE(ShapeToString(from) + " to " + ShapeToString(to));
  Built t(dims);
  const Value y = Reshape(t.b(), t.Input(Elem::kInt32, from), to);
  const Tensor x = Count(DType::kI32, ConcreteShape(from, sizes).value());
  const absl::StatusOr<Tensor> got = t.Try(y, {x}, &sizes);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->bytes, x.bytes);
  EXPECT_EQ(got->shape, ConcreteShape(to, sizes).value());
  EXPECT_EQ(t.Filled(), 0);
}

TEST(BuildMovementTest, ReshapeKeepsRowMajorOrder) {
  const Expr b = Expr::Symbol("b"), s = Expr::Symbol("s");
  const std::vector<Dim> dims = {{"b", 1, 9}, {"s", 1, 9}};
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 3}, {7, 5}}) {
    const Expr::Env sizes = {{"b", n}, {"s", m}};
    ExpectReshape(dims, {b, s, 6}, {b * 2, 3, s}, sizes);
    ExpectReshape(dims, {b, s, 6}, {b * s, 6}, sizes);
    ExpectReshape(dims, {b * s, 2, 3}, {b, s, 6}, sizes);
    ExpectReshape(dims, {b, s, 4, 2}, {b, s, 8}, sizes);
    ExpectReshape(dims, {b, s}, {1, b, 1, s, 1}, sizes);
    ExpectReshape(dims, {b, s}, {b * s}, sizes);
    ExpectReshape(dims, {b + 1, s, 2}, {s * 2 * b + s * 2}, sizes);
    ExpectReshape(dims, {b, s, 2}, {s, b * 2}, sizes);
  }
  ExpectReshape({}, {6, 4}, {8, 3}, {});
  ExpectReshape({}, {4, 6}, {2, 2, 6}, {});
  ExpectReshape({}, {7}, {1, 7, 1}, {});
  ExpectReshape({}, {}, {1, 1}, {});
  ExpectReshape({}, {1, 1}, {}, {});
  ExpectReshape({}, {2, 3, 5, 7}, {7, 5, 3, 2}, {});
  ExpectReshape({}, {0, 3}, {3, 0, 2}, {});
}

TEST(BuildMovementTest, ReshapeLeavesAxesThatStayOutOfTheOthersCoordinates) {
  Built t({{"b", 1, 64}, {"s", 1, 512}});
  const Expr b = Expr::Symbol("b"), s = Expr::Symbol("s");
  Reshape(t.b(), t.Input(Elem::kFloat, {b, s, 8, 64}), {b, s, 512});
  const auto& map = GetAttr<IndexMap>(t.graph().nodes.back().attrs, "map");
  EXPECT_EQ(map.coordinates[0], Expr::Axis(0));
  EXPECT_EQ(map.coordinates[1], Expr::Axis(1));
  EXPECT_EQ(map.coordinates[2], FloorDiv(Expr::Axis(2), 64));
}

TEST(BuildMovementTest, ReshapeOfUnequalNumbersIsRefused) {
  Built t;
  Reshape(t.b(), t.Input(Elem::kFloat, {2, 3}), {7});
  EXPECT_EQ(MessageOf(t.b().status()),
            "a reshape of [2, 3] to [7]: 6 elements become 7; the numbers must be equal");
  Built u({{"b", 1, 8}});
  Reshape(u.b(), u.Input(Elem::kFloat, {Expr::Symbol("b"), 3}), {2, Expr::Symbol("b")});
  EXPECT_EQ(u.b().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(u.b().status()).find("3*b elements become 2*b"), std::string::npos);
}

TEST(BuildMovementTest, AFailureIsKeptAndEndsTheRest) {
  Built t;
  const Value x = t.Input(Elem::kFloat, {2, 3});
  const Value bad = Reshape(t.b(), x, {7});
  const size_t nodes = t.graph().nodes.size();
  Permute(t.b(), bad, {2, 0, 1});
  Concat(t.b(), {bad, x}, 1);
  EXPECT_NE(MessageOf(t.b().status()).find("[7]"), std::string::npos);
  EXPECT_EQ(t.graph().nodes.size(), nodes);
}

TEST(BuildMovementTest, Permute) {
  Built t({{"b", 1, 8}});
  const Value y = Permute(t.b(), t.Input(Elem::kFloat, {Expr::Symbol("b"), 2, 3}), {2, 0, 1});
  const Tensor got = t.Try(y, {Count(DType::kF32, {2, 2, 3})}).value();
  EXPECT_EQ(got.shape, (std::vector<int64_t>{3, 2, 2}));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(ValuesOf(got)[i * 4 + j], j * 3 + i);
  }
  Built twice;
  Permute(twice.b(), twice.Input(Elem::kFloat, {2, 3}), {0, 0});
  EXPECT_FALSE(twice.b().status().ok());
}

TEST(BuildMovementTest, WhatMovesNothingIsNoNode) {
  Built t;
  const Value x = t.Input(Elem::kFloat, {2, 3});
  const size_t nodes = t.graph().nodes.size();
  EXPECT_EQ(Reshape(t.b(), x, {2, 3}).node, x.node);
  EXPECT_EQ(Permute(t.b(), x, {0, 1}).node, x.node);
  EXPECT_EQ(Slice(t.b(), x, 1, 0, 3).node, x.node);
  EXPECT_EQ(Squeeze(t.b(), x, {}).node, x.node);
  EXPECT_EQ(Concat(t.b(), {x}, 0).node, x.node);
  EXPECT_EQ(t.graph().nodes.size(), nodes);
}

TEST(BuildMovementTest, SqueezeAndUnsqueeze) {
  Built t({{"b", 1, 8}});
  const Value x = t.Input(Elem::kInt64, {1, Expr::Symbol("b"), 1, 3});
  const Value y = Unsqueeze(t.b(), Squeeze(t.b(), x, {0, 2}), {0, 1, 4});
  const Tensor got = t.Try(y, {Count(DType::kI64, {1, 2, 1, 3})}).value();
  EXPECT_EQ(got, Count(DType::kI64, {1, 1, 2, 3, 1}));
  Squeeze(t.b(), x, {1});
  EXPECT_EQ(MessageOf(t.b().status()),
            "axis 1 of [1, b, 1, 3] is to be removed and has size b; it must be 1 for every size "
            "of the dims");
}

TEST(BuildMovementTest, SliceStepsBothWays) {
  Built t({{"b", 2, 8}});
  const Expr b = Expr::Symbol("b");
  const Value x = t.Input(Elem::kFloat, {b, 7});
  const Tensor in = Count(DType::kF32, {3, 7});
  EXPECT_EQ(ValuesOf(t.Try(Slice(t.b(), x, 1, 1, 3, 2), {in}).value()),
            (Values{1, 3, 5, 8, 10, 12, 15, 17, 19}));
  EXPECT_EQ(ValuesOf(t.Try(Slice(t.b(), x, 1, 6, 2, -3), {in}).value()),
            (Values{6, 3, 13, 10, 20, 17}));
  EXPECT_EQ(ValuesOf(t.Try(Slice(t.b(), x, 0, b - 1, 1), {in}).value()),
            (Values{14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(t.Try(Slice(t.b(), x, 1, 7, 0), {in}).value().shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(ValuesOf(t.Try(Reverse(t.b(), Slice(t.b(), x, 1, 0, 1), 0), {in}).value()),
            (Values{14, 7, 0}));
  EXPECT_EQ(t.Filled(), 0);
}

TEST(BuildMovementTest, AMapWhoseInsideIsNotProvedIsStillRight) {
  Built t({{"b", 1, 8}, {"c", 1, 8}});
  const Value y = Slice(t.b(), t.Input(Elem::kFloat, {Expr::Symbol("b")}), 0, 0, Expr::Symbol("c"));
  const Value z = Add(t.b(), y, t.Input(Elem::kFloat, {Expr::Symbol("c")}));
  EXPECT_EQ(t.Filled(), 1);
  EXPECT_EQ(ValuesOf(t.Try(z, {Count(DType::kF32, {5}), Count(DType::kF32, {3})}).value()),
            (Values{0, 2, 4}));
}

TEST(BuildMovementTest, ConcatOfFewManyAndNone) {
  for (const int count : {1, 2, 3, 8, 9, 17, 70}) {
    Built t({{"b", 1, 8}});
    std::vector<Value> parts;
    std::vector<Tensor> inputs;
    Values want;
    for (int i = 0; i < count; ++i) {
      const int64_t size = i % 3 == 2 ? 0 : i % 3 + 1;
      parts.push_back(t.Input(Elem::kFloat, {size, i == 1 ? Expr::Symbol("b") : Expr(2)}));
      if (i == 1) parts.back() = Slice(t.b(), parts.back(), 1, 0, 2);
      inputs.push_back(Tensor::Zeros(DType::kF32, {size, 2}));
      for (int64_t k = 0; k < size * 2; ++k) {
        inputs.back().data<float>()[k] = static_cast<float>(want.size());
        want.push_back(static_cast<double>(want.size()));
      }
    }
    const absl::StatusOr<Tensor> got = t.Try(Concat(t.b(), parts, 0), inputs);
    ASSERT_TRUE(got.ok()) << count << ": " << got.status();
    EXPECT_EQ(ValuesOf(*got), want) << count;
  }
}

TEST(BuildMovementTest, ConcatAlongADim) {
  Built t({{"p", 0, 8}, {"s", 1, 8}});
  const Value past = t.Input(Elem::kInt8, {2, Expr::Symbol("p")});
  const Value now = t.Input(Elem::kInt8, {2, Expr::Symbol("s")});
  const Value y = Concat(t.b(), {past, now}, 1);
  EXPECT_EQ(y.shape[1], Expr::Symbol("p") + Expr::Symbol("s"));
  const Tensor two = Of(DType::kI8, {2, 1}, {7, 9});
  EXPECT_EQ(ValuesOf(t.Try(y, {Count(DType::kI8, {2, 2}), two}).value()),
            (Values{0, 1, 7, 2, 3, 9}));
  EXPECT_EQ(ValuesOf(t.Try(y, {Count(DType::kI8, {2, 0}), two}).value()), (Values{7, 9}));
  Concat(t.b(), {past, now}, 0);
  EXPECT_EQ(MessageOf(t.b().status()),
            "values joined along axis 0 have shapes [2, p] and [2, s]: axis 1 must be equal for "
            "every size of the dims, which is not proved");
}

TEST(BuildMovementTest, MapOrFillsWithALiteralOrWithData) {
  Built t;
  const Value x = t.Input(Elem::kFloat, {2});
  const Value fill = t.Input(Elem::kFloat, {});
  const Shape shape = {4};
  const std::vector<Expr> shifted = {Expr::Axis(0) - 1};
  const Tensor in = Of(DType::kF32, {2}, {3, 4}), six = Of(DType::kF32, {}, {6});
  const Value five = t.b().Scalar(Elem::kFloat, 5);
  EXPECT_EQ(ValuesOf(t.Try(MapOr(t.b(), x, shape, shifted, five), {in, six}).value()),
            (Values{5, 3, 4, 5}));
  EXPECT_EQ(ValuesOf(t.Try(MapOr(t.b(), x, shape, shifted, fill), {in, six}).value()),
            (Values{6, 3, 4, 6}));
  EXPECT_EQ(t.Filled(), 3);  // data needs a map of its own for the mask
}

TEST(BuildMovementTest, EveryCarrierMovesBitForBit) {
  for (const ElemRow& row : kElems) {
    if (row.carry == Carry::kNone) continue;
    Built t;
    Tensor in = Tensor::Zeros(row.carrier, {2, 3});
    for (size_t i = 0; i < in.bytes.size(); ++i) {
      in.bytes[i] = static_cast<char>(row.carrier == DType::kBool ? i % 2 : 251 * i + 3);
    }
    const Value x = t.Input(row.elem, {2, 3});
    const Value y = Concat(t.b(), {Reverse(t.b(), x, 0), x}, 0);
    EXPECT_EQ(y.elem, row.elem);
    const Tensor got = t.Try(y, {in}).value();
    const size_t half = in.bytes.size() / 2;
    EXPECT_EQ(got.bytes, in.bytes.substr(half) + in.bytes.substr(0, half) + in.bytes) << row.name;
  }
}

}  // namespace
}  // namespace athanor::onnx
