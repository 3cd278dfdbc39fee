// Values that rows of the algebra once got wrong: at the ends of a dtype's range, where adding a
// number rounds on purpose, and where sums cancel. Every graph that the rows of a search derive
// from these graphs must give the same values.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/value/message.h"
#include "compiler/rules/rule_rows_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

struct Case {
  std::string name;
  std::function<void(ExampleBuilder&)> make;
  std::vector<std::vector<double>> values;  // values of inputs, then parameters, repeated
  bool rewritten = false;                   // another form is found
  bool approximate = false;                 // the values differ if approximate rows are used
};

Tensor Repeated(const TensorType& type, const Expr::Env& dims, const std::vector<double>& values) {
  Tensor t = Tensor::Zeros(type.dtype, ConcreteShape(type.shape, dims).value());
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double v = values[i % values.size()];
    StoreScalar(t, i,
                IsFloat(t.dtype)    ? Scalar::Float(t.dtype, v)
                : IsSigned(t.dtype) ? Scalar::Signed(t.dtype, static_cast<int64_t>(v))
                                    : Scalar::Unsigned(t.dtype, static_cast<uint64_t>(v)));
  }
  return t;
}

std::function<void(ExampleBuilder&)> Terms(DType dtype, double s, double t) {
  return [=](ExampleBuilder& e) {
    const NodeId x = e.Input({4}, dtype);
    const NodeId once = e.x().Add(Op::kAdd, {x, e.x().FillLike(x, s)});
    e.Output(e.x().Add(Op::kAdd, {once, e.x().FillLike(x, t)}));
  };
}

void Divided(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32), r = e.Input({2}, DType::kF32);
  e.Output(e.x().Add(Op::kDiv, {x, e.x().Repeat(r, 1, {2, 4})}));
}

void DividedByWhatIsPositive(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32), r = e.Input({2}, DType::kF32);
  const NodeId least = e.x().Add(Op::kMax, {r, e.x().FillLike(r, 0x1p-126)});
  e.Output(e.x().Add(Op::kDiv, {x, e.x().Repeat(least, 1, {2, 4})}));
}

void Softmax(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32);
  const NodeId peak = e.x().Repeat(e.x().Reduce(Op::kMaxReduce, x, {1}), 1, {2, 4});
  const NodeId power = e.x().Add(Op::kExp, {e.x().Sub(x, peak)});
  const NodeId sum = e.x().Reduce(Op::kSumReduce, power, {1});
  e.Output(e.x().Add(Op::kDiv, {power, e.x().Repeat(sum, 1, {2, 4})}));
}

// Without subtracting the maximum, the sum may be subnormal.
void ExponentialsOverTheirSum(ExampleBuilder& e) {
  const NodeId power = e.x().Add(Op::kExp, {e.Input({2, 4}, DType::kF32)});
  const NodeId sum = e.x().Reduce(Op::kSumReduce, power, {1});
  e.Output(e.x().Add(Op::kDiv, {power, e.x().Repeat(sum, 1, {2, 4})}));
}

void MaskedSum(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32);
  const NodeId mask = e.x().Cast(e.Input({2}, DType::kBool), DType::kF32);
  const NodeId masked = e.x().Add(Op::kMul, {x, e.x().Repeat(mask, 1, {2, 4})});
  e.Output(e.x().Reduce(Op::kSumReduce, masked, {1}));
}

void GatedContraction(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32), z = e.Input({4, 1}, DType::kF32);
  const NodeId r = e.x().Add(Op::kTanh, {e.Input({2}, DType::kF32)});
  const NodeId gated = e.x().Add(Op::kMul, {x, e.x().Repeat(r, 1, {2, 4})});
  e.Output(e.x().Add(Op::kContract, {gated, z}, {{"spec", "mk,kn->mn"}}));
}

// A mean of numbers whose sum overflows.
void Mean(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32);
  e.Output(e.x().Reduce(Op::kSumReduce, e.x().Add(Op::kMul, {x, e.x().FillLike(x, 0.25)}), {1}));
}

std::function<void(ExampleBuilder&)> ScaledContraction(double s, bool weight) {
  return [=](ExampleBuilder& e) {
    const NodeId x = e.Input({2, 4}, DType::kF32);
    const NodeId z = weight ? e.Parameter({4, 1}, DType::kF32) : e.Input({4, 1}, DType::kF32);
    const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().FillLike(x, s)});
    e.Output(e.x().Add(Op::kContract, {scaled, z}, {{"spec", "mk,kn->mn"}}));
  };
}

NodeId Biased(ExampleBuilder& e, NodeId x, const Shape& shape) {
  const NodeId bias = e.BoundedParameter({shape.back()}, DType::kF32);
  return e.x().Add(Op::kAdd, {x, e.x().Map(bias, shape, {Expr::Axis(1)})});
}

void ShiftedContraction(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32), w = e.BoundedParameter({4, 1}, DType::kF32);
  e.Output(e.x().Add(Op::kContract, {Biased(e, x, {2, 4}), w}, {{"spec", "mk,kn->mn"}}));
}

void TwoBiases(ExampleBuilder& e) {
  const NodeId once = Biased(e, e.Input({2, 4}, DType::kF32), {2, 4});
  e.Output(Biased(e, once, {2, 4}));
}

void TwoBiasesOfAContraction(ExampleBuilder& e) {
  const NodeId x = e.Input({2, 4}, DType::kF32), w = e.BoundedParameter({4, 4}, DType::kF32);
  const NodeId y = e.x().Add(Op::kContract, {x, w}, {{"spec", "mk,kn->mn"}});
  e.Output(Biased(e, Biased(e, y, {2, 4}), {2, 4}));
}

class AlgebraEndsTest : public testing::TestWithParam<Case> {};

TEST_P(AlgebraEndsTest, EveryWayGivesTheSame) {
  const Case& c = GetParam();
  ExampleBuilder e(1, DType::kF32);
  c.make(e);
  ASSERT_TRUE(e.status().ok()) << e.status();
  std::vector<NodeId> ids = e.graph().InputIds();
  for (const NodeId n : e.graph().ParameterIds()) ids.push_back(n);
  ASSERT_EQ(ids.size(), c.values.size());
  std::vector<Tensor> values;
  for (size_t i = 0; i < ids.size(); ++i) {
    values.push_back(Repeated(e.graph().node(ids[i]).type, e.dims(), c.values[i]));
  }
  const absl::StatusOr<int> sides = CheckGraph(e.graph(), values, e.dims(), 1e-6);
  ASSERT_TRUE(sides.ok()) << sides.status();
  if (c.approximate) {
    EXPECT_FALSE(CheckGraph(e.graph(), values, e.dims(), 1e-3, {.approximate = true}).ok());
  }
  if (c.rewritten) {
    EXPECT_GT(*sides, 0);
  }
}

constexpr double k2To53 = 9007199254740992;

INSTANTIATE_TEST_SUITE_P(
    Cases, AlgebraEndsTest,
    testing::Values(
        Case{"RoundsOnPurpose", Terms(DType::kF32, 12582912.0, -12582912.0), {{1.3, -7.6, 0, 2}}},
        Case{"RoundsOnPurposeInF64", Terms(DType::kF64, 3 * k2To53, -3 * k2To53), {{1.3, -7.6}}},
        Case{"LargeAndSmallOfOneSign", Terms(DType::kF32, 12582912.0, 1.3), {{-12582913.0}}},
        Case{"SumOfNumbersOverflows", Terms(DType::kF32, 3e38, 3e38), {{-3e38, -2e38}}},
        Case{
            "ExactSumOfNumbers", Terms(DType::kF32, 0.75, 2.5), {{1.3, -3.25, 3e38, -1e-30}}, true},
        Case{"IntegersBeyondDoubles", Terms(DType::kI64, k2To53, 1), {{0, -5, k2To53}}, true},
        Case{"NarrowIntegersWrap", Terms(DType::kI8, 100, 100), {{0, 100, -128, 127}}, true},
        Case{"UnsignedIntegersWrap", Terms(DType::kU8, 200, 200), {{0, 100, 255}}, true},
        Case{"DividedBySubnormals", Divided, {{0, 1e-39, 1e-38, 1}, {1e-39, 0}}},
        Case{"DividedByWhatIsPositive",
             DividedByWhatIsPositive,
             {{0, 1e-39, 1e-38, 1}, {1e-39, 3}},
             true},
        Case{"Softmax", Softmax, {{-3e38, 0, 88, -88}}, true},
        Case{"ExponentialsOverTheirSum", ExponentialsOverTheirSum, {{-95, -90, -92, -100}}},
        Case{"MaskOverASumThatOverflows", MaskedSum, {{-3e38}, {0, 1}}},
        Case{"FactorThatKeepsAProductFinite", GatedContraction, {{1e30}, {1e30}, {0, 1e-30}}},
        Case{"MeanOfNumbersWhoseSumOverflows", Mean, {{3e38}}},
        Case{"ScaleBeforeAContraction", ScaledContraction(1e-9, false), {{1e30}, {1e9}}},
        Case{"ScaleIntoAContraction", ScaledContraction(1.5, false), {{1e30}, {1e3}}, true},
        Case{"ScaleThatAWeightCannotHold", ScaledContraction(1e9, true), {{1e-30}, {1e30}}},
        Case{"ShiftThatCancels",
             ShiftedContraction,
             {{-3.00001, 5.00001, -0.70001, 11.00002}, {1.1, 0.3, -2.7, 0.9}, {3, -5, 0.7, -11}},
             false,
             true},
        Case{"BiasThatCancels", TwoBiases, {{-1000.001}, {1000}, {1e-4}}},
        Case{"BiasesOfAContraction",
             TwoBiasesOfAContraction,
             {{1.5, -2}, {0.25}, {1, -2, 3, 4}, {0.5}},
             true},
        Case{"ScaleThatAWeightHolds", ScaledContraction(1e-9, true), {{1e30}, {1e9}}, true}),
    [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace athanor
