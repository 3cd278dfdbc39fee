#include "compiler/ir/expr/expr.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "compiler/ir/expr/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::Compare;
using expr_internal::FloorDivide;
using expr_internal::IsLetter;
using Term = Expr::Term;
using Monomial = Expr::Monomial;

// An expression beyond these limits counts as overflowed, which bounds the cost of every operation.
constexpr size_t kMaxTerms = 4096;
constexpr size_t kMaxProducts = 1 << 16;  // counted before equal terms are merged
constexpr size_t kMaxDegree = 64;
constexpr size_t kMaxKey = 64 << 10;
constexpr size_t kMaxName = 256;

// Graded lexicographic order. Multiplying both sides by a monomial keeps the order, which AddScaled
// and polynomial division rely on.
int Compare(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (int c = Compare(a[i], b[i])) return c;
  }
  return 0;
}

Monomial Multiply(const Monomial& a, const Monomial& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Monomial product;
  product.reserve(a.size() + b.size());
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    product.push_back(Compare(a[i], b[j]) <= 0 ? a[i++] : b[j++]);
  }
  product.insert(product.end(), a.begin() + i, a.end());
  product.insert(product.end(), b.begin() + j, b.end());
  return product;
}

size_t Degree(const Expr& e) { return e.terms().empty() ? 0 : e.terms()[0].monomial.size(); }

const std::shared_ptr<const std::vector<Term>>& NoTerms() {
  static const auto* none =
      new std::shared_ptr<const std::vector<Term>>(std::make_shared<const std::vector<Term>>());
  return *none;
}

bool SameTerms(const std::vector<Term>& a, const std::vector<Term>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Term& x, const Term& y) {
    return x.coefficient == y.coefficient && Compare(x.monomial, y.monomial) == 0;
  });
}

}  // namespace

Expr::Expr(int64_t value) : terms_(NoTerms()) {
  if (value == 0) return;
  std::vector<Term> terms;
  terms.push_back({value, {}});
  terms_ = std::make_shared<const std::vector<Term>>(std::move(terms));
}

Expr Expr::Overflowed() {
  Expr e;
  e.overflow_ = true;
  return e;
}

bool Expr::IsSymbolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && IsLetter(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '.'; });
}

uint64_t expr_internal::UsesOf(const Expr& e) {
  uint64_t uses = 0;
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) uses |= atom->uses;
  }
  return uses;
}

size_t expr_internal::HashOf(const Expr& e) {
  size_t hash = e.overflow() ? 1 : 0;
  for (const Term& term : e.terms()) {
    hash = absl::HashOf(hash, term.coefficient);
    for (const AtomRef& atom : term.monomial) hash = absl::HashOf(hash, atom->hash);
  }
  return hash;
}

Expr Expr::Symbol(std::string_view name) {
  if (!IsSymbolName(name)) return Overflowed();
  auto atom = std::make_shared<Atom>();
  atom->kind = Atom::Kind::kSymbol;
  atom->symbol = std::string(name);
  atom->key = atom->symbol;
  atom->hash = expr_internal::HashOfText(atom->key);
  atom->uses = expr_internal::BitOf(name);
  return Of(std::move(atom));
}

Expr Expr::Axis(int i) { return Symbol("$" + std::to_string(i)); }

Expr Expr::Of(AtomRef atom) { return Of(Term{1, {std::move(atom)}}); }

Expr Expr::Of(Term term) {
  if (term.coefficient == 0) return 0;
  std::vector<Term> terms;
  terms.push_back(std::move(term));
  return FromSorted(std::move(terms));
}

Expr Expr::Composite(Atom::Kind kind, const Expr& a, const Expr& b) {
  auto atom = std::make_shared<Atom>();
  atom->kind = kind;
  atom->args = {a, b};
  atom->key = kind == Atom::Kind::kFloorDiv ? "floordiv("
              : kind == Atom::Kind::kMin    ? "min("
                                            : "max(";
  atom->key += a.ToString();
  atom->key += ", ";
  atom->key += b.ToString();
  atom->key += ')';
  if (atom->key.size() > kMaxKey) return Overflowed();
  atom->hash = expr_internal::HashOfText(atom->key);
  atom->uses = expr_internal::UsesOf(a) | expr_internal::UsesOf(b);
  return Of(std::move(atom));
}

Expr Expr::FromSorted(std::vector<Term> terms) {
  if (terms.empty()) return Expr();
  if (terms.size() > kMaxTerms) return Overflowed();
  Expr e;
  e.terms_ = std::make_shared<const std::vector<Term>>(std::move(terms));
  return e;
}

Expr Expr::FromTerms(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return Compare(a.monomial, b.monomial) < 0; });
  size_t kept = 0;
  for (size_t i = 0; i < terms.size();) {
    int64_t sum = terms[i].coefficient;
    size_t j = i + 1;
    for (; j < terms.size() && Compare(terms[i].monomial, terms[j].monomial) == 0; ++j) {
      if (__builtin_add_overflow(sum, terms[j].coefficient, &sum)) return Overflowed();
    }
    if (sum != 0) {
      if (kept != i) terms[kept].monomial = std::move(terms[i].monomial);
      terms[kept++].coefficient = sum;
    }
    i = j;
  }
  terms.resize(kept);
  return FromSorted(std::move(terms));
}

Expr Expr::AddScaled(const Expr& a, int64_t coefficient, const Monomial& monomial, const Expr& b) {
  if (a.overflow_ || b.overflow_) return Overflowed();
  if (coefficient == 0 || b.terms_->empty()) return a;
  if (Degree(b) + monomial.size() > kMaxDegree) return Overflowed();
  const std::vector<Term>& left = a.terms();
  std::vector<Term> sum;
  sum.reserve(left.size() + b.terms().size());
  size_t i = 0;
  for (const Term& term : b.terms()) {
    Monomial moved = Multiply(monomial, term.monomial);
    __int128 scaled = static_cast<__int128>(coefficient) * term.coefficient;
    int order = -1;
    while (i < left.size() && (order = Compare(left[i].monomial, moved)) < 0) {
      sum.push_back(left[i++]);
    }
    if (i < left.size() && order == 0) scaled += left[i++].coefficient;
    if (scaled < INT64_MIN || scaled > INT64_MAX) return Overflowed();
    if (scaled != 0) sum.push_back({static_cast<int64_t>(scaled), std::move(moved)});
  }
  sum.insert(sum.end(), left.begin() + i, left.end());
  return FromSorted(std::move(sum));
}

std::optional<int64_t> Expr::constant() const {
  if (overflow_) return std::nullopt;
  if (terms_->empty()) return 0;
  const Term& first = terms_->front();
  if (!first.monomial.empty()) return std::nullopt;
  return first.coefficient;
}

std::optional<std::string> Expr::symbol() const {
  if (terms_->size() != 1) return std::nullopt;
  const Term& term = terms_->front();
  if (term.coefficient != 1 || term.monomial.size() != 1) return std::nullopt;
  if (term.monomial[0]->kind != Atom::Kind::kSymbol) return std::nullopt;
  return term.monomial[0]->symbol;
}

void Expr::CollectSymbols(std::set<std::string>* symbols) const {
  for (const Term& term : terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind == Atom::Kind::kSymbol) symbols->insert(atom->symbol);
      for (const Expr& arg : atom->args) arg.CollectSymbols(symbols);
    }
  }
}

bool Expr::Uses(std::string_view symbol) const {
  for (const Term& term : terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind == Atom::Kind::kSymbol && atom->symbol == symbol) return true;
      for (const Expr& arg : atom->args) {
        if (arg.Uses(symbol)) return true;
      }
    }
  }
  return false;
}

namespace {

std::optional<int64_t> EvaluateAtom(const Atom& atom, const Expr::Env& env) {
  if (atom.kind == Atom::Kind::kSymbol) {
    auto it = env.find(atom.symbol);
    if (it == env.end()) return std::nullopt;
    return it->second;
  }
  std::optional<int64_t> a = atom.args[0].Evaluate(env), b = atom.args[1].Evaluate(env);
  if (!a || !b) return std::nullopt;
  if (atom.kind == Atom::Kind::kMin) return std::min(*a, *b);
  if (atom.kind == Atom::Kind::kMax) return std::max(*a, *b);
  if (*b <= 0) return std::nullopt;
  return FloorDivide(*a, *b);
}

}  // namespace

std::optional<int64_t> Expr::Evaluate(const Env& env) const {
  if (overflow_) return std::nullopt;
  __int128 sum = 0;
  for (const Term& term : terms()) {
    int64_t product = 1;
    for (const AtomRef& atom : term.monomial) {
      std::optional<int64_t> value = EvaluateAtom(*atom, env);
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, static_cast<__int128>(term.coefficient) * product, &sum)) {
      return std::nullopt;
    }
  }
  if (sum < INT64_MIN || sum > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(sum);
}

Expr Expr::Substitute(const std::map<std::string, Expr, std::less<>>& values) const {
  if (overflow_) return *this;
  // Returns the atom's value after substitution, or nullopt if it is unchanged.
  auto image = [&](const Atom& atom) -> std::optional<Expr> {
    if (atom.kind == Atom::Kind::kSymbol) {
      auto it = values.find(atom.symbol);
      if (it == values.end()) return std::nullopt;
      return it->second;
    }
    Expr a = atom.args[0].Substitute(values), b = atom.args[1].Substitute(values);
    if (a == atom.args[0] && b == atom.args[1]) return std::nullopt;
    if (atom.kind == Atom::Kind::kMin) return MinOf(a, b);
    if (atom.kind == Atom::Kind::kMax) return MaxOf(a, b);
    return FloorDiv(a, b);
  };
  // Unchanged terms stay in order; only the others are multiplied out.
  std::vector<Term> kept;
  Expr changed;
  for (const Term& term : terms()) {
    Monomial same;
    std::optional<Expr> product;
    for (const AtomRef& atom : term.monomial) {
      std::optional<Expr> value = image(*atom);
      if (!value) {
        same.push_back(atom);
      } else {
        product = product ? *product * *value : *value;
      }
    }
    if (product) {
      changed = AddScaled(changed, term.coefficient, same, *product);
    } else {
      kept.push_back(term);
    }
  }
  if (kept.size() == terms().size()) return *this;
  return FromSorted(std::move(kept)) + changed;
}

std::optional<Expr::Affine> Expr::AsAffine(std::string_view symbol) const {
  if (overflow_) return std::nullopt;
  std::vector<Term> base, stride;
  for (const Term& term : terms()) {
    Monomial rest;
    for (const AtomRef& atom : term.monomial) {
      for (const Expr& arg : atom->args) {
        if (arg.Uses(symbol)) return std::nullopt;
      }
      if (atom->kind != Atom::Kind::kSymbol || atom->symbol != symbol) rest.push_back(atom);
    }
    size_t power = term.monomial.size() - rest.size();
    if (power > 1) return std::nullopt;
    (power == 0 ? base : stride).push_back({term.coefficient, std::move(rest)});
  }
  // Taking the same symbol out of all terms of the stride keeps their order.
  return Affine{FromSorted(std::move(base)), FromSorted(std::move(stride))};
}

Expr operator+(const Expr& a, const Expr& b) { return Expr::AddScaled(a, 1, {}, b); }

Expr operator-(const Expr& a, const Expr& b) { return Expr::AddScaled(a, -1, {}, b); }

Expr operator*(const Expr& a, const Expr& b) {
  if (a.overflow_ || b.overflow_) return Expr::Overflowed();
  const std::vector<Term>&x = a.terms(), &y = b.terms();
  if (x.size() <= 1 || y.size() <= 1) {
    const bool swap = y.size() > 1;
    if (x.empty() || y.empty()) return 0;
    const Term& scale = swap ? x[0] : y[0];
    return Expr::AddScaled(0, scale.coefficient, scale.monomial, swap ? b : a);
  }
  if (Degree(a) + Degree(b) > kMaxDegree || x.size() * y.size() > kMaxProducts) {
    return Expr::Overflowed();
  }
  std::vector<Term> products;
  products.reserve(x.size() * y.size());
  for (const Term& s : x) {
    for (const Term& t : y) {
      int64_t coefficient;
      if (__builtin_mul_overflow(s.coefficient, t.coefficient, &coefficient)) {
        return Expr::Overflowed();
      }
      products.push_back({coefficient, Multiply(s.monomial, t.monomial)});
    }
  }
  return Expr::FromTerms(std::move(products));
}

bool operator==(const Expr& a, const Expr& b) {
  return a.overflow_ == b.overflow_ && (a.terms_ == b.terms_ || SameTerms(a.terms(), b.terms()));
}

bool operator<(const Expr& a, const Expr& b) {
  if (a.overflow_ != b.overflow_) return b.overflow_;
  return std::lexicographical_compare(a.terms().begin(), a.terms().end(), b.terms().begin(),
                                      b.terms().end(), [](const Term& x, const Term& y) {
                                        const int order = Compare(x.monomial, y.monomial);
                                        return order != 0 ? order < 0
                                                          : x.coefficient < y.coefficient;
                                      });
}

namespace {

// An argument that already is a Min (Max) of the other absorbs it.
bool Absorbs(const Expr& whole, Atom::Kind kind, const Expr& part) {
  if (whole.terms().size() != 1) return false;
  const Term& term = whole.terms()[0];
  if (term.coefficient != 1 || term.monomial.size() != 1) return false;
  const Atom& atom = *term.monomial[0];
  return atom.kind == kind && (atom.args[0] == part || atom.args[1] == part);
}

}  // namespace

Expr MinOf(const Expr& a, const Expr& b) {
  const Expr difference = a - b;
  if (difference.overflow()) return Expr::Overflowed();
  if (std::optional<int64_t> c = difference.constant()) return *c <= 0 ? a : b;
  if (Absorbs(a, Atom::Kind::kMin, b)) return a;
  if (Absorbs(b, Atom::Kind::kMin, a)) return b;
  // Orders the arguments, so that equal minima have one normal form.
  return a < b ? Expr::Composite(Atom::Kind::kMin, a, b) : Expr::Composite(Atom::Kind::kMin, b, a);
}

Expr MaxOf(const Expr& a, const Expr& b) {
  const Expr difference = a - b;
  if (difference.overflow()) return Expr::Overflowed();
  if (std::optional<int64_t> c = difference.constant()) return *c >= 0 ? a : b;
  if (Absorbs(a, Atom::Kind::kMax, b)) return a;
  if (Absorbs(b, Atom::Kind::kMax, a)) return b;
  return a < b ? Expr::Composite(Atom::Kind::kMax, a, b) : Expr::Composite(Atom::Kind::kMax, b, a);
}

}  // namespace athanor
