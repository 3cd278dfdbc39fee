#include "compiler/codegen/kir/index_bits.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::kir {
namespace {

using Env = Expr::Env;

// Computes in i32, in the order in which the printer writes; nullopt if anything overflows.
std::optional<int32_t> Narrow(const Expr& e, const Env& env);

std::optional<int32_t> Narrow(const Atom& atom, const Env& env) {
  if (atom.kind == Atom::Kind::kSymbol) {
    const int64_t value = env.at(atom.symbol);
    return value == static_cast<int32_t>(value) ? std::optional<int32_t>(value) : std::nullopt;
  }
  const std::optional<int32_t> a = Narrow(atom.args[0], env), b = Narrow(atom.args[1], env);
  if (!a || !b) return std::nullopt;
  if (atom.kind == Atom::Kind::kMin) return std::min(*a, *b);
  if (atom.kind == Atom::Kind::kMax) return std::max(*a, *b);
  const int32_t divisor = std::max(*b, 1);
  return *a / divisor - (*a % divisor < 0);
}

std::optional<int32_t> Narrow(const Expr& e, const Env& env) {
  int32_t sum = 0;
  for (const Expr::Term& term : e.terms()) {
    int32_t product;
    if (__builtin_add_overflow(term.coefficient, 0, &product)) return std::nullopt;
    for (const AtomRef& atom : term.monomial) {
      const std::optional<int32_t> factor = Narrow(*atom, env);
      if (!factor || __builtin_mul_overflow(product, *factor, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

class RandomIndices {
 public:
  explicit RandomIndices(uint32_t seed) : random_(seed) {
    for (const char* name : {"a", "b", "c"}) {
      const int64_t lower = Number(6) - Number(6), upper = lower + Number(18);
      ranges_.push_back({name, lower, upper});
      bounds_.Set(name, lower, upper);
    }
  }

  Expr Make(int depth) {
    Expr e = Number(12) - Number(12);
    for (int terms = Below(4); terms > 0; --terms) {
      Expr term = Number(16) - Number(12);
      for (int factors = Below(3); factors >= 0; --factors) term *= Factor(depth);
      e += term;
    }
    return e;
  }

  // A point within the bounds, at their ends more often than not.
  Env Point() {
    Env env;
    for (const Range& r : ranges_) {
      const int at = Below(4);
      env[r.name] = at == 0 ? r.lower
                    : at == 1
                        ? r.upper
                        : r.lower + static_cast<int64_t>(
                                        random_() % static_cast<uint64_t>(r.upper - r.lower + 1));
    }
    return env;
  }

  const Bounds& bounds() const { return bounds_; }

 private:
  struct Range {
    std::string name;
    int64_t lower, upper;
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  // Up to so many bits.
  int64_t Number(int bits) {
    return static_cast<int64_t>(random_() & ((uint64_t{1} << Below(bits + 1)) - 1));
  }
  Expr Factor(int depth) {
    if (depth == 0 || Below(3) != 0) return Expr::Symbol(ranges_[Below(3)].name);
    const Expr a = Make(depth - 1), b = Make(depth - 1);
    const int kind = Below(3);
    return kind == 0 ? MinOf(a, b) : kind == 1 ? MaxOf(a, b) : FloorDiv(a, MaxOf(b, 1));
  }

  std::mt19937_64 random_;
  std::vector<Range> ranges_;
  Bounds bounds_;
};

TEST(IndexBits, WhatFitsNeverOverflows) {
  int fits = 0, overflows = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    RandomIndices random(seed);
    Stmt s{.opcode = Opcode::kIndex, .type = {DType::kI64, 1}, .index = random.Make(2)};
    const bool fit = FitsI32(s, random.bounds());
    fits += fit;
    bool overflow = false;
    for (int point = 0; point < 20; ++point) {
      const Env env = random.Point();
      const std::optional<int32_t> narrow = Narrow(s.index, env);
      overflow |= !narrow;
      if (!fit) continue;
      ASSERT_TRUE(narrow) << s.index.ToString() << ", seed " << seed;
      ASSERT_EQ(*narrow, s.index.Evaluate(env)) << s.index.ToString() << ", seed " << seed;
    }
    overflows += overflow;
  }
  EXPECT_GT(fits, 3000);
  EXPECT_GT(overflows, 3000);
}

}  // namespace
}  // namespace athanor::kir
