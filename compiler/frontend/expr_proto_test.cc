#include "compiler/frontend/expr_proto.h"

#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

v1::SizeExpr Symbol(const std::string& name) {
  v1::SizeExpr message;
  v1::SizeExpr::Term* term = message.add_terms();
  term->set_coefficient(1);
  term->add_factors()->set_symbol(name);
  return message;
}

v1::SizeExpr Constant(int64_t value) {
  v1::SizeExpr message;
  message.add_terms()->set_coefficient(value);
  return message;
}

v1::SizeExpr FloorDivOf(const v1::SizeExpr& a, const v1::SizeExpr& b) {
  v1::SizeExpr message;
  v1::SizeExpr::Term* term = message.add_terms();
  term->set_coefficient(1);
  v1::SizeExpr::Pair* pair = term->add_factors()->mutable_floor_div();
  *pair->mutable_a() = a;
  *pair->mutable_b() = b;
  return message;
}

std::string ErrorOf(const v1::SizeExpr& message, const ExprLimits& limits = {}) {
  absl::StatusOr<Expr> expr = ExprFromProto(message, limits);
  if (expr.ok()) return "no error: " + expr->ToString();
  EXPECT_EQ(expr.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(expr.status().message());
}

TEST(ExprProtoTest, EveryKindOfExpressionSurvivesTheRoundTrip) {
  for (const char* text :
       {"0", "7", "-3", "b", "$2", "2*b + 3", "b*b*s - 4*s", "floordiv(b, 4)",
        "min(b, 7) + max(s, b*2)", "3*floordiv($0 + 5, s)*b", "floordiv(min(b, s), 3)",
        "9223372036854775807*b", "-9223372036854775808"}) {
    const Expr expr = Expr::Parse(text).value();
    absl::StatusOr<Expr> back = ExprFromProto(ExprToProto(expr));
    ASSERT_TRUE(back.ok()) << text << ": " << back.status();
    EXPECT_EQ(*back, expr) << text;
  }
}

TEST(ExprProtoTest, NoTermsIsZero) {
  EXPECT_TRUE(ExprFromProto(v1::SizeExpr()).value().IsConstant(0));
}

TEST(ExprProtoTest, TermsNeedNotBeInNormalForm) {
  v1::SizeExpr message = Symbol("b");
  *message.add_terms() = Symbol("b").terms(0);
  *message.add_terms() = Constant(5).terms(0);
  *message.add_terms() = Constant(-5).terms(0);
  EXPECT_EQ(ExprFromProto(message).value(), 2 * Expr::Symbol("b"));
}

TEST(ExprProtoTest, RefusesFactorsWithoutKindOrOperands) {
  v1::SizeExpr no_kind;
  no_kind.add_terms()->add_factors();
  EXPECT_NE(ErrorOf(no_kind).find("a factor without a kind"), std::string::npos);
  v1::SizeExpr no_operand;
  no_operand.add_terms()->add_factors()->mutable_min()->mutable_a();
  EXPECT_NE(ErrorOf(no_operand).find("without both of its operands"), std::string::npos);
}

TEST(ExprProtoTest, RefusesNamesThatNoSymbolHas) {
  for (const char* name : {"", "2b", "a*b", "a b", "a(", "\xff", "a\n"}) {
    EXPECT_NE(ErrorOf(Symbol(name)).find("must be a letter"), std::string::npos) << name;
  }
}

TEST(ExprProtoTest, RefusesDeepNesting) {
  v1::SizeExpr deep = Symbol("b");
  for (int i = 0; i < 16; ++i) deep = FloorDivOf(deep, Symbol("c"));
  EXPECT_TRUE(ExprFromProto(deep).ok()) << ErrorOf(deep);
  deep = FloorDivOf(deep, Symbol("c"));
  EXPECT_NE(ErrorOf(deep).find("nested deeper than 16 levels"), std::string::npos);
}

TEST(ExprProtoTest, RefusesTooManyTerms) {
  v1::SizeExpr wide;
  for (int i = 0; i < 256; ++i) *wide.add_terms() = Constant(1).terms(0);
  EXPECT_TRUE(ExprFromProto(wide).value().IsConstant(256));
  *wide.add_terms() = Constant(1).terms(0);
  EXPECT_NE(ErrorOf(wide).find("more than 256 terms and factors"), std::string::npos);
}

TEST(ExprProtoTest, RefusesCoefficientsBeyond64Bits) {
  v1::SizeExpr sum = Constant(INT64_MAX);
  *sum.add_terms() = Constant(1).terms(0);
  EXPECT_NE(ErrorOf(sum).find("must fit in 64 bits"), std::string::npos);
}

// (a0 + ... + a19)^6 would have 177,100 terms; floordiv by 1 makes a sum a factor.
TEST(ExprProtoTest, RefusesProductsThatExplode) {
  v1::SizeExpr sum;
  for (int i = 0; i < 20; ++i) *sum.add_terms() = Symbol("a" + std::to_string(i)).terms(0);
  v1::SizeExpr power;
  v1::SizeExpr::Term* term = power.add_terms();
  term->set_coefficient(1);
  for (int i = 0; i < 6; ++i) {
    v1::SizeExpr::Pair* pair = term->add_factors()->mutable_floor_div();
    *pair->mutable_a() = sum;
    *pair->mutable_b() = Constant(1);
  }
  EXPECT_NE(ErrorOf(power, {.max_depth = 16, .max_size = 1000}).find("at most 1000 terms"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor
