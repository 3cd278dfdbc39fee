#include "compiler/ir/expr.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <ostream>
#include <random>

#include "gtest/gtest.h"

namespace athanor {

// Readable failures.
void PrintTo(const Expr& e, std::ostream* os) { *os << e.ToString(); }

namespace {

Expr S(std::string_view name) { return Expr::Symbol(name); }

Expr P(std::string_view text) {
  absl::StatusOr<Expr> e = Expr::Parse(text);
  EXPECT_TRUE(e.ok()) << e.status() << " in " << text;
  return e.ok() ? *e : Expr(-777);
}

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
  // The same class modulo the divisor has the same remainder.
  EXPECT_EQ(Mod(a - 5 * b, 7), Mod(a + 2 * b, 7));
  EXPECT_EQ(Mod(a + b * c, c), Mod(a, c));
  EXPECT_EQ(Mod(Mod(a, b * c), c), Mod(a, c));
  // Never cancels what may be zero.
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

// ---------------------------------------------------------------------------------------------
// Index maps: what reshapes and transposes must cancel to.

struct Space {
  std::vector<Expr> extents;

  Expr Flatten(const std::vector<Expr>& coordinates) const {
    Expr flat = 0;
    for (size_t i = 0; i < extents.size(); ++i) flat = flat * extents[i] + coordinates[i];
    return flat;
  }
  std::vector<Expr> Unflatten(const Expr& flat) const {
    std::vector<Expr> coordinates;
    Expr inner = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      const Expr outer = FloorDiv(flat, inner);
      coordinates.insert(coordinates.begin(), i == 0 ? outer : Mod(outer, extents[i]));
      inner *= extents[i];
    }
    return coordinates;
  }
  Expr Size() const {
    Expr size = 1;
    for (const Expr& e : extents) size *= e;
    return size;
  }
};

Bounds DimBounds() {
  Bounds bounds;
  bounds.Set("b", 1, 512);
  bounds.Set("s", 1, 512);
  return bounds;
}

TEST(ExprIndexTest, UnflattenThenFlattenIsIdentity) {
  const Expr b = S("b"), s = S("s"), f = S("f");
  for (const Space& space :
       {Space{{b, s, 384}}, Space{{b, s, 12, 32}}, Space{{b, 12, s, 32}}, Space{{b, s + 4, 7}},
        Space{{b * s, s, b}}, Space{{4, 5, 6}}, Space{{b, s * s, 3, b}}}) {
    EXPECT_EQ(space.Flatten(space.Unflatten(f)), f);
  }
}

TEST(ExprIndexTest, ReshapeAndBackCancels) {
  const Expr b = S("b"), s = S("s"), f = S("f");
  const Space whole{{b, s, 384}}, heads{{b, s, 12, 32}}, transposed{{b, 12, s, 32}};
  // [b,s,384] -> [b,s,12,32] -> [b,12,s,32] -> [b,s,12,32] -> [b,s,384] on a flat loop.
  std::vector<Expr> c = whole.Unflatten(f);
  c = heads.Unflatten(whole.Flatten(c));
  c = {c[0], c[2], c[1], c[3]};
  const Expr moved = transposed.Flatten(c);
  EXPECT_NE(moved, f);
  c = transposed.Unflatten(moved);
  c = {c[0], c[2], c[1], c[3]};
  Bounds bounds = DimBounds();
  bounds.SetExtent("f", whole.Size());
  EXPECT_EQ(bounds.Simplify(heads.Flatten(c)), f);
  EXPECT_EQ(bounds.Simplify(whole.Flatten(whole.Unflatten(heads.Flatten(c)))), f);
}

TEST(ExprIndexTest, FlattenThenUnflattenGivesTheLoops) {
  const Expr b = S("b"), s = S("s");
  const Expr i = S("i"), j = S("j"), h = S("h"), k = S("k");
  Bounds bounds = DimBounds();
  bounds.SetExtent("i", b);
  bounds.SetExtent("j", s);
  bounds.SetExtent("h", 12);
  bounds.SetExtent("k", 32);
  const Space heads{{b, s, 12, 32}}, transposed{{b, 12, s, 32}}, whole{{b, s, 384}};
  std::vector<Expr> c = heads.Unflatten(heads.Flatten({i, j, h, k}));
  EXPECT_EQ(bounds.Simplify(c[0]), i);
  EXPECT_EQ(bounds.Simplify(c[1]), j);
  EXPECT_EQ(bounds.Simplify(c[2]), h);
  EXPECT_EQ(bounds.Simplify(c[3]), k);
  c = transposed.Unflatten(transposed.Flatten({i, h, j, k}));
  EXPECT_EQ(bounds.Simplify(c[0]), i);
  EXPECT_EQ(bounds.Simplify(c[1]), h);
  EXPECT_EQ(bounds.Simplify(c[2]), j);
  EXPECT_EQ(bounds.Simplify(c[3]), k);
  c = whole.Unflatten(heads.Flatten({i, j, h, k}));
  EXPECT_EQ(bounds.Simplify(c[2]), 32 * h + k);
  // Without the bounds of k nothing of this is known.
  Bounds less = DimBounds();
  less.SetExtent("i", b);
  less.SetExtent("j", s);
  less.SetExtent("h", 12);
  EXPECT_NE(less.Simplify(heads.Unflatten(heads.Flatten({i, j, h, k}))[3]), k);
}

// Transposes by a random permutation and back, over a flat loop: every chain must cancel.
TEST(ExprIndexTest, RandomTransposesCancel) {
  std::mt19937 random(7);
  const Expr f = S("f");
  const std::vector<Expr> kExtents = {S("b"), S("s"), 12, 32, 5, S("s") + 4, 2 * S("b"), 64};
  int moved = 0;
  for (int round = 0; round < 400; ++round) {
    const int rank = 2 + static_cast<int>(random() % 3);
    Space space, permuted;
    std::vector<int> order(rank);
    for (int i = 0; i < rank; ++i) {
      space.extents.push_back(kExtents[random() % kExtents.size()]);
      order[i] = i;
    }
    std::shuffle(order.begin(), order.end(), random);
    for (int i : order) permuted.extents.push_back(space.extents[i]);
    Bounds bounds = DimBounds();
    bounds.SetExtent("f", space.Size());
    const std::vector<Expr> from = space.Unflatten(f);
    std::vector<Expr> to, back(rank);
    for (int i : order) to.push_back(from[i]);
    const Expr there = bounds.Simplify(permuted.Flatten(to));
    moved += there != f;
    to = permuted.Unflatten(there);
    for (int i = 0; i < rank; ++i) back[order[i]] = to[i];
    std::string shape;
    for (int i = 0; i < rank; ++i) {
      shape += space.extents[i].ToString() + " to axis " + std::to_string(order[i]) + "; ";
    }
    EXPECT_EQ(bounds.Simplify(space.Flatten(back)), f) << shape;
    EXPECT_TRUE(bounds.NonNegative(there)) << shape << there.ToString();
    EXPECT_TRUE(bounds.Less(there, space.Size())) << shape << there.ToString();
    EXPECT_FALSE(bounds.Less(there, space.Size() - 1)) << shape << there.ToString();
  }
  EXPECT_GT(moved, 200);
}

// The same with one loop per axis: what is read is exactly the loop variable.
TEST(ExprIndexTest, RandomReshapesGiveTheLoops) {
  std::mt19937 random(11);
  const std::vector<Expr> kExtents = {S("b"), S("s"), 12, 32, 5, S("s") + 4, 2 * S("b"), 64};
  for (int round = 0; round < 400; ++round) {
    const int rank = 2 + static_cast<int>(random() % 4);
    Bounds bounds = DimBounds();
    Space space;
    std::vector<Expr> loops;
    for (int i = 0; i < rank; ++i) {
      space.extents.push_back(kExtents[random() % kExtents.size()]);
      loops.push_back(Expr::Axis(i));
      bounds.SetExtent("$" + std::to_string(i), space.extents[i]);
    }
    // Merge two neighbours, then split all again.
    const int at = static_cast<int>(random() % (rank - 1));
    Space merged = space;
    std::vector<Expr> coordinates = loops;
    merged.extents[at] *= merged.extents[at + 1];
    merged.extents.erase(merged.extents.begin() + at + 1);
    coordinates[at] = coordinates[at] * space.extents[at + 1] + coordinates[at + 1];
    coordinates.erase(coordinates.begin() + at + 1);
    const std::vector<Expr> split = space.Unflatten(merged.Flatten(coordinates));
    for (int i = 0; i < rank; ++i) EXPECT_EQ(bounds.Simplify(split[i]), loops[i]);
  }
}

TEST(ExprIndexTest, CoordinatesOfAFlatLoopAreInBounds) {
  const Expr b = S("b"), s = S("s"), f = S("f");
  Bounds bounds = DimBounds();
  for (const Space& space : {Space{{b, s, 384}}, Space{{b, s, 12, 32}}, Space{{b, 12, s, 32}},
                             Space{{b, s + 4, 7}}, Space{{s, b, s}}}) {
    bounds.SetExtent("f", space.Size());
    const std::vector<Expr> c = space.Unflatten(f);
    for (size_t i = 0; i < c.size(); ++i) {
      EXPECT_TRUE(bounds.NonNegative(c[i])) << c[i].ToString();
      EXPECT_TRUE(bounds.Less(c[i], space.extents[i])) << c[i].ToString();
      EXPECT_FALSE(bounds.Less(c[i], space.extents[i] - 1)) << c[i].ToString();
      EXPECT_FALSE(bounds.NonNegative(c[i] - 1)) << c[i].ToString();
    }
  }
}

// ---------------------------------------------------------------------------------------------

TEST(BoundsTest, Intervals) {
  Bounds bounds = DimBounds();
  const Expr b = S("b"), s = S("s"), i = S("i"), j = S("j");
  bounds.SetExtent("i", s);
  bounds.Set("j", 0, i);
  EXPECT_EQ(bounds.Minimum(b * s - 7), -6);
  EXPECT_EQ(bounds.Maximum(b * s - 7), 512 * 512 - 7);
  EXPECT_EQ(bounds.Maximum(i), 511);
  EXPECT_EQ(bounds.Minimum(s - i), 1);
  EXPECT_EQ(bounds.Minimum(i - j), 0);
  EXPECT_EQ(bounds.Maximum(i - j), 511);
  EXPECT_EQ(bounds.Minimum(b * s - b), 0);
  EXPECT_EQ(bounds.Minimum(b * s - b - s), -1);
  EXPECT_EQ(bounds.Maximum(FloorDiv(s, 4)), 128);
  EXPECT_EQ(bounds.Maximum(Mod(s, 4)), 3);
  EXPECT_EQ(bounds.Minimum(Mod(s, 4)), 0);
  EXPECT_EQ(bounds.Minimum(S("unknown")), std::nullopt);
  EXPECT_EQ(bounds.Minimum(S("unknown") - S("unknown") + 3), 3);
  EXPECT_EQ(bounds.Minimum(Mod(S("unknown"), 5)), 0);
  EXPECT_EQ(bounds.Maximum(Mod(S("unknown"), 5)), 4);
  EXPECT_EQ(bounds.Maximum(FloorDiv(Mod(S("unknown"), s), 4)), 127);
}

// [b, 3, 4] read as [4, 3, b]: the divisor has nothing in common with the dim.
TEST(BoundsTest, FlatPositionsDivideAcrossADim) {
  Bounds bounds;
  const Expr b = Expr::Symbol("b"), x = Expr::Symbol("x"), y = Expr::Symbol("y");
  bounds.Set("b", 1, 8);
  bounds.SetExtent("x", 4);
  bounds.SetExtent("y", 3);
  bounds.SetExtent("z", b);
  const Expr row = FloorDiv(3 * x * b + y * b + Expr::Symbol("z"), 12);
  EXPECT_TRUE(bounds.Less(row, b));
  EXPECT_TRUE(bounds.NonNegative(row));
  EXPECT_FALSE(bounds.Less(row, b - 1));
  EXPECT_FALSE(bounds.NonNegative(row - 1));
}

TEST(BoundsTest, UnboundedAbove) {
  Bounds bounds;
  bounds.Set("n", 1, INT64_MAX);
  bounds.Set("m", 1, INT64_MAX);
  const Expr n = S("n"), m = S("m");
  EXPECT_TRUE(bounds.NonNegative(n * m - n));
  EXPECT_TRUE(bounds.NonNegative(n * n - n));
  EXPECT_TRUE(bounds.NonNegative(n * n * m - n * m));
  EXPECT_FALSE(bounds.NonNegative(n * m - n - 1));
  bounds.SetExtent("i", n);
  EXPECT_EQ(bounds.Simplify(FloorDiv(S("i") + m * n, n)), m);
}

TEST(BoundsTest, EmptyDimsProveNothingWrong) {
  Bounds bounds;
  bounds.Set("e", 0, 8);
  bounds.SetExtent("i", S("e"));
  EXPECT_FALSE(bounds.NonNegative(S("e") - 1));
  EXPECT_TRUE(bounds.NonNegative(S("i")));
  EXPECT_TRUE(bounds.Less(S("i"), S("e")));
  // The divisor is positive where there is anything to divide for.
  EXPECT_EQ(bounds.Simplify(FloorDiv(S("i"), S("e"))), Expr(0));
}

TEST(BoundsTest, Simplify) {
  Bounds bounds = DimBounds();
  const Expr b = S("b"), s = S("s"), i = S("i"), j = S("j"), x = S("x");
  bounds.SetExtent("i", b);
  bounds.SetExtent("j", s);
  bounds.SetExtent("x", 12);
  EXPECT_EQ(bounds.Simplify(FloorDiv(i * s + j, b * s)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(i * s + j, s)), i);
  EXPECT_EQ(bounds.Simplify(FloorDiv(32 * j + FloorDiv(x, 4), 32 * s)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(12 * j + x, 12 * b)), FloorDiv(j, b));
  EXPECT_EQ(bounds.Simplify(FloorDiv(s * S("u") + j, s * b)), FloorDiv(S("u"), b));
  EXPECT_EQ(bounds.Simplify(FloorDiv(11 - x, 12)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(8 * FloorDiv(x, 6) + Mod(x, 4), 12)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(23 - x, 12)), Expr(1));
  EXPECT_EQ(bounds.Simplify(FloorDiv(s - 1 - j, s)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(s + 2, s + 4)), Expr(0));
  EXPECT_EQ(bounds.Simplify(FloorDiv(s - 2, s)), FloorDiv(s - 2, s));  // s may be 1
  EXPECT_EQ(bounds.Simplify(FloorDiv(s - 1, s)), Expr(0));
  EXPECT_EQ(bounds.Simplify(CeilDiv(j + 1, s)), Expr(1));
  EXPECT_EQ(bounds.Simplify(FloorDiv(8 * FloorDiv(x, 8) + Mod(x, 4), 12)), Expr(0));
  EXPECT_EQ(bounds.Simplify(MinOf(i, b)), i);
  EXPECT_EQ(bounds.Simplify(MaxOf(x, 11)), Expr(11));
  EXPECT_EQ(bounds.Simplify(MaxOf(x, 10)), MaxOf(x, 10));
  EXPECT_EQ(bounds.Simplify(MinOf(MaxOf(j - 3, 0), s - 1)), MaxOf(j - 3, 0));
  EXPECT_TRUE(bounds.NonNegative(s - MinOf(s, x + 1)));
  EXPECT_TRUE(bounds.NonNegative(MaxOf(j - 3, 0)));
  EXPECT_FALSE(bounds.NonNegative(MinOf(j - 3, 0)));
  EXPECT_TRUE(bounds.ProvablyEqual(FloorDiv(i * s + j, s) * s + Mod(i * s + j, s), i * s + j));
  EXPECT_FALSE(bounds.ProvablyEqual(i, j));
}

TEST(BoundsTest, CircularBoundsEnd) {
  Bounds bounds;
  bounds.Set("a", 0, S("b"));
  bounds.Set("b", 0, S("a"));
  EXPECT_EQ(bounds.Maximum(S("a")), std::nullopt);
  EXPECT_FALSE(bounds.NonNegative(S("a") - 1));
  EXPECT_EQ(bounds.Simplify(FloorDiv(S("a"), 3)), FloorDiv(S("a"), 3));
}

// ---------------------------------------------------------------------------------------------
// Random expressions against a direct evaluation of the tree they were built from.

struct Node {
  char op;  // 'c' constant, 's' symbol, + - * / (floordiv) % m M
  int64_t value = 0;
  std::string name;
  std::unique_ptr<Node> a, b;
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}
  int64_t Uniform(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  std::unique_ptr<Node> Tree(int depth) {
    auto node = std::make_unique<Node>();
    const int64_t kind = Uniform(0, 9);
    if (depth == 0 || kind < 2) {
      if (Uniform(0, 2) == 0) {
        node->op = 'c';
        node->value = Uniform(-9, 12);
      } else {
        node->op = 's';
        node->name = kNames[Uniform(0, std::size(kNames) - 1)];
      }
      return node;
    }
    node->op = "++-**//%mM"[kind];
    node->a = Tree(depth - 1);
    node->b = node->op == '/' || node->op == '%' ? Divisor() : Tree(depth - 1);
    return node;
  }

  static constexpr const char* kNames[] = {"b", "s", "i", "j", "k"};

 private:
  // Mostly like real ones, so that rules fire: products of constants and dims, sometimes a sum.
  std::unique_ptr<Node> Divisor() {
    auto leaf = [&] {
      auto node = std::make_unique<Node>();
      if (Uniform(0, 1) == 0) {
        static constexpr int64_t kValues[] = {1, 2, 3, 4, 6, 12};
        node->op = 'c';
        node->value = kValues[Uniform(0, 5)];
      } else {
        node->op = 's';
        node->name = kNames[Uniform(0, 1)];
      }
      return node;
    };
    if (Uniform(0, 2) == 0) return leaf();
    if (Uniform(0, 7) == 0) return Tree(1);
    auto node = std::make_unique<Node>();
    node->op = Uniform(0, 3) == 0 ? '+' : '*';
    node->a = leaf();
    node->b = leaf();
    return node;
  }

  std::mt19937 random_;
};

Expr Build(const Node& n) {
  if (n.op == 'c') return n.value;
  if (n.op == 's') return S(n.name);
  const Expr a = Build(*n.a), b = Build(*n.b);
  switch (n.op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return FloorDiv(a, b);
    case '%':
      return Mod(a, b);
    case 'm':
      return MinOf(a, b);
    default:
      return MaxOf(a, b);
  }
}

std::optional<int64_t> Direct(const Node& n, const Expr::Env& env) {
  if (n.op == 'c') return n.value;
  if (n.op == 's') return env.find(n.name)->second;
  const std::optional<int64_t> a = Direct(*n.a, env), b = Direct(*n.b, env);
  if (!a || !b) return std::nullopt;
  switch (n.op) {
    case '+':
      return *a + *b;
    case '-':
      return *a - *b;
    case '*':
      return *a * *b;
    case 'm':
      return std::min(*a, *b);
    case 'M':
      return std::max(*a, *b);
    default:
      break;
  }
  if (*b <= 0) return std::nullopt;
  int64_t quotient = *a / *b;
  while (quotient * *b > *a) --quotient;
  return n.op == '/' ? quotient : *a - quotient * *b;
}

TEST(ExprPropertyTest, NormalFormHasTheValueOfTheTree) {
  int compared = 0, built = 0, with_division = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Generator g(seed);
    const auto tree = g.Tree(static_cast<int>(g.Uniform(1, 4)));
    const Expr e = Build(*tree);
    if (e.overflow()) continue;
    ++built;
    const std::string text = e.ToString();
    with_division += text.find("floordiv") != std::string::npos;
    if (text.size() < 128 << 10) ASSERT_EQ(P(text), e) << text << " seed " << seed;
    for (int trial = 0; trial < 10; ++trial) {
      Expr::Env env;
      const bool negatives = trial >= 6;
      for (const char* name : Generator::kNames) {
        env[name] = negatives ? g.Uniform(-20, 20) : g.Uniform(0, 13);
      }
      const std::optional<int64_t> expected = Direct(*tree, env);
      if (!expected) continue;
      const std::optional<int64_t> actual = e.Evaluate(env);
      // Unnesting and products of divisors keep positive divisors positive.
      ASSERT_TRUE(actual.has_value()) << text << " seed " << seed;
      ASSERT_EQ(*actual, *expected) << text << " seed " << seed;
      ++compared;
    }
  }
  EXPECT_GT(built, 19000);
  EXPECT_GT(compared, 100000);
  EXPECT_GT(with_division, 4000);
}

TEST(ExprPropertyTest, SubstituteAgreesWithEvaluate) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    Generator g(seed + 500000);
    const Expr e = Build(*g.Tree(3));
    const std::map<std::string, Expr, std::less<>> values = {
        {"i", Build(*g.Tree(2))}, {"b", S("s") * 2 + 1}, {"k", S("i")}};
    const Expr replaced = e.Substitute(values);
    if (replaced.overflow()) continue;
    for (int trial = 0; trial < 5; ++trial) {
      Expr::Env env, inner;
      for (const char* name : Generator::kNames) env[name] = inner[name] = g.Uniform(0, 9);
      bool valued = true;
      for (const auto& [name, value] : values) {
        const std::optional<int64_t> v = value.Evaluate(env);
        valued = valued && v.has_value();
        if (v) inner[name] = *v;
      }
      const std::optional<int64_t> expected = e.Evaluate(inner);
      if (!valued || !expected) continue;
      ASSERT_EQ(replaced.Evaluate(env), expected) << e.ToString() << " seed " << seed;
    }
  }
}

// Quotients of a flat loop, shuffled: what is split into digits and merged again keeps its value.
TEST(ExprPropertyTest, DigitsKeepTheValue) {
  int changed = 0, proved = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Generator g(seed + 2000000);
    const Expr f = S("f"), b = S("b"), s = S("s");
    const Expr kRadices[] = {2, 3, 4, b, s, s + 1};
    const int64_t lower = g.Uniform(0, 3) == 0 ? -7 : 0, upper = g.Uniform(0, 40);
    Bounds bounds;
    bounds.Set("b", 1, 3);
    bounds.Set("s", 1, 3);
    bounds.Set("f", lower, upper);
    auto radix = [&] { return kRadices[g.Uniform(0, 5)]; };
    auto mix = [&](const Expr& flat) {
      Expr sum = 0, inner = 1;
      for (int64_t n = g.Uniform(2, 4); n > 0; --n) {
        const Expr extent = radix();
        sum = sum * radix() + Mod(FloorDiv(flat, inner), extent);
        if (g.Uniform(0, 5) != 0) inner *= extent;
      }
      return sum;
    };
    const Expr e = FloorDiv(mix(f), radix()) * g.Uniform(-2, 3) + Mod(mix(f), radix() * radix());
    if (e.overflow()) continue;
    const Expr simple = bounds.Simplify(e);
    const bool nonnegative = bounds.NonNegative(e);
    changed += simple != e;
    proved += nonnegative;
    for (int64_t point = 0; point < 9; ++point) {
      for (int64_t value = lower; value <= upper; ++value) {
        const Expr::Env env = {{"b", point / 3 + 1}, {"s", point % 3 + 1}, {"f", value}};
        const std::optional<int64_t> expected = e.Evaluate(env);
        ASSERT_TRUE(expected.has_value());
        ASSERT_EQ(simple.Evaluate(env), expected)
            << e.ToString() << " became " << simple.ToString() << " seed " << seed;
        if (nonnegative) ASSERT_GE(*expected, 0) << e.ToString() << " seed " << seed;
      }
    }
  }
  std::printf("changed %d, proved %d\n", changed, proved);
  EXPECT_GT(changed, 100);
  EXPECT_GT(proved, 100);
}

// Calls `visit` for every point of i in [0, b), j in [0, s), k in [0, 3], b and s in [lo, 3].
template <typename Visit>
void ForEachPoint(int64_t lo, Visit visit) {
  for (int64_t b = lo; b <= 3; ++b) {
    for (int64_t s = lo; s <= 3; ++s) {
      for (int64_t i = 0; i < b; ++i) {
        for (int64_t j = 0; j < s; ++j) {
          for (int64_t k = 0; k <= 3; ++k) {
            visit(Expr::Env{{"b", b}, {"s", s}, {"i", i}, {"j", j}, {"k", k}});
          }
        }
      }
    }
  }
}

TEST(ExprPropertyTest, BoundsNeverProveWhatIsFalse) {
  int proved = 0, refuted = 0, unknown = 0, simplified = 0, divided = 0, exact = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    Generator g(seed + 1000000);
    const int64_t lo = g.Uniform(0, 1);
    Bounds bounds;
    bounds.Set("b", lo, 3);
    bounds.Set("s", lo, 3);
    bounds.SetExtent("i", S("b"));
    bounds.SetExtent("j", S("s"));
    bounds.Set("k", 0, 3);
    const Expr e = Build(*g.Tree(static_cast<int>(g.Uniform(2, 4))));
    if (e.overflow()) continue;
    const std::optional<int64_t> minimum = bounds.Minimum(e), maximum = bounds.Maximum(e);
    const bool nonnegative = bounds.NonNegative(e);
    const Expr simple = bounds.Simplify(e);
    simplified += simple != e;
    divided += e.ToString().find("floordiv") != std::string::npos;
    std::optional<int64_t> least, greatest;
    ForEachPoint(lo, [&](const Expr::Env& env) {
      const std::optional<int64_t> value = e.Evaluate(env);
      if (!value) return;
      ASSERT_EQ(simple.Evaluate(env), value)
          << e.ToString() << " became " << simple.ToString() << " seed " << seed;
      least = std::min(*value, least.value_or(*value));
      greatest = std::max(*value, greatest.value_or(*value));
    });
    if (HasFatalFailure()) return;
    if (!least) continue;
    if (minimum) ASSERT_LE(*minimum, *least) << e.ToString() << " seed " << seed;
    if (maximum) ASSERT_GE(*maximum, *greatest) << e.ToString() << " seed " << seed;
    if (nonnegative) ASSERT_GE(*least, 0) << e.ToString() << " seed " << seed;
    exact += minimum == least;
    ++(nonnegative ? proved : *least < 0 ? refuted : unknown);
  }
  std::printf("proved %d, false %d, unknown %d; minimum exact %d; simplified %d of %d divisions\n",
              proved, refuted, unknown, exact, simplified, divided);
  EXPECT_GT(proved, 1000);
  EXPECT_LT(unknown, proved / 4);
  EXPECT_GT(simplified, 500);
}

}  // namespace
}  // namespace athanor
