// Algebra of one contraction: scales and shifts are moved into its weight, which is computed once
// per model; long sums are computed in pieces.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "compiler/ir/value/message.h"
#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"

namespace athanor {

NodeId Contraction(TermExpansion& e, NodeId x, NodeId w, const ContractSpec& spec) {
  return e.x().Add(Op::kContract, {x, w}, {{"spec", spec.ToString()}});
}

std::optional<NodeId> ReadAlong(TermExpansion& e, NodeId weight, const IndexMap& map,
                                const std::string& letters, const std::string& wanted,
                                const Shape& shape) {
  const std::vector<bool> used = AxesUsed(map);
  std::map<std::string, Expr, std::less<>> at;
  for (size_t i = 0; i < letters.size(); ++i) {
    const size_t axis = wanted.find(letters[i]);
    if (axis == std::string::npos) {
      if (used[i]) return std::nullopt;
      continue;
    }
    at[Expr::Axis(static_cast<int>(i)).ToString()] = Expr::Axis(static_cast<int>(axis));
  }
  IndexMap along{shape, {}};
  for (const Expr& c : map.coordinates) along.coordinates.push_back(c.Substitute(at));
  if (IsIdentityMap(along, e.Type(weight).shape)) return weight;
  return e.x().Map(weight, along.shape, along.coordinates);
}

egraph::Condition LeavesSum(const RowTerms& terms, std::string variable) {
  return egraph::Condition(
      "may leave a sum", {variable}, [terms, variable](const egraph::Match& m) {
        const std::optional<double> value = terms.Uniform(m, variable);
        if (!value || !IsTame(*value)) return false;
        // A factor below 1 may keep a partial sum finite that overflows without it.
        return !IsFloat(terms.Type(m, variable).dtype) || std::fabs(*value) >= 1;
      });
}

egraph::Condition EntersWeight(const RowTerms& terms, std::string variable) {
  return egraph::Condition(
      "may enter a weight", {variable}, [terms, variable](const egraph::Match& m) {
        const std::optional<double> value = terms.Uniform(m, variable);
        if (!value || !IsTame(*value)) return false;
        // A factor above 1 may make an element of the weight infinite.
        return !IsFloat(terms.Type(m, variable).dtype) || std::fabs(*value) <= 1;
      });
}

double Number(const ExampleBuilder& e, int64_t n, int64_t d) {
  if (IsFloat(e.dtype())) return static_cast<double>(n) / static_cast<double>(d);
  return static_cast<double>(IsSigned(e.dtype()) ? n : std::abs(n));
}

namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;

NodeId Scaled(TermExpansion& e, NodeId n, double factor) {
  return e.x().Add(Op::kMul, {n, e.x().FillLike(n, factor)});
}

// --- Constants ---

Specs WeightTakesScale(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    if (!s) return std::nullopt;
    const NodeId w = e.Operand(m.Class("w"));
    return Contraction(e, e.Operand(m.Class("x")), Scaled(e, w, *s), t.SpecOf(m, "spec"));
  };
  const std::vector<egraph::Condition> conditions = {t.HasWideDType("y"), t.IsWeight("w"),
                                                     t.IsNoWeight("x"), EntersWeight(t, "s")};
  return Joined({Orders({.name = "weight_takes_scale",
                         .premises = {"?y = (Contract~[?spec] (Mul~ ?x ?s) ?w)"},
                         .conditions = conditions,
                         .apply = t.Equal("y", build)}),
                 Orders({.name = "weight_takes_scale.after",
                         .premises = {"?y = (Mul~ (Contract~[?spec] ?x ?w) ?s)"},
                         .conditions = conditions,
                         .apply = t.Equal("y", build)})});
}

void WeightTakesScaleExample(ExampleBuilder& e) {
  const Expr rows = e.Size();
  const int64_t k = e.ConstantSize(), n = e.ConstantSize();
  const NodeId x = e.Input({rows, k}, WideDType(e)), w = e.Parameter({k, n}, WideDType(e));
  const double s = Number(e, -e.Pick(1, 9), 9);
  const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().FillLike(x, s)});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {scaled, w}, {{"spec", "mk,kn->mn"}})
                    : e.x().Add(Op::kContract, {w, scaled}, {{"spec", "kn,mk->mn"}}));
  const NodeId product = e.x().Add(Op::kContract, {x, w}, {{"spec", "mk,kn->nm"}});
  e.Output(e.x().Add(Op::kMul, {e.x().FillLike(product, s), product}));
}

Specs ContractGivesScale(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    if (!s) return std::nullopt;
    const NodeId x = e.Operand(m.Class("x")), z = e.Operand(m.Class("z"));
    return Scaled(e, Contraction(e, x, z, t.SpecOf(m, "spec")), *s);
  };
  return Orders({.name = "contract_gives_scale",
                 .premises = {"?y = (Contract~[?spec] (Mul~ ?x ?s) ?z)"},
                 .conditions = {t.HasWideDType("y"), t.IsNoWeight("x"), t.IsNotUniform("x"),
                                LeavesSum(t, "s")},
                 .apply = t.Equal("y", build)});
}

void ContractGivesScaleExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), k = e.Size(), columns = e.Size();
  const NodeId x = e.Input({rows, k}, WideDType(e)), z = e.Input({columns, k}, WideDType(e));
  const double s = Number(e, -e.Pick(7, 16), 7);
  const NodeId scaled = e.x().Add(Op::kMul, {e.x().FillLike(x, s), x});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {scaled, z}, {{"spec", "mk,nk->mn"}})
                    : e.x().Add(Op::kContract, {z, scaled}, {{"spec", "nk,mk->mn"}}));
}

Specs AttentionTakesScale(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    Attrs attrs = t.AttrsOf(m, "attention");
    const std::optional<int64_t> width = t.ShapeOf(m, "q").back().constant();
    // The default scale is a function of the width, which must be a number then.
    if (!s || (!attrs.contains("scale") && width.value_or(0) == 0)) return std::nullopt;
    const double scale =
        *s * (attrs.contains("scale") ? GetAttr<double>(attrs, "scale")
                                      : 1 / std::sqrt(static_cast<double>(*width)));
    if (!IsTame(scale)) return std::nullopt;
    attrs.insert_or_assign("scale", scale);
    std::vector<NodeId> operands = {e.Operand(m.Class("q")), e.Operand(m.Class("k"))};
    for (const egraph::ClassId rest : m.Rest("rest")) operands.push_back(e.Operand(rest));
    return e.x().Add(Op::kAttention, std::move(operands), std::move(attrs));
  };
  const std::vector<egraph::Condition> conditions = {t.HasWideDType("y"), LeavesSum(t, "s")};
  return Joined({Orders({.name = "attention_takes_scale",
                         .premises = {"?y = (Attention[?attention] (Mul~ ?q ?s) ?k ?rest...)"},
                         .conditions = conditions,
                         .apply = t.Equal("y", build)}),
                 Orders({.name = "attention_takes_scale.keys",
                         .premises = {"?y = (Attention[?attention] ?q (Mul~ ?k ?s) ?rest...)"},
                         .conditions = conditions,
                         .apply = t.Equal("y", build)})});
}

void AttentionTakesScaleExample(ExampleBuilder& e) {
  const Expr heads = e.Size(), queries = e.Size(), keys = e.Size(), width = e.Size();
  const NodeId q = e.Input({heads, queries, width}, WideDType(e)),
               k = e.Input({heads, keys, width}, WideDType(e));
  const NodeId v = e.Input({heads, keys, e.Size()}, WideDType(e));
  const bool on_keys = e.Coin();
  const NodeId target = on_keys ? k : q;
  const NodeId scaled = e.x().Add(Op::kMul, {target, e.x().FillLike(target, 1.25)});
  std::vector<NodeId> operands = {on_keys ? q : scaled, on_keys ? scaled : k, v};
  if (e.Coin()) operands.push_back(e.Input({queries, keys}, WideDType(e)));
  e.Output(e.x().Add(Op::kAttention, std::move(operands), {{"scale", 0.5}}));
}

// --- Weights ---

// The factor is part of each product, so this holds for all infinities and NaNs of x. But the
// weight that takes it must not become infinite where x times the factor is a number.
Specs WeightTakesFactor(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const IndexMap map = *t.View(m, "map");
    const ContractSpec spec = t.SpecOf(m, "spec");
    const NodeId w = e.Operand(m.Class("w"));
    const Shape shape = e.Type(w).shape;
    const std::optional<NodeId> factor =
        ReadAlong(e, e.Operand(m.Class("g")), map, spec.lhs, spec.rhs, shape);
    if (!factor) return std::nullopt;
    return Contraction(e, e.Operand(m.Class("x")), e.x().Add(Op::kMul, {w, *factor}), spec);
  };
  return Orders(
      {.name = "weight_takes_factor",
       .premises = {"?y = (Contract~[?spec] (Mul~ ?x (IndexMap[?map] ?g)) ?w)"},
       .conditions = {t.HasWideDType("y"), t.IsWeight("w"), t.IsWeight("g"), t.IsNotUniform("g"),
                      t.IsNoWeight("x"), t.IsView("map"), t.IsProductBounded("w", "g")},
       .apply = t.Equal("y", build)});
}

void WeightTakesFactorExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), rows = e.Size();
  const int64_t k = e.ConstantSize(), n = e.ConstantSize();
  const NodeId x = e.Input({batch, rows, k}, WideDType(e)),
               w = e.BoundedParameter({n, k}, WideDType(e)),
               g = e.BoundedParameter({k}, WideDType(e));
  const NodeId wide = e.x().Map(g, {batch, rows, k}, {Expr::Axis(2)});
  const NodeId scaled = e.x().Add(Op::kMul, {x, wide});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {scaled, w}, {{"spec", "bmk,nk->bmn"}})
                    : e.x().Add(Op::kContract, {w, scaled}, {{"spec", "nk,bmk->bmn"}}));
}

// --- Sums in pieces ---

// Returns a letter that no operand of the spec has.
char FreshLetter(const ContractSpec& spec, const std::string& taken) {
  const std::string all = spec.lhs + spec.rhs + taken;
  for (char c = 'a'; c <= 'z'; ++c) {
    if (all.find(c) == std::string::npos) return c;
  }
  return 0;
}

// Returns the letter that both operands sum over, if nothing else is summed and there are rows or
// columns: without, as in a norm, it is a reduction of what is multiplied element by element.
std::optional<char> SummedLetter(const ContractSpec& spec) {
  std::string summed;
  bool free = false;
  for (const char letter : spec.lhs + spec.rhs) {
    if (spec.result.find(letter) == std::string::npos) {
      summed += letter;
    } else {
      free = free || spec.lhs.find(letter) == std::string::npos ||
             spec.rhs.find(letter) == std::string::npos;
    }
  }
  if (!free || summed.size() != 2 || summed[0] != summed[1]) return std::nullopt;
  return summed[0];
}

// Returns a view of the operand in which `axis` is two: pieces, and what is in each.
NodeId InPieces(TermExpansion& e, NodeId operand, size_t axis, int64_t pieces) {
  Shape shape = e.Type(operand).shape;
  const int64_t each = *shape[axis].constant() / pieces;
  shape[axis] = each;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), pieces);
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < shape.size(); ++i) {
    const Expr at = Expr::Axis(static_cast<int>(i));
    if (i == axis + 1) {
      coordinates.back() = each * coordinates.back() + at;
    } else {
      coordinates.push_back(at);
    }
  }
  return e.x().Map(operand, std::move(shape), std::move(coordinates));
}

// Numbers of pieces that sums are computed in.
constexpr int64_t kPieces[] = {4, 16};

// Reports whether the axes right ahead of the sums, `left` and `right`, are the pieces that the
// rule has made, so that it need not look at its own results.
bool IsInPieces(const ContractSpec& spec, size_t left, size_t right, const Shape& x) {
  if (left == 0 || right == 0 || spec.lhs[left - 1] != spec.rhs[right - 1]) return false;
  return std::any_of(std::begin(kPieces), std::end(kPieces),
                     [&](int64_t pieces) { return x[left - 1].IsConstant(pieces); });
}

// Gives work to more of a machine's threads than there are results for. Rules know no machine: a
// cost has to say whether it pays. So that few contractions are asked about, the sums must be long
// beside the largest number of results.
Specs ContractSplitsSum(const TermLanguage& language, const FactsAnalysis& facts) {
  constexpr int64_t kLeastEach = 128, kMostResultsPerSum = 16;
  const RowTerms t(language, facts);
  Specs specs;
  for (const int64_t pieces : kPieces) {
    const auto build = [t, pieces](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
      ContractSpec spec = t.SpecOf(m, "spec");
      const std::optional<char> k = SummedLetter(spec);
      if (!k) return std::nullopt;
      const size_t left = spec.lhs.find(*k), right = spec.rhs.find(*k);
      if (IsInPieces(spec, left, right, t.ShapeOf(m, "x"))) return std::nullopt;
      const std::optional<int64_t> sums = t.ShapeOf(m, "x")[left].constant();
      if (!sums || *sums % pieces != 0 || *sums / pieces < kLeastEach) return std::nullopt;
      Expr results = 1;
      for (const Expr& extent : t.ShapeOf(m, "y")) results *= extent;
      const std::optional<int64_t> most = t.facts().bounds().Maximum(results);
      if (!most || *most / kMostResultsPerSum > *sums) return std::nullopt;
      const char piece = FreshLetter(spec, "");
      if (piece == 0) return std::nullopt;
      const NodeId x = InPieces(e, e.Operand(m.Class("x")), left, pieces);
      const NodeId z = InPieces(e, e.Operand(m.Class("z")), right, pieces);
      spec.lhs.insert(left, 1, piece);
      spec.rhs.insert(right, 1, piece);
      spec.result.insert(0, 1, piece);
      return e.x().Reduce(Op::kSumReduce, Contraction(e, x, z, spec), {0});
    };
    specs.push_back({.name = Cat("contract_splits_sum.", pieces),
                     .premises = {"?y = (Contract[?spec] ?x ?z)"},
                     .conditions = {t.HasWideDType("y"), t.IsNoWeight("y")},
                     .apply = t.Equal("y", build)});
  }
  return specs;
}

void ContractSplitsSumExample(ExampleBuilder& e) {
  const Expr batch = e.Pick(1, 3), rows = e.Size(), columns = e.Size();
  const int64_t k = e.Coin() ? 4 * 128 : 16 * 128;
  const NodeId x = e.Input({batch, rows, k}, WideDType(e));
  const NodeId w =
      e.Coin() ? e.Input({k, columns}, WideDType(e)) : e.Parameter({k, 3}, WideDType(e));
  // Sums of terms of one sign are infinite in any order, or in none.
  const NodeId squares = e.x().Add(Op::kMul, {w, w});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {x, squares}, {{"spec", "bmk,kn->bmn"}})
                    : e.x().Add(Op::kContract, {squares, x}, {{"spec", "kn,bmk->nbm"}}));
}

// --- Operands read through views ---

// Returns the letters of the operand's source, if the operand with `letters` is a view. Axes of
// size 1 that the view lacks get new letters, which are summed. Returns nullopt if the result would
// lose a letter, or if a sum repeats one term.
std::optional<std::string> LettersBelow(const ContractSpec& spec, const std::vector<int>& axes) {
  std::string below;
  for (const int axis : axes) {
    const char letter = axis >= 0 ? spec.lhs[axis] : FreshLetter(spec, below);
    if (letter == 0) return std::nullopt;
    below += letter;
  }
  for (const char letter : spec.lhs) {
    const bool kept = (below + spec.rhs).find(letter) != std::string::npos;
    if (!kept) return std::nullopt;
  }
  return below;
}

Specs ContractReadsThrough(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId x = e.Operand(m.Class("x"));
    ContractSpec spec = t.SpecOf(m, "spec");
    const std::optional<std::vector<int>> axes = AxesOfMap(*t.View(m, "map"), e.Type(x).shape);
    if (!axes) return std::nullopt;
    const std::optional<std::string> below = LettersBelow(spec, *axes);
    if (!below) return std::nullopt;
    spec.lhs = *below;
    return Contraction(e, x, e.Operand(m.Class("z")), spec);
  };
  return Orders({.name = "contract_reads_through",
                 .premises = {"?y = (Contract~[?spec] (IndexMap[?map] ?x) ?z)"},
                 .conditions = {t.IsView("map")},
                 .apply = t.Equal("y", build)});
}

void ContractReadsThroughExample(ExampleBuilder& e) {
  const Expr batch = e.Size(2), rows = e.Size(2), k = e.Size(2), columns = e.Size();
  const NodeId x = e.Input({batch, rows, k}), z = e.Input({k, columns, 1});
  const NodeId turned =
      e.x().Map(x, {k, batch, rows}, {Expr::Axis(1), Expr::Axis(2), Expr::Axis(0)});
  const NodeId wide = e.x().Map(z, {batch, columns, k}, {Expr::Axis(2), Expr::Axis(1), 0});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {turned, wide}, {{"spec", "kbm,bnk->bmn"}})
                    : e.x().Add(Op::kContract, {wide, turned}, {{"spec", "bnk,kbm->bmn"}}));
}

Specs ContractPermuted(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const IndexMap map = *t.View(m, "map");
    ContractSpec spec =
        ContractSpec::Parse(GetAttr<std::string>(t.AttrsOf(m, "spec"), "spec")).value();
    const Shape& shape = t.ShapeOf(m, "c");
    const std::optional<std::vector<int>> places = PermutationOfMap(map, shape);
    if (!places || map.shape.size() != shape.size()) return std::nullopt;
    // A contraction can store its result with its axes in any order, so the view costs nothing.
    std::string letters = spec.result;
    for (size_t i = 0; i < shape.size(); ++i) letters[(*places)[i]] = spec.result[i];
    if (letters == spec.result) return std::nullopt;
    spec.result = letters;
    return Contraction(e, e.Operand(m.Class("x")), e.Operand(m.Class("z")), spec);
  };
  return {{.premises = {"?y = (IndexMap[?map] ?c)", "?c = (Contract[?spec] ?x ?z)"},
           .conditions = {t.IsView("map")},
           .apply = t.Equal("y", build)}};
}

void ContractPermutedExample(ExampleBuilder& e) {
  const Expr batch = e.Size(2), rows = e.Size(2), k = e.Size(), columns = e.Size(2);
  const NodeId x = e.Input({batch, rows, k}), z = e.Input({k, columns});
  const NodeId c = e.x().Add(Op::kContract, {x, z}, {{"spec", "bmk,kn->bmn"}});
  e.Output(e.x().Map(c, {columns, batch, rows}, {Expr::Axis(1), Expr::Axis(2), Expr::Axis(0)}));
}

}  // namespace

std::vector<RuleRow> ContractionRows() {
  constexpr std::string_view kFamily = "algebra";
  constexpr RuleClass kReassociating = RuleClass::kReassociating;
  return {
      {"weight_takes_scale", kFamily, kReassociating,
       "contract(x*s, w) = contract(x, w*s), contract(x, w)*s = contract(x, w*s) for numbers s "
       "of at most 1, weights w",
       WeightTakesScale, nullptr, nullptr, WeightTakesScaleExample},
      {"contract_gives_scale", kFamily, kReassociating,
       "contract(x*s, z) = contract(x, z)*s for numbers s of at least 1", ContractGivesScale,
       nullptr, nullptr, ContractGivesScaleExample},
      {"attention_takes_scale", kFamily, kReassociating,
       "attention(q*s, k, v) = attention(q, k, v) with s times the scale, s at least 1",
       AttentionTakesScale, nullptr, nullptr, AttentionTakesScaleExample},
      {"weight_takes_factor", kFamily, kReassociating,
       "contract(x*repeat(g), w) = contract(x, repeat(g)*w) for weights g, w along axes of w, "
       "bounded g*w",
       WeightTakesFactor, nullptr, nullptr, WeightTakesFactorExample},
      {"contract_splits_sum", kFamily, kReassociating,
       "contract(x, z) = sum(contract(x, z) of each of 4 or 16 pieces of the sums), sums that are "
       "long beside the results",
       ContractSplitsSum, nullptr, nullptr, ContractSplitsSumExample},
  };
}

std::vector<RuleRow> ContractionLayoutRows() {
  constexpr std::string_view kFamily = "layout";
  constexpr RuleClass kExact = RuleClass::kExact, kReassociating = RuleClass::kReassociating;
  return {
      {"contract_reads_through", kFamily, kReassociating,
       "contract(view(x), z) = contract(x, z) with other letters", ContractReadsThrough, nullptr,
       nullptr, ContractReadsThroughExample},
      {"contract_permuted", kFamily, kExact,
       "permute(contract(x, z)) = contract(x, z) with its result's letters permuted",
       ContractPermuted, nullptr, nullptr, ContractPermutedExample},
  };
}

}  // namespace athanor
