#include "compiler/ir/expr/expr.h"

#include <string>

#include "compiler/ir/expr/expr_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(ExprTest, NormalForm) {
  const Expr a = S("a"), b = S("b");
  EXPECT_EQ((a + b) * (a - b), a * a - b * b);
  EXPECT_EQ((a + 1) * (a + 1), a * a + 2 * a + 1);
  EXPECT_EQ(a - a, Expr(0));
  EXPECT_TRUE((a - a).terms().empty());
  EXPECT_EQ((2 * b + 3).ToString(), "2*b + 3");
  EXPECT_EQ((b * a - 1 - b * b * a).ToString(), "-a*b*b + a*b - 1");
  EXPECT_EQ((3 - a).ToString(), "-a + 3");
  EXPECT_EQ(Expr(0).ToString(), "0");
  EXPECT_EQ((2 * b + 3).Evaluate({{"b", 4}}), 11);
  EXPECT_EQ(a.symbol(), "a");
  EXPECT_EQ((2 * a).symbol(), std::nullopt);
  EXPECT_EQ((a + 1).symbol(), std::nullopt);
  EXPECT_EQ(FloorDiv(a, 2).symbol(), std::nullopt);
  EXPECT_EQ(Expr(7).constant(), 7);
  EXPECT_EQ(a.constant(), std::nullopt);
  EXPECT_EQ(Expr::Axis(3).symbol(), "$3");
  EXPECT_TRUE(a < b || b < a);
  EXPECT_FALSE(a < a);
}

TEST(ExprTest, SymbolNames) {
  EXPECT_TRUE(Expr::IsSymbolName("batch_size.1"));
  EXPECT_TRUE(Expr::IsSymbolName("$0"));
  EXPECT_TRUE(Expr::IsSymbolName(std::string(256, 'x')));
  for (std::string_view bad : {"", "1a", "a b", "a,b", "a)", "\xc3\xa9", "a-b", ".a"}) {
    EXPECT_FALSE(Expr::IsSymbolName(bad)) << bad;
    EXPECT_TRUE(Expr::Symbol(bad).overflow()) << bad;
  }
  EXPECT_TRUE(Expr::Symbol(std::string(257, 'x')).overflow());
}

TEST(ExprTest, FloorDivConstants) {
  EXPECT_EQ(FloorDiv(7, 2), Expr(3));
  EXPECT_EQ(FloorDiv(-7, 2), Expr(-4));
  EXPECT_EQ(Mod(-7, 2), Expr(1));
  EXPECT_EQ(CeilDiv(7, 2), Expr(4));
  EXPECT_EQ(CeilDiv(-7, 2), Expr(-3));
  EXPECT_EQ(FloorDiv(INT64_MIN, 1), Expr(INT64_MIN));
  EXPECT_EQ(FloorDiv(INT64_MIN, INT64_MAX), Expr(-2));
  EXPECT_EQ(FloorDiv(S("a"), 1), S("a"));
  EXPECT_EQ(FloorDiv(0, S("a")), Expr(0));
}

TEST(ExprTest, FloorDivTakesOutWhatDivides) {
  const Expr a = S("a"), b = S("b"), c = S("c"), x = S("x");
  EXPECT_EQ(FloorDiv(4 * a + 3, 4), a);
  EXPECT_EQ(FloorDiv(4 * a + b, 4), a + FloorDiv(b, 4));
  EXPECT_EQ(FloorDiv(7 * a, 3), 2 * a + FloorDiv(a, 3));
  EXPECT_EQ(FloorDiv(3 * a + 1, 4), a + FloorDiv(1 - a, 4));
  EXPECT_EQ(FloorDiv(a * b * c + x, b * c), a + FloorDiv(x, b * c));
  EXPECT_EQ(FloorDiv(x * (a + 2) + b, a + 2), x + FloorDiv(b, a + 2));
  EXPECT_EQ(FloorDiv(x * (a + 2 * b), a + 2 * b), x);
  EXPECT_EQ(FloorDiv(a * b - 2 * b + a - 2, a - 2), b + 1);
  EXPECT_EQ(FloorDiv((10 - a) * b, 10 - a), b);
  EXPECT_EQ(FloorDiv(FloorDiv(a, 4), 3), FloorDiv(a, 12));
  EXPECT_EQ(FloorDiv(FloorDiv(a, b), c), FloorDiv(a, b * c));
  EXPECT_EQ(FloorDiv(FloorDiv(a, b) + x, c), FloorDiv(a + b * x, b * c));
  EXPECT_EQ(FloorDiv(6 * a + 5, 9), FloorDiv(2 * a + 1, 3));
  EXPECT_EQ(FloorDiv(2 * a + 1, 2 * b), FloorDiv(a, b));
  EXPECT_EQ(CeilDiv(a * b, b), a + FloorDiv(b - 1, b));
  // Arguments that are congruent modulo the divisor have the same remainder.
  EXPECT_EQ(Mod(a - 5 * b, 7), Mod(a + 2 * b, 7));
  EXPECT_EQ(Mod(a + b * c, c), Mod(a, c));
  EXPECT_EQ(Mod(Mod(a, b * c), c), Mod(a, c));
  // Never cancels a factor that may be zero.
  EXPECT_EQ(FloorDiv(a, a), Expr(1));
  EXPECT_NE(FloorDiv(a * b, a * c), FloorDiv(b, c));
}

TEST(ExprTest, DivisorThatIsNotPositiveHasNoValue) {
  for (int divisor : {0, -3}) {
    const Expr e = FloorDiv(S("a"), divisor);
    EXPECT_FALSE(e.overflow());
    EXPECT_EQ(e.Evaluate({{"a", 5}}), std::nullopt);
    EXPECT_EQ(P(e.ToString()), e);
    EXPECT_EQ(FloorDiv(7, divisor).Evaluate({}), std::nullopt);
    EXPECT_EQ(Bounds().Simplify(e), e);
    EXPECT_EQ(Bounds().Minimum(e), std::nullopt);
  }
  EXPECT_EQ(FloorDiv(S("a"), S("d")).Evaluate({{"a", 5}, {"d", 0}}), std::nullopt);
  EXPECT_EQ(FloorDiv(S("a"), S("d")).Evaluate({{"a", 5}, {"d", -1}}), std::nullopt);
  EXPECT_EQ(FloorDiv(S("a"), S("d")).Evaluate({{"a", -5}, {"d", 2}}), -3);
}

TEST(ExprTest, MinMax) {
  const Expr a = S("a"), b = S("b");
  EXPECT_EQ(MinOf(a, a + 1), a);
  EXPECT_EQ(MaxOf(a, a + 1), a + 1);
  EXPECT_EQ(MinOf(a, b), MinOf(b, a));
  EXPECT_EQ(MinOf(a, MinOf(a, b)), MinOf(a, b));
  EXPECT_EQ(MaxOf(MaxOf(a, b), b), MaxOf(a, b));
  EXPECT_NE(MinOf(a, b), MaxOf(a, b));
  EXPECT_EQ(MinOf(a, b).Evaluate({{"a", 3}, {"b", -4}}), -4);
  EXPECT_EQ(MaxOf(a, b).Evaluate({{"a", 3}, {"b", -4}}), 3);
  EXPECT_EQ(MinOf(a, b).ToString(), "min(a, b)");
}

TEST(ExprTest, OverflowPoisons) {
  const Expr a = S("a");
  const Expr big = Expr(INT64_MAX) * a;
  EXPECT_FALSE(big.overflow());
  const Expr over = big + a;
  EXPECT_TRUE(over.overflow());
  EXPECT_TRUE((over - over).overflow());
  EXPECT_TRUE((over * 0).overflow());
  EXPECT_TRUE(FloorDiv(over, 2).overflow());
  EXPECT_TRUE(FloorDiv(a, over).overflow());
  EXPECT_TRUE(MinOf(over, a).overflow());
  EXPECT_TRUE(Mod(a, over).overflow());
  EXPECT_TRUE(a.Substitute({{"a", over}}).overflow());
  EXPECT_EQ(over.constant(), std::nullopt);
  EXPECT_EQ(over.Evaluate({{"a", 0}}), std::nullopt);
  EXPECT_FALSE(over.AsAffine("a").has_value());
  EXPECT_FALSE(over == Expr(0));
  EXPECT_FALSE(Expr::Parse(over.ToString()).ok());
  Bounds bounds;
  bounds.Set("a", 0, 1);
  EXPECT_FALSE(bounds.NonNegative(over));
  EXPECT_FALSE(bounds.ProvablyEqual(over, over));
  EXPECT_EQ(bounds.Minimum(over), std::nullopt);
}

TEST(ExprTest, SizeLimitsPoison) {
  Expr sum = 0, power = 1;
  for (int i = 0; i < 100; ++i) sum += S("x" + std::to_string(i));
  EXPECT_FALSE((sum * S("y")).overflow());
  EXPECT_TRUE((sum * sum).overflow());  // 5050 terms
  for (int i = 0; i < 64; ++i) power *= S("x");
  EXPECT_FALSE(power.overflow());
  EXPECT_TRUE((power * S("x")).overflow());
  EXPECT_TRUE(((power + 1) * (S("x") + 1)).overflow());
  Expr nested = S("a");
  for (int i = 0; i < 64 && !nested.overflow(); ++i) {
    nested = Mod(nested * S("b"), S("c") + i);
  }
  EXPECT_TRUE(nested.overflow());
}

TEST(ExprTest, EvaluateReportsWhatLeavesTheRange) {
  const Expr a = S("a"), b = S("b");
  EXPECT_EQ((a * b).Evaluate({{"a", INT64_MAX}, {"b", 2}}), std::nullopt);
  EXPECT_EQ((a + b).Evaluate({{"a", INT64_MAX}, {"b", 1}}), std::nullopt);
  EXPECT_EQ((2 * a - 2 * b).Evaluate({{"a", INT64_MAX}, {"b", INT64_MAX}}), 0);
  EXPECT_EQ((a + b).Evaluate({{"a", 1}}), std::nullopt);
  EXPECT_EQ(Expr(INT64_MIN).Evaluate({}), INT64_MIN);
}

TEST(ExprTest, SubstituteIsSimultaneous) {
  const Expr a = S("a"), b = S("b");
  EXPECT_EQ((a - 2 * b).Substitute({{"a", b}, {"b", a}}), b - 2 * a);
  EXPECT_EQ(FloorDiv(a, b).Substitute({{"a", 4 * b + 4}, {"b", Expr(4)}}), b + 1);
  EXPECT_EQ((a * a * b).Substitute({{"a", b + 1}}), b * b * b + 2 * b * b + b);
  EXPECT_EQ(MinOf(a, b).Substitute({{"a", b - 3}}), b - 3);
  EXPECT_EQ((a + 1).Substitute({{"z", b}}), a + 1);
}

TEST(ExprTest, AsAffine) {
  const Expr a = S("a"), b = S("b"), i = S("i");
  auto affine = (3 * i * b + a * i + FloorDiv(a, b) - 2).AsAffine("i");
  ASSERT_TRUE(affine.has_value());
  EXPECT_EQ(affine->stride, 3 * b + a);
  EXPECT_EQ(affine->base, FloorDiv(a, b) - 2);
  affine = (a + 1).AsAffine("i");
  ASSERT_TRUE(affine.has_value());
  EXPECT_EQ(affine->stride, Expr(0));
  EXPECT_FALSE((i * i).AsAffine("i").has_value());
  EXPECT_FALSE(FloorDiv(i, 3).AsAffine("i").has_value());
  EXPECT_FALSE((a * MinOf(i, b)).AsAffine("i").has_value());
  EXPECT_FALSE(FloorDiv(a, MaxOf(i, b)).AsAffine("i").has_value());
}

TEST(ExprTest, CollectSymbols) {
  const Expr e = S("a") * FloorDiv(S("b") + MinOf(S("c"), S("d")), 3) + 1;
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  EXPECT_EQ(symbols, (std::set<std::string>{"a", "b", "c", "d"}));
  EXPECT_TRUE(e.Uses("d"));
  EXPECT_FALSE(e.Uses("e"));
}

TEST(ExprParseTest, Reads) {
  const Expr a = S("a"), b = S("b");
  EXPECT_EQ(P("2*b + 3"), 2 * b + 3);
  EXPECT_EQ(P(" - a*( b+1 )*-2"), 2 * a * b + 2 * a);
  EXPECT_EQ(P("floordiv($0, 4)"), FloorDiv(Expr::Axis(0), 4));
  EXPECT_EQ(P("mod(a,b) + ceildiv(a, 2)"), Mod(a, b) + CeilDiv(a, 2));
  EXPECT_EQ(P("min(max(a, 0), b)"), MinOf(MaxOf(a, 0), b));
  EXPECT_EQ(P("min + max*floordiv"), S("min") + S("max") * S("floordiv"));
  EXPECT_EQ(P("-9223372036854775808"), Expr(INT64_MIN));
  EXPECT_EQ(P((Expr(INT64_MIN) * a - b).ToString()), Expr(INT64_MIN) * a - b);
  EXPECT_EQ(P("a - 9223372036854775808*b"), a + Expr(INT64_MIN) * b);
}

TEST(ExprParseTest, RefusesWithAPosition) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"", "at byte 0"},
      {"a +", "at byte 3"},
      {"a b", "at byte 2"},
      {"2a", "at byte 1"},
      {"(a", "expected ')' at byte 2"},
      {"floordiv(a)", "expected ',' at byte 10"},
      {"floordiv(a, b", "expected ')'"},
      {"foo(a, b)", "at byte 0"},
      {"9223372036854775808", "64 bits"},
      {"9223372036854775807 + 1", "too large"},
      {"a / b", "at byte 2"},
      {"a*\xff", "at byte 2"},
      {"1 +* 2", "at byte 3"},
      {std::string_view("a\0b", 3), "at byte 1"},
      {std::string_view("\0", 1), "at byte 0"},
  };
  for (const auto& [text, message] : kCases) {
    absl::StatusOr<Expr> e = Expr::Parse(text);
    ASSERT_FALSE(e.ok()) << text;
    EXPECT_EQ(e.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(e.status().message()).find(message), std::string::npos)
        << text << ": " << e.status();
  }
}

TEST(ExprParseTest, LimitsWork) {
  auto nested = [](int n) { return std::string(n, '(') + "a" + std::string(n, ')'); };
  EXPECT_TRUE(Expr::Parse(nested(64)).ok());
  EXPECT_FALSE(Expr::Parse(nested(65)).ok());
  EXPECT_FALSE(Expr::Parse(nested(8000)).ok());
  EXPECT_FALSE(Expr::Parse(std::string(1 << 20, 'a')).ok());
  EXPECT_FALSE(Expr::Parse("a" + std::string(1 << 20, ' ')).ok());
  EXPECT_TRUE(Expr::Parse(std::string(16000, '-') + "a").ok());
  std::string product = "(a+b+c+d)", sum = "a";
  for (int i = 0; i < 1600; ++i) product += "*(a+b+c+d)";
  EXPECT_FALSE(Expr::Parse(product).ok());
  std::string work = "(a+b+c+1)*(d+e+f+1)*(g+h+i+1)*(j+k+l+1)*(m+n+o+1)*(p+q+r+1)";
  while (work.size() < 16000) work += "*-1";
  EXPECT_FALSE(Expr::Parse(work).ok());
  std::string mods = "a";
  for (int i = 0; i < 60; ++i) mods = "mod(" + mods + "*b, c + " + std::to_string(i) + ")";
  EXPECT_FALSE(Expr::Parse(mods).ok());
}

}  // namespace
}  // namespace athanor
