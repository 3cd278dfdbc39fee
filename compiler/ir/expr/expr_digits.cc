// Writes a flat symbol as its digits in a mixed radix, one variable per digit. A chain floordiv(f,
// d1), floordiv(f, d1*d2), ... reads these digits. In digits, reshapes and transposes of a flat
// loop simplify as well as those over one loop per axis.
#include <algorithm>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_internal.h"
#include "compiler/ir/expr/expr_memo.h"

namespace athanor {
namespace {

using expr_internal::ExactQuotient;

using Divisors = std::map<std::string, std::vector<Expr>, std::less<>>;

// Collects the divisors that each symbol is divided by. Returns true if `e` also has atoms of other
// forms.
bool CollectDivisors(const Expr& e, Divisors* divisors) {
  bool others = false;
  for (const Expr::Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind == Atom::Kind::kSymbol) continue;
      const std::optional<std::string> symbol = atom->args[0].symbol();
      if (atom->kind == Atom::Kind::kFloorDiv && symbol) {
        std::vector<Expr>& known = (*divisors)[*symbol];
        const Expr& d = atom->args[1];
        if (std::find(known.begin(), known.end(), d) == known.end()) known.push_back(d);
      } else {
        others = true;
      }
      for (const Expr& arg : atom->args) CollectDivisors(arg, divisors);
    }
  }
  return others;
}

// Returns 1 and those divisors that each divide the next.
std::vector<Expr> Chain(std::vector<Expr> divisors) {
  auto size = [](const Expr& e) {
    const Expr::Term& lead = e.terms()[0];
    return std::pair(lead.monomial.size(), lead.coefficient);
  };
  divisors.erase(std::remove_if(divisors.begin(), divisors.end(),
                                [](const Expr& d) { return d.constant().value_or(1) <= 0; }),
                 divisors.end());
  std::sort(divisors.begin(), divisors.end(), [&](const Expr& a, const Expr& b) {
    return size(a) != size(b) ? size(a) < size(b) : a < b;
  });
  std::vector<Expr> chain = {1};
  for (const Expr& d : divisors) {
    if (ExactQuotient(d, chain.back())) chain.push_back(d);
  }
  return chain;
}

}  // namespace

std::optional<Bounds::Digits> Bounds::SplitDigits(const Expr& e, bool even_if_plain) const {
  Divisors divisors;
  if (!CollectDivisors(e, &divisors) && !even_if_plain) return std::nullopt;
  Digits digits;
  for (const auto& [symbol, known] : divisors) {
    const std::vector<Expr> chain = Chain(known);
    auto range = ranges_.find(symbol);
    if (chain.size() < 2) continue;
    const Expr flat = Expr::Symbol(symbol);
    Expr sum = 0;
    for (size_t i = 0; i < chain.size(); ++i) {
      const std::string name = "$digit" + std::to_string(i) + "." + symbol;
      const Expr outer = FloorDiv(flat, chain[i]);
      sum += chain[i] * Expr::Symbol(name);
      if (i + 1 < chain.size()) {
        const Expr radix = *ExactQuotient(chain[i + 1], chain[i]);
        // Every digit but the highest is below its radix.
        digits.bounds.SetExtent(name, radix);
        digits.merge.emplace(name, outer - radix * FloorDiv(flat, chain[i + 1]));
        continue;
      }
      digits.merge.emplace(name, outer);
      if (range == ranges_.end()) continue;
      digits.bounds.Set(name, SimplifyAtoms(FloorDiv(range->second.lower, chain[i])),
                        SimplifyAtoms(FloorDiv(range->second.upper, chain[i])));
    }
    if (sum.overflow()) return std::nullopt;
    digits.split.emplace(symbol, sum);
  }
  if (digits.split.empty()) return std::nullopt;
  for (const auto& [symbol, range] : ranges_) {
    digits.bounds.Set(symbol, range.lower.Substitute(digits.split),
                      range.upper.Substitute(digits.split));
  }
  return digits;
}

Expr Bounds::Simplify(const Expr& e) const {
  if (!expr_internal::HasComposite(e)) return e;
  BoundsMemo* memo = BoundsMemo::OfThread();
  return memo != nullptr ? memo->Simplify(*this, e) : DecideSimplest(e);
}

Expr Bounds::DecideSimplest(const Expr& e) const {
  const std::optional<Digits> digits = SplitDigits(e, /*even_if_plain=*/false);
  if (!digits) return SimplifyAtoms(e);
  const Expr split = digits->bounds.SimplifyAtoms(e.Substitute(digits->split));
  const Expr merged = SimplifyAtoms(split.Substitute(digits->merge));
  Divisors divisors;
  if (!merged.overflow() && !CollectDivisors(merged, &divisors)) return merged;
  Expr simple = SimplifyAtoms(e);
  const bool better = !merged.overflow() && merged.ToString().size() < simple.ToString().size();
  return better ? merged : simple;
}

}  // namespace athanor
