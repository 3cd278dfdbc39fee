#include "compiler/frontend/onnx/build/multiples.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

using Factors = std::map<std::string, int64_t, std::less<>>;  // by dim; factors of 1 are left out

constexpr int64_t kMostFactor = 4096;
constexpr int64_t kMostOddFactor = 64;  // above it only powers of two are tried
constexpr size_t kMostSymbols = 8;      // symbols of a pair
constexpr size_t kMostBytes = 4 << 10;  // bytes of a hint's pairs, as text

const Dim* FindDim(absl::Span<const Dim> dims, std::string_view name) {
  const auto found =
      std::find_if(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == name; });
  return found == dims.end() ? nullptr : &*found;
}

int64_t LeastOf(const Dim& dim, int64_t factor) { return (dim.min + factor - 1) / factor; }
int64_t MostOf(const Dim& dim, int64_t factor) { return dim.max / factor; }

class MultiplesFinder {
 public:
  // Counts its tries in `tries`, up to the limit.
  MultiplesFinder(absl::Span<const Dim> dims, int64_t* tries) : dims_(dims), tries_(tries) {}

  // Enlarges factors to make the pair equal; false if it finds none.
  bool Take(const SizePair& pair) {
    if (pair.first.overflow() || pair.second.overflow()) return false;
    std::set<std::string> symbols;
    pair.first.CollectSymbols(&symbols);
    pair.second.CollectSymbols(&symbols);
    if (symbols.size() > kMostSymbols) return false;
    if (Equal(pair, symbols, factors_)) return true;
    // Tries one dim at a time, then all dims of the pair.
    std::vector<std::set<std::string>> choices;
    for (const std::string& symbol : symbols) choices.push_back({symbol});
    if (symbols.size() > 1) choices.push_back(symbols);
    for (int64_t factor = 2; factor <= kMostFactor; factor += Step(factor)) {
      for (const std::set<std::string>& choice : choices) {
        const Factors tried = With(choice, factor);
        if (!Fits(tried) || !Equal(pair, symbols, tried)) continue;
        factors_ = tried;
        return true;
      }
    }
    return false;
  }

  const Factors& factors() const { return factors_; }

 private:
  static int64_t Step(int64_t factor) { return factor < kMostOddFactor ? 1 : factor; }

  Factors With(const std::set<std::string>& symbols, int64_t factor) const {
    Factors tried = factors_;
    for (const std::string& symbol : symbols) {
      int64_t& own = tried.try_emplace(symbol, 1).first->second;
      own = std::lcm(own, factor);
    }
    return tried;
  }

  // Reports whether every dim keeps a valid size.
  bool Fits(const Factors& factors) const {
    return std::all_of(factors.begin(), factors.end(), [&](const auto& each) {
      const Dim* dim = FindDim(dims_, each.first);
      return dim != nullptr && each.second <= kMostFactor && MostOf(*dim, each.second) >= 1 &&
             MostOf(*dim, each.second) >= LeastOf(*dim, each.second);
    });
  }

  // Compares the pair with each dim replaced by a dim that counts multiples, under the same name.
  bool Equal(const SizePair& pair, const std::set<std::string>& symbols,
             const Factors& factors) const {
    if (*tries_ >= MultiplesHints::kMostTries) return false;
    ++*tries_;
    std::map<std::string, Expr, std::less<>> multiples;
    Bounds bounds;
    Expr::Env low, high;
    for (const std::string& name : symbols) {
      const Dim* dim = FindDim(dims_, name);
      if (dim == nullptr) return false;
      const auto found = factors.find(name);
      const int64_t factor = found == factors.end() ? 1 : found->second;
      if (factor > 1) multiples.emplace(name, Expr(factor) * Expr::Symbol(name));
      bounds.Set(name, LeastOf(*dim, factor), MostOf(*dim, factor));
      low[name] = factor * LeastOf(*dim, factor);
      high[name] = factor * MostOf(*dim, factor);
    }
    // Sizes that differ at a point need no proof attempt.
    for (const Expr::Env& point : {low, high}) {
      if (pair.first.Evaluate(point) != pair.second.Evaluate(point)) return false;
    }
    return bounds.ProvablyEqual(pair.first.Substitute(multiples),
                                pair.second.Substitute(multiples));
  }

  const absl::Span<const Dim> dims_;
  int64_t* const tries_;
  Factors factors_;
};

// Returns a letter that is not a dim's name, or else a longer name.
std::string FreshName(const std::string& dim, std::set<std::string>* taken) {
  std::string name(1,
                   dim[0] >= 'A' && dim[0] <= 'Z' ? static_cast<char>(dim[0] - 'A' + 'a') : dim[0]);
  if (name == "_") name = "n";
  const std::string base = name;
  for (int i = 2; !taken->insert(name).second; ++i) name = Cat(base, i);
  return name;
}

}  // namespace

std::string MultiplesHints::Of(absl::Span<const SizePair> pairs) {
  std::string key;
  for (const auto& [a, b] : pairs) {
    if (a.constant() && b.constant() && a != b) return "";
    key += Cat(a.ToString(), " = ", b.ToString(), "\n");
    if (key.size() > kMostBytes) return "";
  }
  const auto found = found_.find(key);
  if (found != found_.end()) return found->second;
  if (tries_ >= kMostTries) return "";
  ++tries_;
  return found_[std::move(key)] = Find(pairs);
}

std::string MultiplesHints::Find(absl::Span<const SizePair> pairs) {
  const absl::Span<const Dim> dims = *dims_;
  MultiplesFinder finder(dims, &tries_);
  for (const SizePair& pair : pairs) {
    if (!finder.Take(pair)) return "";
  }
  if (finder.factors().empty()) return "";
  std::set<std::string> taken;
  for (const Dim& dim : dims) taken.insert(dim.name);
  std::string numbers, given;
  std::set<int64_t> different;
  for (const auto& [name, factor] : finder.factors()) {
    const Dim* dim = FindDim(dims, name);
    const std::string fresh = FreshName(name, &taken);
    if (different.insert(factor).second) numbers += Cat(numbers.empty() ? "" : " and ", factor);
    given += Cat(given.empty() ? "" : ", ", "\"", name, "\": \"", factor, "*", fresh, "\", \"",
                 fresh, "\": (", LeastOf(*dim, factor), ", ", MostOf(*dim, factor), ")");
  }
  return Cat("; they are equal for multiples of ", numbers, ": give dims={", given, "}");
}

std::string MultiplesHints::Of(const Shape& a, const Shape& b) {
  std::vector<SizePair> pairs;
  for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const Expr &x = a[a.size() - i], &y = b[b.size() - i];
    if (!x.IsConstant(1) && !y.IsConstant(1)) pairs.push_back({x, y});
  }
  return Of(pairs);
}

std::string MultiplesHints::OfDivisible(const Expr& a, const Expr& b) {
  return Of({{FloorDiv(a, b) * b, a}});
}

}  // namespace athanor::onnx
