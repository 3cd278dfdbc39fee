#include "runtime/program/size_expr.h"

#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

v1::SizeExpr Parse(const std::string& text) {
  v1::SizeExpr expr;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expr)) << text;
  return expr;
}
v1::SizeExpr Constant(int64_t value) {
  v1::SizeExpr expr;
  expr.add_terms()->set_coefficient(value);
  return expr;
}
v1::SizeExpr Dim(const std::string& name, int64_t coefficient = 1) {
  v1::SizeExpr expr = Constant(coefficient);
  expr.mutable_terms(0)->add_factors()->set_symbol(name);
  return expr;
}
v1::SizeExpr Sum(const v1::SizeExpr& a, const v1::SizeExpr& b) {
  v1::SizeExpr sum = a;
  sum.MergeFrom(b);
  return sum;
}
v1::SizeExpr FloorDiv(const v1::SizeExpr& a, const v1::SizeExpr& b) {
  v1::SizeExpr expr = Constant(1);
  auto* pair = expr.mutable_terms(0)->add_factors()->mutable_floor_div();
  *pair->mutable_a() = a;
  *pair->mutable_b() = b;
  return expr;
}

void ExpectRefused(const std::vector<SizeDim>& dims, const v1::SizeExpr& expr,
                   const std::string& text) {
  SizeTable table(dims);
  const absl::Status status = table.Add(expr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_EQ(table.size(), 0);
  // The failure left nothing behind.
  const int id = table.Add(Constant(7)).value();
  EXPECT_EQ(table.EvaluateOne(id, std::vector<int64_t>(dims.size(), 1)), 7);
}

TEST(SizeTableTest, EvaluatesAllForms) {
  SizeTable table({{"b", 0, 100}, {"s", 1, 1000}});
  const int polynomial = table
                             .Add(Parse("terms { coefficient: 3 factors { symbol: 'b' } factors { "
                                        "symbol: 's' } } terms { coefficient: -2 factors { "
                                        "symbol: 's' } } terms { coefficient: 11 }"))
                             .value();
  const int smaller = table
                          .Add(Parse("terms { coefficient: 1 factors { min { a { terms { "
                                     "coefficient: 1 factors { symbol: 'b' } } } b { terms { "
                                     "coefficient: 1 factors { symbol: 's' } } } } } }"))
                          .value();
  const int larger = table
                         .Add(Parse("terms { coefficient: 2 factors { max { a { terms { "
                                    "coefficient: 1 factors { symbol: 'b' } } } b { terms { "
                                    "coefficient: 40 } } } } }"))
                         .value();
  const int tiles = table.Add(FloorDiv(Sum(Dim("s"), Constant(63)), Constant(64))).value();
  const int empty = table.Add(v1::SizeExpr()).value();
  std::vector<int64_t> values(table.size());
  for (int64_t b : {0, 1, 50, 100}) {
    for (int64_t s : {1, 64, 65, 1000}) {
      table.Evaluate({b, s}, absl::MakeSpan(values));
      EXPECT_EQ(values[polynomial], 3 * b * s - 2 * s + 11);
      EXPECT_EQ(values[smaller], std::min(b, s));
      EXPECT_EQ(values[larger], 2 * std::max<int64_t>(b, 40));
      EXPECT_EQ(values[tiles], (s + 63) / 64);
      EXPECT_EQ(values[empty], 0);
      EXPECT_EQ(table.EvaluateOne(polynomial, {b, s}), values[polynomial]);
    }
  }
  EXPECT_FALSE(table.constant(polynomial));
  EXPECT_TRUE(table.constant(empty));
}

TEST(SizeTableTest, DivisionRoundsDown) {
  SizeTable table({{"n", 0, 100}});
  const int id = table.Add(FloorDiv(Sum(Dim("n"), Constant(-50)), Constant(7))).value();
  EXPECT_EQ(table.EvaluateOne(id, {0}), -8);
  EXPECT_EQ(table.EvaluateOne(id, {1}), -7);
  EXPECT_EQ(table.EvaluateOne(id, {49}), -1);
  EXPECT_EQ(table.EvaluateOne(id, {50}), 0);
  EXPECT_EQ(table.EvaluateOne(id, {64}), 2);
  EXPECT_EQ(table.range(id).min, -8);
  EXPECT_EQ(table.range(id).max, 7);
}

TEST(SizeTableTest, DivisionByADimThatIsZero) {
  SizeTable table({{"n", 0, 4}});
  const int id = table.Add(FloorDiv(Constant(12), Dim("n"))).value();
  EXPECT_EQ(table.EvaluateOne(id, {0}), 0);
  EXPECT_EQ(table.EvaluateOne(id, {4}), 3);
  EXPECT_EQ(table.range(id).min, 0);
  EXPECT_EQ(table.range(id).max, 12);
  ExpectRefused({{"n", 0, 0}}, FloorDiv(Constant(12), Dim("n")), "never positive");
}

TEST(SizeTableTest, EqualExpressionsShareAnId) {
  SizeTable table({{"n", 0, 4}});
  const int first = table.Add(Dim("n", 4)).value();
  EXPECT_NE(table.Add(Dim("n", 5)).value(), first);
  EXPECT_EQ(table.Add(Dim("n", 4)).value(), first);
  EXPECT_EQ(table.size(), 2);
}

TEST(SizeTableTest, OverflowIsFoundWhenAdded) {
  const int64_t big = int64_t{1} << 40;
  v1::SizeExpr product = Dim("n");
  product.mutable_terms(0)->add_factors()->set_symbol("n");
  ExpectRefused({{"n", 0, big}}, product, "64 bits");
  ExpectRefused({{"n", 0, big}}, Dim("n", big), "64 bits");
  ExpectRefused({{"n", 0, 1}}, Sum(Constant(std::numeric_limits<int64_t>::max()), Dim("n")),
                "64 bits");
  // An intermediate result that overflows counts, even if the result would fit.
  v1::SizeExpr back =
      Sum(Sum(Constant(std::numeric_limits<int64_t>::max()), Dim("n")), Dim("n", -1));
  ExpectRefused({{"n", 0, 1}}, back, "64 bits");
  SizeTable table({{"n", 0, int64_t{1} << 31}});
  const int id = table.Add(product).value();
  EXPECT_EQ(table.EvaluateOne(id, {int64_t{1} << 31}), int64_t{1} << 62);
}

TEST(SizeTableTest, RefusesUnknownNamesAndForms) {
  ExpectRefused({{"b", 0, 1}, {"s", 0, 1}}, Dim("t"), "dim 't'");
  ExpectRefused({{"b", 0, 1}, {"s", 0, 1}}, Dim("t"), "[b, s]");
  ExpectRefused({{"b", 0, 1}}, Parse("terms { factors {} }"), "neither a dim");
}

TEST(SizeTableTest, NestingIsBounded) {
  v1::SizeExpr expr = Dim("n", 3);
  for (int i = 0; i < SizeTable::kMaxNesting; ++i) {
    // Deepest stack: a sum, a coefficient and a first argument wait per level.
    v1::SizeExpr level = FloorDiv(Constant(9), expr);
    level.mutable_terms(0)->set_coefficient(5);
    expr = Sum(Constant(1), level);
  }
  SizeTable table({{"n", 1, 3}});
  absl::StatusOr<int> id = table.Add(expr);
  ASSERT_TRUE(id.ok()) << id.status();
  int64_t expected = 6;
  for (int i = 0; i < SizeTable::kMaxNesting; ++i) {
    expected = 1 + 5 * (9 / expected);
  }
  EXPECT_EQ(table.EvaluateOne(*id, {2}), expected);
  ExpectRefused({{"n", 1, 3}}, FloorDiv(expr, Constant(1)), "deeper than 16");
}

}  // namespace
}  // namespace athanor
