// Random expressions against a direct evaluation of the tree they were built from.
//
//   ATHANOR_EXPRESSIONS=1000000 bazel-bin/compiler/ir/expr_random_test    // the long form
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Returns the number of expressions to try the normal form on. The other tests use a fraction of
// it, because each of their trials costs more.
uint32_t Expressions() {
  const char* asked = std::getenv("ATHANOR_EXPRESSIONS");
  return asked == nullptr ? 20'000 : static_cast<uint32_t>(std::max(400, std::atoi(asked)));
}

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
  // Mostly realistic divisors, so that rules fire: products of constants and dims, sometimes a sum.
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
  uint32_t compared = 0, built = 0, with_division = 0;
  const uint32_t seeds = Expressions();
  for (uint32_t seed = 0; seed < seeds; ++seed) {
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
      // Unnesting and merging divisors keeps positive divisors positive.
      ASSERT_TRUE(actual.has_value()) << text << " seed " << seed;
      ASSERT_EQ(*actual, *expected) << text << " seed " << seed;
      ++compared;
    }
  }
  EXPECT_GT(built, seeds / 20 * 19);
  EXPECT_GT(compared, 5 * seeds);
  EXPECT_GT(with_division, seeds / 5);
}

TEST(ExprPropertyTest, SubstituteAgreesWithEvaluate) {
  for (uint32_t seed = 0; seed < Expressions() / 5; ++seed) {
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

// Shuffled quotients of a flat loop: splitting into digits and merging again keeps the value.
TEST(ExprPropertyTest, DigitsKeepTheValue) {
  uint32_t changed = 0, proved = 0;
  const uint32_t seeds = Expressions() / 50;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
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
  std::printf("changed %u, proved %u\n", changed, proved);
  EXPECT_GT(changed, seeds / 4);
  EXPECT_GT(proved, seeds / 4);
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
  uint32_t proved = 0, refuted = 0, unknown = 0, simplified = 0, divided = 0, exact = 0;
  const uint32_t seeds = Expressions() / 20 * 3;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
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
  std::printf("proved %u, false %u, unknown %u; minimum exact %u; simplified %u of %u divisions\n",
              proved, refuted, unknown, exact, simplified, divided);
  EXPECT_GT(proved, seeds / 3);
  EXPECT_LT(unknown, proved / 4);
  EXPECT_GT(simplified, seeds / 6);
}

// Few expressions under many bounds, so that most answers are remembered ones and most keys differ
// in a range only: of the symbol, of one that its range uses, or of one that it does not use.
TEST(ExprPropertyTest, RememberedAnswersAreThoseWithoutMemory) {
  const BoundsMemory memory;
  const uint32_t seeds = Expressions() / 20;
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    Generator g(seed + 5000000);
    Bounds bounds;
    bounds.Set("b", g.Uniform(0, 1), g.Uniform(1, 3));
    bounds.Set("s", g.Uniform(0, 1), 3);
    bounds.SetExtent("i", g.Uniform(0, 1) == 0 ? S("b") : S("s"));
    bounds.SetExtent("j", S("i") + g.Uniform(1, 2));
    bounds.Set("k", 0, g.Uniform(2, 4));
    const Expr e = Build(*Generator(seed % 97).Tree(3));
    if (e.overflow()) continue;
    const Expr simple = bounds.Simplify(e);
    const bool nonnegative = bounds.NonNegative(e);
    const RememberBounds remember(memory);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(bounds.Simplify(e), simple) << e.ToString() << " seed " << seed;
      ASSERT_EQ(bounds.NonNegative(e), nonnegative) << e.ToString() << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace athanor
