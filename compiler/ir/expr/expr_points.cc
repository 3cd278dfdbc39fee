// Chooses points within bounds, which refute false claims before a proof is tried.
#include <algorithm>

#include "compiler/ir/expr/expr.h"

namespace athanor {
namespace {

constexpr int kMaxDepth = 40;
// All symbols at their lowest value, all at their highest, and four mixtures.
constexpr int kPoints = 6;

}  // namespace

// Gives every symbol of `e` a value within its bounds: the lowest, the highest or one between,
// selected by `choice`. Symbols that its bounds use get their values first. Returns false if there
// is no such value.
bool Bounds::Assign(const Expr& e, uint64_t choice, Expr::Env* env, int depth) const {
  if (depth > kMaxDepth) return false;
  std::set<std::string> symbols;
  e.CollectSymbols(&symbols);
  for (const std::string& symbol : symbols) {
    if (env->contains(symbol)) continue;
    const uint64_t pick =
        choice < 2 ? choice : (choice * 0x9e3779b97f4a7c15 + env->size() * 0xbf58476d1ce4e5b9) >> 7;
    const auto range = ranges_.find(symbol);
    if (range == ranges_.end()) {
      env->emplace(symbol, static_cast<int64_t>(pick % 64) - 8);
      continue;
    }
    const Expr &lower = range->second.lower, &upper = range->second.upper;
    if (!Assign(lower, choice, env, depth + 1) || !Assign(upper, choice, env, depth + 1)) {
      return false;
    }
    const std::optional<int64_t> lo = lower.Evaluate(*env), hi = upper.Evaluate(*env);
    int64_t width;
    if (!lo || !hi || __builtin_sub_overflow(*hi, *lo, &width) || width < 0) return false;
    width = std::min<int64_t>(width, 1 << 20);  // keeps values small for a dim without a maximum
    const uint64_t offset = choice == 1 || pick % 4 == 1   ? width
                            : choice == 0 || pick % 4 == 0 ? 0
                                                           : (pick >> 2) % (width + 1);
    env->emplace(symbol, *lo + static_cast<int64_t>(offset));
  }
  return true;
}

std::vector<Expr::Env> Bounds::Points(const Expr& e) const {
  std::vector<Expr::Env> points;
  for (uint64_t choice = 0; choice < kPoints; ++choice) {
    Expr::Env env;
    if (Assign(e, choice, &env, 0)) points.push_back(std::move(env));
  }
  return points;
}

}  // namespace athanor
