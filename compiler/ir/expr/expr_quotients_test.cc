// Flat loops over axes whose extents are quotients of dims, such as image sizes after strides and
// pools. Tests that the necessary facts are proved, and that nothing false is, for all small dims.
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Height and width over dims h and w.
const std::vector<std::pair<const char*, const char*>>& Images() {
  static const auto* images = new std::vector<std::pair<const char*, const char*>>{
      {"floordiv(h, 2)", "floordiv(w, 2)"},
      {"floordiv(h + 1, 4)", "floordiv(w + 1, 4)"},
      {"floordiv(h - 1, 2) + 1", "floordiv(w - 1, 2) + 1"},
      {"2*floordiv(h, 4)", "2*floordiv(w, 4)"},
      {"floordiv(h, 3)", "w"},
      {"h + 2", "floordiv(w, 3)"},
      {"floordiv(h, 2)", "floordiv(h, 2)"},
      {"floordiv(h*w, 3)", "floordiv(w, 2)"},
      {"min(h, 5)", "floordiv(w + 2, 3)"},
  };
  return *images;
}

struct Image {
  Expr height, width;
  Bounds bounds;  // h and w in [lo, hi], n in [1, 3], f over the image, g over 3*n of them
};

Image MakeImage(size_t i, int64_t lo, int64_t hi = 7) {
  Image image{P(Images()[i].first), P(Images()[i].second), {}};
  image.bounds.Set("h", lo, hi);
  image.bounds.Set("w", lo, hi);
  image.bounds.Set("n", 1, 3);
  image.bounds.SetExtent("f", image.height * image.width);
  image.bounds.SetExtent("g", 3 * S("n") * image.height * image.width);
  return image;
}

// Calls `visit` for each point of f or g (the other is 0), for all dims.
void ForEachPlace(const Image& image, int64_t lo,
                  const std::function<void(const Expr::Env&)>& visit) {
  for (int64_t h = lo; h <= 7; ++h) {
    for (int64_t w = lo; w <= 7; ++w) {
      for (int64_t n = 1; n <= 3; ++n) {
        Expr::Env env = {{"h", h}, {"w", w}, {"n", n}, {"f", 0}, {"g", 0}};
        const int64_t area = *(image.height * image.width).Evaluate(env);
        for (env["f"] = 0; env["f"] < area; ++env["f"]) visit(env);
        if (area == 0) continue;
        env["f"] = area - 1;
        for (env["g"] = 0; env["g"] < 3 * n * area; ++env["g"]) visit(env);
      }
    }
  }
}

TEST(ExprQuotientsTest, CoordinatesOfAFlatImageAreInside) {
  for (int64_t lo : {0, 1, 4}) {
    for (size_t i = 0; i < Images().size(); ++i) {
      const Image image = MakeImage(i, lo);
      const Expr &height = image.height, &width = image.width, area = height * width;
      const Expr f = S("f"), g = S("g"), n = S("n");
      const Bounds& bounds = image.bounds;
      SCOPED_TRACE(area.ToString());
      const std::vector<std::pair<Expr, Expr>> inside = {
          {FloorDiv(f, width), height}, {Mod(f, width), width},
          {FloorDiv(g, area), 3 * n},   {Mod(FloorDiv(g, area), 3), 3},
          {FloorDiv(g, 3 * area), n},   {Mod(FloorDiv(g, width), height), height},
      };
      for (const auto& [coordinate, extent] : inside) {
        EXPECT_TRUE(bounds.NonNegative(coordinate)) << coordinate.ToString();
        EXPECT_TRUE(bounds.Less(coordinate, extent)) << coordinate.ToString();
        EXPECT_FALSE(bounds.Less(coordinate, extent - 1)) << coordinate.ToString();
        EXPECT_FALSE(bounds.NonNegative(coordinate - 1)) << coordinate.ToString();
      }
      EXPECT_TRUE(bounds.Less(width * FloorDiv(f, width), area));
      EXPECT_EQ(bounds.Simplify(FloorDiv(f, area)), Expr(0));
      EXPECT_EQ(bounds.Simplify(FloorDiv(n * area + f, area)), n);
      EXPECT_EQ(bounds.Simplify(width * FloorDiv(f, width) + Mod(f, width)), f);
    }
  }
}

// The lanes of a vector, in a loop over whole vectors and in the remainder.
TEST(ExprQuotientsTest, LanesOfAFlatImageAreInside) {
  for (size_t i = 0; i < Images().size(); ++i) {
    const Image image = MakeImage(i, 1, 40);
    const Expr &height = image.height, &width = image.width, area = height * width;
    SCOPED_TRACE(area.ToString());
    const Expr x = S("x"), at = x + S("lane");
    Bounds whole = image.bounds, rest = image.bounds;
    whole.Set("x", 0, 16 * FloorDiv(area, 16) - 16);
    whole.SetExtent("lane", 16);
    rest.Set("x", 16 * FloorDiv(area, 16), area - 1);
    rest.SetExtent("lane", area - x);
    for (const Bounds* bounds : {&whole, &rest}) {
      EXPECT_TRUE(bounds->Less(at, area));
      EXPECT_TRUE(bounds->NonNegative(FloorDiv(at, width)));
      EXPECT_TRUE(bounds->Less(FloorDiv(at, width), height));
      EXPECT_FALSE(bounds->Less(FloorDiv(at + 1, width), height));
    }
  }
}

TEST(ExprQuotientsTest, QuotientTimesDivisorIsAtMostTheDim) {
  Bounds bounds;
  bounds.Set("h", 0, 7);
  bounds.Set("w", 0, 7);
  const Expr h = S("h"), w = S("w");
  EXPECT_TRUE(bounds.NonNegative(h - 16 * FloorDiv(h, 16)));
  EXPECT_FALSE(bounds.NonNegative(h - 16 * FloorDiv(h, 16) - 1));
  EXPECT_TRUE(bounds.NonNegative(16 * FloorDiv(h, 16) + 15 - h));
  EXPECT_TRUE(bounds.NonNegative(h - 2 * FloorDiv(h, 4)));
  EXPECT_TRUE(bounds.NonNegative(FloorDiv(h, 2) - 2 * FloorDiv(h, 4)));
  EXPECT_FALSE(bounds.NonNegative(2 * FloorDiv(h, 4) - FloorDiv(h, 2)));
  EXPECT_TRUE(bounds.NonNegative(h * w - 4 * FloorDiv(h, 2) * FloorDiv(w, 2)));
  bounds.SetExtent("f", 4 * FloorDiv(h, 2) * FloorDiv(w, 2));
  EXPECT_TRUE(bounds.Less(S("f"), h * w));
  EXPECT_TRUE(bounds.Less(FloorDiv(S("f"), 2 * FloorDiv(w, 2)), h));
}

// The divisor is only known to be positive.
TEST(ExprQuotientsTest, AQuotientIsBelowWhatTheDividendIsBelowTimesTheDivisor) {
  Bounds bounds;
  bounds.Set("d", 1, INT64_MAX);
  bounds.Set("e", 1, INT64_MAX);
  const Expr d = S("d"), e = S("e");
  bounds.Set("x", -1 * d, d * e - 1);
  const Expr q = FloorDiv(S("x"), d);
  EXPECT_TRUE(bounds.Less(q, e));
  EXPECT_FALSE(bounds.Less(q, e - 1));
  EXPECT_TRUE(bounds.NonNegative(q + 1));
  EXPECT_FALSE(bounds.NonNegative(q));
}

// Windows over an image that is kept as a row of tokens, after layers that each divided its sizes.
// A window's position along the row is inside it.
TEST(ExprQuotientsTest, WindowsOfARowOfTokensAreInside) {
  const auto strided = [](const Expr& size, int64_t kernel, int64_t stride, int64_t pads) {
    return FloorDiv(size + pads - kernel, stride) + 1;
  };
  Expr height = S("h"), width = S("w");
  int questions = 0;
  const std::vector<std::tuple<int, int, int>> layers = {
      {7, 4, 6}, {3, 2, 2}, {3, 2, 2}, {2, 2, 0}};
  for (const auto& [kernel, stride, pads] : layers) {
    height = strided(height, kernel, stride, pads);
    width = strided(width, kernel, stride, pads);
    for (int64_t window : {2, 3, 4, 8}) {
      for (int64_t most : {int64_t{512}, INT64_MAX}) {
        SCOPED_TRACE(std::to_string(window) + " over " + height.ToString());
        Bounds bounds;
        bounds.Set("h", 64, most);
        bounds.Set("w", 64, most);
        bounds.SetExtent("y", strided(height, window, window, 0));
        bounds.SetExtent("x", strided(width, window, window, 0));
        bounds.SetExtent("i", window);
        bounds.SetExtent("j", window);
        const Expr place = (window * S("y") + S("i")) * width + window * S("x") + S("j");
        EXPECT_TRUE(bounds.NonNegative(place));
        EXPECT_TRUE(bounds.Less(place, height * width)) << place.ToString();
        EXPECT_FALSE(bounds.Less(place + 1, height * width)) << place.ToString();
        ++questions;
      }
    }
  }
  EXPECT_EQ(questions, 32);
}

TEST(ExprQuotientsTest, NothingFalseIsProved) {
  std::mt19937 random(23);
  const auto pick = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  };
  int proved = 0, refuted = 0, unknown = 0, simplified = 0;
  for (int round = 0; round < 800; ++round) {
    const int64_t lo = pick(0, 1);
    const Image image = MakeImage(pick(0, static_cast<int64_t>(Images().size()) - 1), lo);
    const Expr &height = image.height, &width = image.width;
    const Expr f = S("f"), g = S("g"), n = S("n");
    const std::vector<Expr> divisors = {width, height, height * width, 3 * width, width + 1, 2, 3},
                            sizes = {height, width, height * width, S("h"), S("w"), n, 1};
    const auto divisor = [&] { return divisors[pick(0, 6)]; };
    const auto flat = [&] { return (pick(0, 2) == 0 ? g : f) * pick(1, 2) + pick(-2, 2); };
    Expr part = FloorDiv(flat(), divisor());
    if (pick(0, 2) == 0) part = Mod(part, divisor());
    if (pick(0, 3) == 0) part = divisor() * part;
    Expr e = sizes[pick(0, 6)] * pick(0, 2) + pick(-1, 1) - part * pick(-2, 2);
    if (pick(0, 1) == 0) e = sizes[pick(0, 6)] - FloorDiv(flat(), divisor()) - pick(0, 1);
    const bool nonnegative = image.bounds.NonNegative(e);
    const Expr simple = image.bounds.Simplify(e);
    const std::optional<int64_t> minimum = image.bounds.Minimum(e);
    simplified += simple != e;
    std::optional<int64_t> least;
    ForEachPlace(image, lo, [&](const Expr::Env& env) {
      const std::optional<int64_t> value = e.Evaluate(env);
      if (!value) return;
      ASSERT_EQ(simple.Evaluate(env), value)
          << e.ToString() << " became " << simple.ToString() << " round " << round;
      if (!least || *value < *least) least = value;
    });
    if (HasFatalFailure()) return;
    if (!least) continue;
    if (nonnegative) ASSERT_GE(*least, 0) << e.ToString() << " round " << round;
    if (minimum) ASSERT_LE(*minimum, *least) << e.ToString() << " round " << round;
    ++(nonnegative ? proved : *least < 0 ? refuted : unknown);
  }
  std::printf("proved %d, false %d, unknown %d; simplified %d\n", proved, refuted, unknown,
              simplified);
  EXPECT_GT(proved, 100);
  EXPECT_GT(refuted, 200);
  EXPECT_GT(simplified, 8);
}

}  // namespace
}  // namespace athanor
