#include "compiler/rules/terms/term_language.h"

#include <cstdint>
#include <string>

#include "compiler/egraph/match/pattern.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(TermLanguageTest, EveryOpIsAnOperator) {
  TermLanguage language;
  ASSERT_EQ(language.operators().size(), OpTable().size());
  for (const OpRow& row : OpTable()) {
    EXPECT_EQ(language.operators().name(ToOpId(row.op)), row.name);
    EXPECT_EQ(ToOp(ToOpId(row.op)), row.op);
    EXPECT_EQ(language.operators().spec(ToOpId(row.op)).payload.has_value(),
              IsDeclared(row.op) || !row.attrs.empty());
  }
}

TEST(TermLanguageTest, EqualAttributesHaveOneId) {
  TermLanguage language;
  const auto spec = [](const char* text) { return Attrs{{"spec", std::string(text)}}; };
  const egraph::PayloadId product = language.Intern(Op::kContract, spec("mk,kn->mn"));
  EXPECT_EQ(product, language.Intern(Op::kContract, spec("xz,zy->xy")));
  EXPECT_NE(product, language.Intern(Op::kContract, spec("mk,nk->mn")));
  EXPECT_EQ(language.Intern(Op::kGelu, {}),
            language.Intern(Op::kGelu, {{"approximate", std::string("none")}}));
  EXPECT_FALSE(language.Intern(Op::kAdd, {}).valid());
  // Sizes are compared by normal form.
  const Expr b = Expr::Symbol("b");
  const auto map = [](Expr size) {
    return Attrs{{"map", IndexMap{{std::move(size)}, {Expr::Axis(0)}}}};
  };
  EXPECT_EQ(language.Intern(Op::kIndexMap, map(2 * b + 1)),
            language.Intern(Op::kIndexMap, map(b + 1 + b)));
}

TEST(TermLanguageTest, LeavesAreKnownByContentOrName) {
  TermLanguage language;
  const auto literal = [&](int64_t elements, float last) {
    Tensor t = Tensor::Zeros(DType::kF32, {elements});
    t.data<float>()[elements - 1] = last;
    return language.Intern(Op::kConstant, {{"value", std::move(t)}});
  };
  EXPECT_EQ(literal(1000, 1), literal(1000, 1));
  EXPECT_NE(literal(1000, 1), literal(1000, 2));
  EXPECT_NE(literal(2, 1), literal(3, 1));
  const TensorType type{DType::kF32, {2}};
  const egraph::PayloadId x = language.InternDeclaration(Op::kInput, {"x", type});
  EXPECT_EQ(x, language.Intern(Node{Op::kInput, {}, {}, type, "x"}));
  EXPECT_NE(x, language.InternDeclaration(Op::kInput, {"y", type}));
  EXPECT_NE(x, language.InternDeclaration(Op::kParameter, {"x", type}));
  EXPECT_NE(x, language.InternDeclaration(Op::kInput, {"x", {DType::kF16, {2}}}));
  EXPECT_EQ(language.declaration(x).name, "x");
  EXPECT_EQ(language.declaration(x).type, type);
}

TEST(TermLanguageTest, PayloadsReadBack) {
  TermLanguage language;
  Tensor big = Tensor::Zeros(DType::kI32, {100});
  big.data<int32_t>()[7] = -1;
  const std::vector<std::pair<Op, Attrs>> cases = {
      {Op::kSoftmax, {{"axis", int64_t{1}}}},
      {Op::kContract, {{"spec", std::string("ab,bc->ac")}}},
      {Op::kIndexMap,
       {{"map", IndexMap{{Expr::Symbol("b"), 4}, {Expr::Axis(0) - 1, 0}}},
        {"fill", Tensor::Zeros(DType::kF32, {})}}},
      {Op::kConstant, {{"value", std::move(big)}}},
      {Op::kLayerNorm, {{"epsilon", 1e-5}}},
      {Op::kIota, {{"shape", Shape{3}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}}}};
  for (const auto& [op, attrs] : cases) {
    const egraph::PayloadId payload = language.Intern(op, attrs);
    const auto& text = *language.operators().spec(ToOpId(op)).payload;
    EXPECT_EQ(text.parse(text.print(payload)), payload) << text.print(payload);
    EXPECT_EQ(language.attrs(payload), attrs);
  }
  // A name that would confuse a reader that counts brackets and quotes.
  const egraph::PayloadId odd =
      language.InternDeclaration(Op::kInput, {"a\"]b\\", {DType::kF32, {Expr::Symbol("b")}}});
  egraph::Variables variables;
  const absl::StatusOr<egraph::Pattern> pattern = egraph::ParsePattern(
      language.operators(), language.operators().NodeText(ToOpId(Op::kInput), odd), &variables);
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  EXPECT_EQ(pattern->nodes[0].payload, odd);
}

TEST(TermLanguageTest, PatternsNameAttributes) {
  TermLanguage language;
  const auto parse = [&](const char* text) {
    egraph::Variables variables;
    return egraph::ParsePattern(language.operators(), text, &variables).status();
  };
  EXPECT_TRUE(parse("(Softmax[axis=1] (Mul ?x (IndexMap[?map] (Constant[?c]))))").ok());
  EXPECT_TRUE(parse("(Attention[?a] ?q ?k ?v ?rest...)").ok());
  EXPECT_TRUE(parse("(Select ?c (Cast[dtype=f32] ?x) ?y)").ok());
  for (const char* bad : {"(Softmax[axis=] ?x)", "(Add ?x)", "(Sum ?x)", "(Softmax ?x)"}) {
    EXPECT_FALSE(parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace athanor
