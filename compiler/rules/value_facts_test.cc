#include "compiler/rules/value_facts.h"

#include <cmath>
#include <limits>
#include <vector>

#include "compiler/ir/graph.h"
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

// Whether what is said of a value holds for these numbers.
bool Agrees(const ValueFacts& said, const Tensor& value) {
  return Joined(said, ValueFactsOf(value)) == ValueFactsOf(value);
}

TEST(ValueFactsTest, OfLiterals) {
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {1, 2, kNaN})), (ValueFacts{true, true, true, true}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {1, 0})), (ValueFacts{true, true, true, false}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {1, 1e-40})), (ValueFacts{true, true, true, false}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF32, {-0.0})), (ValueFacts{true, true, true, false}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF64, {kInf, -1})),
            (ValueFacts{false, true, false, false}));
  EXPECT_EQ(ValueFactsOf(Literal(DType::kF16, {-kInf})), (ValueFacts{true, false, false, false}));
}

// Of every op, over every pair of operands from sets of numbers with the same facts: what is said
// of the result holds for every result.
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
  EXPECT_EQ(facts, (ValueFacts{true, true, true, false}));
  const ValueFacts cast = ValueFactsOf(Op::kCast, {}, {facts}, false, DType::kU8, DType::kF32);
  EXPECT_EQ(cast, (ValueFacts{true, true, true, false}));
}

}  // namespace
}  // namespace athanor
