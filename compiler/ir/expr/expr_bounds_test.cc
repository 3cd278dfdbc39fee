// Proofs and simplifications from bounds, and the cancelling of reshapes and transposes in index
// maps.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

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
  // Without the bounds of k, none of this can be proved.
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

// Same with one loop per axis: the index that is read is exactly the loop variable.
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
    // Merges two neighbours, then splits all axes again.
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
  // The divisor is positive at every point that exists.
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

TEST(RememberBoundsTest, MoreThanTheMemoryHolds) {
  const BoundsMemory memory;
  const RememberBounds remember(memory);
  Bounds bounds;
  bounds.Set("x", 0, 2);
  for (int64_t i = 0; i < 40'000; ++i) {
    ASSERT_EQ(bounds.Simplify(FloorDiv(S("x") + 3 * i, 3)), Expr(i));
    ASSERT_EQ(bounds.NonNegative(FloorDiv(S("x") + i, 7) - 5'000), i >= 35'000) << i;
  }
}

TEST(RememberBoundsTest, TheOuterMemoryServesInside) {
  const BoundsMemory memory;
  Bounds bounds;
  bounds.Set("x", 0, 2);
  const Expr e = FloorDiv(S("x"), 3);
  const RememberBounds remember(memory);
  {
    const BoundsMemory other;
    const RememberBounds inside(other);
    EXPECT_EQ(bounds.Simplify(e), Expr(0));
  }
  EXPECT_EQ(bounds.Simplify(e), Expr(0));
  bounds.Set("x", 0, 3);
  EXPECT_EQ(bounds.Simplify(e), e);
}

}  // namespace
}  // namespace athanor
