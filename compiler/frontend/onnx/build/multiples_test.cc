#include "compiler/frontend/onnx/build/multiples.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

const Expr h = Expr::Symbol("height"), w = Expr::Symbol("width"), n = Expr::Symbol("n");
const std::vector<Dim> kImage = {{"n", 1, 8}, {"height", 1, 512}, {"width", 20, 100}};

std::string MultiplesHint(absl::Span<const SizePair> pairs, const std::vector<Dim>& dims) {
  return MultiplesHints(&dims).Of(pairs);
}

TEST(MultiplesTest, TheLeastFactorThatMakesAPairEqual) {
  EXPECT_EQ(
      MultiplesHint({{2 * FloorDiv(h, 32), FloorDiv(h, 16)}}, kImage),
      "; they are equal for multiples of 32: give dims={\"height\": \"32*h\", \"h\": (1, 16)}");
  EXPECT_EQ(
      MultiplesHint({{3 * FloorDiv(h, 3), h}}, kImage),
      "; they are equal for multiples of 3: give dims={\"height\": \"3*h\", \"h\": (1, 170)}");
  // Downsampled by convolutions that round up, that is, round down after adding one.
  const Expr half = FloorDiv(h - 1, 2) + 1, quarter = FloorDiv(half - 1, 2) + 1;
  EXPECT_EQ(
      MultiplesHint({{4 * quarter, h}}, kImage),
      "; they are equal for multiples of 4: give dims={\"height\": \"4*h\", \"h\": (1, 128)}");
  EXPECT_EQ(MultiplesHint({{128 * FloorDiv(h, 128), h}}, kImage),
            "; they are equal for multiples of 128: give dims={\"height\": \"128*h\", "
            "\"h\": (1, 4)}");
}

TEST(MultiplesTest, AllPairsAtOnce) {
  EXPECT_EQ(
      MultiplesHints(&kImage).Of({n, 8, 2 * FloorDiv(h, 2), 4 * FloorDiv(w, 4)}, {n, 8, h, w}),
      "; they are equal for multiples of 2 and 4: give dims={\"height\": \"2*h\", "
      "\"h\": (1, 256), \"width\": \"4*w\", \"w\": (5, 25)}");
  // The factor of the second pair applies to the first pair's dim too.
  EXPECT_EQ(MultiplesHint({{2 * FloorDiv(h, 2), h}, {3 * FloorDiv(h, 3), h}}, kImage),
            "; they are equal for multiples of 6: give dims={\"height\": \"6*h\", \"h\": (1, 85)}");
  // Doubling both dims is a smaller factor than four for one.
  const std::vector<Dim> small = {{"height", 1, 8}, {"width", 1, 8}};
  EXPECT_EQ(MultiplesHints(&small).OfDivisible(h * w, 4),
            "; they are equal for multiples of 2: give dims={\"height\": \"2*h\", \"h\": (1, 4), "
            "\"width\": \"2*w\", \"w\": (1, 4)}");
  // Neither dim alone is enough.
  EXPECT_EQ(MultiplesHint({{2 * FloorDiv(h, 2) + 2 * FloorDiv(w, 2), h + w}}, kImage),
            "; they are equal for multiples of 2: give dims={\"height\": \"2*h\", "
            "\"h\": (1, 256), \"width\": \"2*w\", \"w\": (10, 50)}");
}

TEST(MultiplesTest, NothingWhereNoFactorHelpsOrNoneIsNeeded) {
  EXPECT_EQ(MultiplesHint({{h, h + 1}}, kImage), "");
  EXPECT_EQ(MultiplesHint({{h, w}}, kImage), "");
  EXPECT_EQ(MultiplesHint({{h, h}}, kImage), "");
  EXPECT_EQ(MultiplesHint({{4, 5}}, kImage), "");
  EXPECT_EQ(MultiplesHint({{64 * FloorDiv(h, 64), h}}, {{"height", 1, 63}}), "");
  EXPECT_EQ(MultiplesHint({{2 * FloorDiv(h, 2), h}, {w, 3}}, kImage), "");
  EXPECT_EQ(
      MultiplesHint({{2 * FloorDiv(Expr::Symbol("other"), 2), Expr::Symbol("other")}}, kImage), "");
}

// The number of tries is bounded, however many pairs a file has.
TEST(MultiplesTest, TriesAreFewInAll) {
  MultiplesHints hints(&kImage);
  const std::string first = hints.Of({{2 * FloorDiv(h, 2), h}});
  EXPECT_NE(first, "");
  for (int i = 1; i <= 5'000; ++i) {
    EXPECT_EQ(hints.Of({{h * w, h + w + i}}), "");
    EXPECT_EQ(hints.Of({{2 * FloorDiv(h, 2), h}}), first);  // this pair was asked about before
  }
  EXPECT_EQ(hints.tries(), MultiplesHints::kMostTries);
  EXPECT_EQ(hints.Of({{4 * FloorDiv(h, 4), h}}), "");
  // Pairs that no factor can make equal use up no tries.
  MultiplesHints constants(&kImage);
  for (int i = 1; i <= 5'000; ++i) EXPECT_EQ(constants.Of({{i, i + 1}}), "");
  EXPECT_EQ(constants.Of({{2 * FloorDiv(h, 2), h}}), first);
}

TEST(MultiplesTest, NothingIsTriedForPairsThatNobodyReads) {
  MultiplesHints hints(&kImage);
  const std::vector<SizePair> pairs(1'000, {2 * FloorDiv(h, 2), h});
  EXPECT_EQ(hints.Of(pairs), "");
  EXPECT_EQ(hints.tries(), 0);
}

TEST(MultiplesTest, NewNamesAreNoOthers) {
  const std::vector<Dim> dims = {{"h", 1, 64}, {"H2", 1, 64}, {"_x", 0, 64}};
  const Expr own = Expr::Symbol("h"), other = Expr::Symbol("H2"), odd = Expr::Symbol("_x");
  EXPECT_EQ(MultiplesHint({{2 * FloorDiv(own, 2), own}, {2 * FloorDiv(other, 2), other}}, dims),
            "; they are equal for multiples of 2: give dims={\"H2\": \"2*h2\", \"h2\": (1, 32), "
            "\"h\": \"2*h3\", \"h3\": (1, 32)}");
  EXPECT_EQ(MultiplesHints(&dims).OfDivisible(odd, 2),
            "; they are equal for multiples of 2: give dims={\"_x\": \"2*n\", \"n\": (0, 32)}");
}

}  // namespace
}  // namespace athanor::onnx
