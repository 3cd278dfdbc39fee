#include "compiler/rules/terms/facts.h"

#include <limits>
#include <string>

#include "compiler/egraph/graph/egraph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

const Expr kB = Expr::Symbol("b");

class FactsTest : public testing::Test {
 protected:
  absl::StatusOr<egraph::ClassId> TryAdd(Op op, std::vector<egraph::ClassId> operands,
                                         const Attrs& attrs = {}) {
    return terms_.Add(ToOpId(op), language_.Intern(op, attrs), operands);
  }
  egraph::ClassId Add(Op op, std::vector<egraph::ClassId> operands, const Attrs& attrs = {}) {
    absl::StatusOr<egraph::ClassId> id = TryAdd(op, std::move(operands), attrs);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(egraph::ClassId{});
  }
  egraph::ClassId Declared(Op op, const std::string& name, Shape shape) {
    return *terms_.Add(
        ToOpId(op), language_.InternDeclaration(op, {name, {DType::kF32, std::move(shape)}}), {});
  }
  egraph::ClassId Literal(std::vector<float> values) {
    const int64_t n = static_cast<int64_t>(values.size());
    return Add(Op::kConstant, {}, {{"value", Tensor::Of<float>(DType::kF32, {n}, values)}});
  }
  egraph::ClassId Map(egraph::ClassId x, Shape shape, std::vector<Expr> coordinates,
                      std::optional<float> fill = {}) {
    Attrs attrs = {{"map", IndexMap{std::move(shape), std::move(coordinates)}}};
    if (fill) attrs["fill"] = Tensor::Of<float>(DType::kF32, {}, {*fill});
    return Add(Op::kIndexMap, {x}, attrs);
  }
  std::optional<double> Uniform(egraph::ClassId id) { return facts_.Uniform(terms_, id); }
  bool Weight(egraph::ClassId id) { return facts_.Get(terms_, id).weight; }
  bool Stored(egraph::ClassId id) { return facts_.Get(terms_, id).stored; }

  TermLanguage language_;
  FactsAnalysis facts_{&language_, {{"b", 1, 64}}};
  egraph::EGraph terms_{&language_.operators(), &facts_};
};

TEST_F(FactsTest, TypesFollowTheOpTable) {
  const egraph::ClassId x = Declared(Op::kInput, "x", {kB, 4});
  EXPECT_EQ(facts_.Type(terms_, Add(Op::kSumReduce, {x}, {{"axes", std::vector<int64_t>{1}}})),
            (TensorType{DType::kF32, {kB}}));
  // A node that the op table refuses is never added.
  absl::StatusOr<egraph::ClassId> bad = TryAdd(Op::kAdd, {x, Declared(Op::kInput, "y", {kB, 5})});
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("Add: "), absl::string_view::npos) << bad.status();
  EXPECT_FALSE(TryAdd(Op::kSoftmax, {x}, {{"axis", int64_t{2}}}).ok());
  EXPECT_FALSE(TryAdd(Op::kSoftmax, {x}).ok());
  EXPECT_FALSE(TryAdd(Op::kSoftmax, {x}, {{"axis", true}}).ok());
  // A map that may read outside, and a map over an unknown dim.
  EXPECT_FALSE(TryAdd(Op::kIndexMap, {x}, {{"map", IndexMap{{4}, {kB, 0}}}}).ok());
  EXPECT_FALSE(TryAdd(Op::kIndexMap, {x}, {{"map", IndexMap{{Expr::Symbol("c")}, {0, 0}}}}).ok());
  EXPECT_FALSE(terms_.refusals().empty());
}

TEST_F(FactsTest, OnlyEqualTypesAreUnited) {
  const egraph::ClassId x = Declared(Op::kInput, "x", {kB, 4});
  const egraph::ClassId other = Add(Op::kCast, {x}, {{"dtype", DType::kF64}});
  EXPECT_EQ(terms_.Union(x, other).status().code(), absl::StatusCode::kFailedPrecondition);
  const egraph::ClassId turned = Map(x, {4, kB}, {Expr::Axis(1), Expr::Axis(0)});
  EXPECT_FALSE(terms_.Union(x, turned).ok());
  // Two inputs are never united; an input and an equal value are.
  const egraph::ClassId y = Declared(Op::kInput, "y", {kB, 4});
  EXPECT_FALSE(terms_.Union(x, y).ok());
  const egraph::ClassId same = Map(x, {kB, 4}, {Expr::Axis(0), Expr::Axis(1)});
  EXPECT_TRUE(*terms_.Union(x, same));
  EXPECT_FALSE(terms_.Union(same, y).ok());
  terms_.Rebuild();
  EXPECT_TRUE(terms_.Verify().ok()) << terms_.Verify();
}

TEST_F(FactsTest, WeightsDependOnNoInputAndNoDim) {
  const egraph::ClassId w = Declared(Op::kParameter, "w", {4});
  EXPECT_TRUE(Weight(w));
  EXPECT_TRUE(Weight(Add(Op::kMul, {w, Literal({1, 2, 3, 4})})));
  EXPECT_FALSE(Weight(Map(w, {kB, 4}, {Expr::Axis(1)})));
  const egraph::ClassId x = Declared(Op::kInput, "x", {4});
  const egraph::ClassId sum = Add(Op::kAdd, {x, w});
  EXPECT_FALSE(Weight(x));
  EXPECT_FALSE(Weight(sum));
  EXPECT_FALSE(Weight(Declared(Op::kStateRead, "s", {4})));
  // A value equal to a weight is a weight, and so are values computed from it.
  const egraph::ClassId product = Add(Op::kMul, {sum, w});
  ASSERT_TRUE(*terms_.Union(sum, w));
  terms_.Rebuild();
  EXPECT_TRUE(Weight(sum));
  EXPECT_TRUE(Weight(product));
  EXPECT_TRUE(terms_.Verify().ok()) << terms_.Verify();
}

TEST_F(FactsTest, StoredWeightsAreThoseThatNobodyComputed) {
  const egraph::ClassId w = Declared(Op::kParameter, "w", {4});
  EXPECT_TRUE(Stored(w));
  EXPECT_TRUE(Stored(Literal({1, 2})));
  EXPECT_TRUE(Stored(Map(w, {2, 2}, {2 * Expr::Axis(0) + Expr::Axis(1)})));
  EXPECT_FALSE(Stored(Map(w, {6}, {Expr::Axis(0)}, 0)));
  EXPECT_FALSE(Stored(Map(w, {kB, 4}, {Expr::Axis(1)})));
  EXPECT_FALSE(Stored(Declared(Op::kInput, "x", {4})));
  const egraph::ClassId product = Add(Op::kMul, {w, w});
  EXPECT_FALSE(Stored(product));
  ASSERT_TRUE(*terms_.Union(product, w));
  terms_.Rebuild();
  EXPECT_TRUE(Stored(product));
  EXPECT_TRUE(terms_.Verify().ok()) << terms_.Verify();
}

TEST_F(FactsTest, UniformThroughViewsAndElementwiseOps) {
  const egraph::ClassId two = Literal({2, 2, 2});
  EXPECT_EQ(Uniform(two), 2);
  EXPECT_FALSE(Uniform(Literal({2, 2, 3})));
  EXPECT_FALSE(Uniform(Declared(Op::kInput, "x", {3})));
  const egraph::ClassId wide = Map(two, {kB, 3}, {Expr::Axis(1)});
  EXPECT_EQ(Uniform(wide), 2);
  EXPECT_EQ(Uniform(Add(Op::kMul, {wide, Add(Op::kRecip, {wide})})), 1);
  EXPECT_EQ(Uniform(Add(Op::kCast, {wide}, {{"dtype", DType::kI8}})), 2);
  EXPECT_EQ(Uniform(Add(Op::kLessThan, {wide, wide})), 0);
  EXPECT_EQ(Uniform(Map(two, {5}, {Expr::Axis(0) - 1}, 2)), 2);
  EXPECT_FALSE(Uniform(Map(two, {5}, {Expr::Axis(0) - 1}, 0)));
  // A sum differs from its elements.
  EXPECT_FALSE(Uniform(Add(Op::kSumReduce, {two}, {{"axes", std::vector<int64_t>{0}}})));
  const egraph::ClassId x = Declared(Op::kInput, "y", {3});
  const egraph::ClassId condition = Add(Op::kLessThan, {x, x});
  EXPECT_EQ(Uniform(Add(Op::kSelect, {condition, two, two})), 2);
  EXPECT_FALSE(Uniform(Add(Op::kSelect, {condition, two, x})));
  // -0 differs from 0, and all NaNs are equal.
  EXPECT_FALSE(Uniform(Literal({0.0f, -0.0f})));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(Uniform(Literal({nan, nan})).has_value());
}

TEST_F(FactsTest, DisputedNumbersAreNobodys) {
  const egraph::ClassId x = Declared(Op::kInput, "x", {1});
  const egraph::ClassId a = Literal({0.5f}), b = Literal({0.25f});
  const egraph::ClassId sum = Add(Op::kAdd, {x, a});
  ASSERT_TRUE(*terms_.Union(a, b));
  terms_.Rebuild();
  EXPECT_FALSE(Uniform(a));
  ASSERT_TRUE(*terms_.Union(x, a));
  terms_.Rebuild();
  EXPECT_FALSE(Uniform(x));
  EXPECT_FALSE(Uniform(sum));
  EXPECT_TRUE(terms_.Verify().ok()) << terms_.Verify();
}

TEST_F(FactsTest, TextShowsTypeAndWhatIsKnown) {
  EXPECT_EQ(facts_.ValueText(terms_, Literal({0.5f, 0.5f})), "f32[2] weight =0.5");
  EXPECT_EQ(facts_.ValueText(terms_, Declared(Op::kInput, "x", {kB})), "f32[b]");
}

}  // namespace
}  // namespace athanor
