#include "compiler/ir/ops/value_facts.h"

#include <cmath>
#include <limits>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor Literal(DType dtype, const std::vector<double>& values) {
  Tensor t = Tensor::Zeros(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    StoreScalar(t, static_cast<int64_t>(i), Scalar::Float(dtype, values[i]));
  }
  return t;
}

// Reports whether the stated facts of a value hold for these numbers.
bool Agrees(const ValueFacts& said, const Tensor& value) {
  return Joined(said, ValueFactsOf(value)) == ValueFactsOf(value);
}

TEST(ValueFactsTest, OfLiterals) {
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {1, 2, kNaN})),
            (ValueFacts{true, true, true, true, 1}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {1, 0})), (ValueFacts{true, true, true, false, 0}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {3, 1e-40})),
            (ValueFacts{true, true, true, false, 2}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {-0.0})),
            (ValueFacts{true, true, true, false, -1100}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF16, {65504})).magnitude, ValueFacts::kUnknown);
  EXPECT_TRUE(ValueFactsOf(Literal(DType::kF16, {65504})).bounded());
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF64, {kInf, -1})),
            (ValueFacts{false, true, false, false}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF16, {-kInf})), (ValueFacts{true, false, false, false}));
}

// For every op, over every pair of operands from sets of numbers with the same facts: the facts of
// the result hold for every result.
TEST(ValueFactsTest, EveryOpsResultIsWhatIsSaidOfIt) {
  const std::vector<std::vector<double>> kSets = {
      {kInf, -kInf, 0, -0.0, 1.5, -3, kNaN, 1e-40, 3e38},
      {2, -3, 0, 3e38, -3e38},
      {kInf, 2, 0, -0.0, 1e-42},
      {0.5, 4, kNaN, 1e38},
      {-kInf, -2, 1e-40},
      {kInf, 1e-37, 7}};
  int said = 0;
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const OpRow& row : OpTable()) {
      if (row.op_class != OpClass::kElementwise || row.max_inputs > 2) continue;
      if (!row.attrs.empty() && row.op != Op::kCast) continue;
      for (size_t a = 0; a < kSets.size(); ++a) {
        for (size_t b = 0; b < kSets.size(); ++b) {
          Tensor x = Literal(dtype, {}), y = x;
          std::vector<double> xs, ys;
          for (const double v : kSets[a]) {
            for (const double w : kSets[b]) {
              xs.push_back(v);
              ys.push_back(w);
            }
          }
          x = Literal(dtype, xs);
          y = Literal(dtype, ys);
          const Attrs attrs = row.op == Op::kCast ? Attrs{{"dtype", DType::kF16}} : Attrs();
          std::vector<TensorType> types(row.max_inputs, {dtype, {Expr(x.elements())}});
          const auto type = row.infer(types, attrs, {});
          if (!type.ok()) continue;
          Tensor result = Tensor::Zeros(type->dtype, x.shape);
          const std::vector<const Tensor*> operands = {&x, &y};
          const auto some = absl::MakeConstSpan(operands).first(row.max_inputs);
          ASSERT_TRUE(row.reference(some, attrs, {}, &result).ok());
          const std::vector<ValueFacts> facts = {ValueFactsOf(x), ValueFactsOf(y)};
          const ValueFacts of =
              ValueFactsOf(row.op, attrs, absl::MakeConstSpan(facts).first(row.max_inputs),
                           /*operands_equal=*/false, dtype, type->dtype);
          EXPECT_TRUE(Agrees(of, result)) << row.name << " of sets " << a << " and " << b;
          said += of != ValueFacts();
        }
      }
    }
  }
  EXPECT_GT(said, 100);
}

TEST(ValueFactsTest, ANormsReciprocalRootIsBounded) {
  const ValueFacts any, epsilon = ValueFactsOf(Literal(DType::kF32, {1e-6}));
  const auto of = [](Op op, std::vector<ValueFacts> operands, bool equal = false) {
    return ValueFactsOf(op, {}, operands, equal, DType::kF32, DType::kF32);
  };
  const ValueFacts square = of(Op::kMul, {any, any}, /*equal=*/true);
  const ValueFacts mean = of(Op::kDiv, {of(Op::kSumReduce, {square}), epsilon});
  const ValueFacts root = of(Op::kSqrt, {of(Op::kAdd, {mean, epsilon})});
  EXPECT_TRUE(of(Op::kRecip, {root}).bounded());
  EXPECT_FALSE(of(Op::kRecip, {of(Op::kSqrt, {mean})}).bounded());
  EXPECT_FALSE(of(Op::kMul, {any, any}).nonnegative);
}

TEST(ValueFactsTest, IntegersAreBounded) {
  const ValueFacts facts = ValueFactsOf(Op::kInput, {}, {}, false, DType::kU8, DType::kU8);
  EXPECT_EQ(facts, (ValueFacts{true, true, true, false, 8}));
  const ValueFacts cast = ValueFactsOf(Op::kCast, {}, {facts}, false, DType::kU8, DType::kF32);
  EXPECT_EQ(cast, (ValueFacts{true, true, true, false, 8}));
}

ValueFacts OfParameter(DType dtype, int magnitude) {
  return ValueFactsOf(Op::kParameter, {{"magnitude", int64_t{magnitude}}}, {}, false, dtype, dtype);
}

TEST(ValueFactsTest, OfParametersByTheirMagnitude) {
  EXPECT_EQ(ValueFactsOf(Op::kParameter, {}, {}, false, DType::kF32, DType::kF32), ValueFacts());
  EXPECT_EQ(OfParameter(DType::kF32, 20), (ValueFacts{true, true, false, false, 20}));
  // Finite; no more is known.
  EXPECT_EQ(OfParameter(DType::kF32, 128), (ValueFacts{true, true, false, false}));
  EXPECT_EQ(OfParameter(DType::kF16, 20), (ValueFacts{true, true, false, false}));
}

TEST(ValueFactsTest, ProductsAndSumsKeepOrLoseTheBound) {
  const ValueFacts w = OfParameter(DType::kF32, 20), v = OfParameter(DType::kF32, 60);
  const auto of = [&](Op op, const ValueFacts& a, const ValueFacts& b,
                      std::optional<int64_t> terms = std::nullopt) {
    return ValueFactsOf(op, {}, {a, b}, false, DType::kF32, DType::kF32, terms).magnitude;
  };
  EXPECT_EQ(of(Op::kMul, w, v), 80);
  EXPECT_EQ(of(Op::kMul, v, ValueFactsOf(Literal(DType::kF32, {0x1p67}))), 127);
  EXPECT_EQ(of(Op::kMul, v, ValueFactsOf(Literal(DType::kF32, {0x1p68}))), ValueFacts::kUnknown);
  EXPECT_EQ(of(Op::kMul, w, ValueFacts()), ValueFacts::kUnknown);
  EXPECT_EQ(of(Op::kAdd, w, v), 61);
  EXPECT_EQ(of(Op::kMax, w, v), 60);
  EXPECT_EQ(of(Op::kContract, w, w, 1), 40);
  EXPECT_EQ(of(Op::kContract, w, w, 0), 40);
  EXPECT_EQ(of(Op::kContract, w, w, 384), 50);
  EXPECT_EQ(of(Op::kContract, w, w), ValueFacts::kUnknown);
  EXPECT_EQ(of(Op::kContract, v, v, 384), ValueFacts::kUnknown);
  EXPECT_EQ(of(Op::kContract, w, w, int64_t{1} << 23), ValueFacts::kUnknown);
  EXPECT_EQ(of(Op::kSumReduce, w, w, 384), 30);
  // The product of a bounded value with itself is bounded.
  EXPECT_EQ(of(Op::kMul, w, w), 40);
  EXPECT_EQ(Joined(w, v).magnitude, 20);
}

TEST(ValueFactsTest, CastsKeepTheBoundWhereTheDTypeHoldsIt) {
  const auto cast = [](const ValueFacts& x, DType from, DType to) {
    return ValueFactsOf(Op::kCast, {}, {x}, false, from, to);
  };
  EXPECT_EQ(cast(OfParameter(DType::kBF16, 20), DType::kBF16, DType::kF32).magnitude, 20);
  EXPECT_FALSE(cast(OfParameter(DType::kF32, 20), DType::kF32, DType::kF16).bounded());
  EXPECT_TRUE(cast(OfParameter(DType::kF32, 15), DType::kF32, DType::kF16).bounded());
  EXPECT_FALSE(cast(OfParameter(DType::kF64, 1024), DType::kF64, DType::kF32).bounded());
  EXPECT_TRUE(cast(OfParameter(DType::kF32, 128), DType::kF32, DType::kF64).bounded());
}

}  // namespace
}  // namespace athanor
