// Algebra that regroups sums of products. It holds if no value that is taken out of a sum, or added
// before its multiplication, is infinite. The facts about values decide that.
#include <algorithm>
#include <string>
#include <utility>

#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"

namespace athanor {
namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;
using Axes = std::vector<int64_t>;

bool Has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// Returns the size of a letter for operands of these shapes.
Expr SizeOf(const ContractSpec& spec, const Shape& lhs, const Shape& rhs, char letter) {
  return Has(spec.lhs, letter) ? lhs[spec.lhs.find(letter)] : rhs[spec.rhs.find(letter)];
}

// Reports whether no sum of the contraction is empty: an empty sum is 0 under any scale.
bool SumsSomething(const RowTerms& t, const ContractSpec& spec, const Shape& lhs,
                   const Shape& rhs) {
  for (const char letter : spec.lhs + spec.rhs) {
    if (Has(spec.result, letter)) continue;
    if (!t.facts().bounds().NonNegative(SizeOf(spec, lhs, rhs, letter) - 1)) return false;
  }
  return true;
}

// Returns the number of elements of a weight.
int64_t Elements(const Shape& shape) {
  int64_t elements = 1;
  for (const Expr& size : shape) elements *= size.constant().value_or(0);
  return elements;
}

// --- Factors ---

// For factors that are not constants, the two rows hold in exact arithmetic but are approximate
// here. A factor of 0 or near it, such as a mask's or the reciprocal of a norm, keeps a sum finite
// that overflows without it, and then 0 times infinity is NaN. No fact says that a factor is at
// least 1.
Specs ContractGivesFactor(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const ContractSpec spec = t.SpecOf(m, "spec");
    const NodeId x = e.Operand(m.Class("x")), z = e.Operand(m.Class("z"));
    if (!SumsSomething(t, spec, e.Type(x).shape, e.Type(z).shape)) return std::nullopt;
    const std::optional<NodeId> factor = ReadAlong(e, e.Operand(m.Class("r")), *t.View(m, "map"),
                                                   spec.lhs, spec.result, t.ShapeOf(m, "y"));
    if (!factor) return std::nullopt;
    return e.x().Add(Op::kMul, {Contraction(e, x, z, spec), *factor});
  };
  return Orders({.name = "contract_gives_factor",
                 .premises = {"?y = (Contract~[?spec] (Mul~ ?x (IndexMap[?map] ?r)) ?z)"},
                 .conditions = {t.HasWideDType("y"), t.IsNoWeight("y"), t.IsView("map"),
                                t.IsNotUniform("r"), t.IsBounded("r")},
                 .apply = t.Equal("y", build)});
}

void ContractGivesFactorExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), rows = e.Size(), k = e.Size(1), columns = e.Size();
  const NodeId x = e.Input({batch, rows, k}, WideDType(e));
  const NodeId z = e.Input({k, columns}, WideDType(e));
  const NodeId r = e.x().Add(Op::kTanh, {e.Input({batch, rows}, WideDType(e))});
  const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().Repeat(r, 2, {batch, rows, k})});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {scaled, z}, {{"spec", "bmk,kn->nbm"}})
                    : e.x().Add(Op::kContract, {z, scaled}, {{"spec", "kn,bmk->bmn"}}));
}

Specs SumGivesFactor(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId x = e.Operand(m.Class("x"));
    const Shape shape = e.Type(x).shape;
    const Axes axes = GetAttr<Axes>(t.AttrsOf(m, "axes"), "axes");
    std::string letters, kept;
    for (size_t i = 0; i < shape.size(); ++i) {
      letters += static_cast<char>('a' + i);
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) {
        kept += letters.back();
      } else if (!t.facts().bounds().NonNegative(shape[i] - 1)) {
        return std::nullopt;
      }
    }
    const std::optional<NodeId> factor =
        ReadAlong(e, e.Operand(m.Class("r")), *t.View(m, "map"), letters, kept, t.ShapeOf(m, "y"));
    if (!factor) return std::nullopt;
    return e.x().Add(Op::kMul, {e.x().Reduce(Op::kSumReduce, x, axes), *factor});
  };
  return Orders(
      {.name = "sum_gives_factor",
       .premises = {"?y = (SumReduce[?axes] (Mul~ ?x (IndexMap[?map] ?r)))"},
       .conditions = {t.HasWideDType("y"), t.IsView("map"), t.IsNotUniform("r"), t.IsBounded("r")},
       .apply = t.Equal("y", build)});
}

void SumGivesFactorExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), k = e.Size(1), columns = e.Size();
  const NodeId x = e.Input({rows, k, columns}, WideDType(e));
  const NodeId r = e.x().Add(Op::kSin, {e.Input({rows, columns}, WideDType(e))});
  const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().Repeat(r, 1, {rows, k, columns})});
  e.Output(e.x().Reduce(Op::kSumReduce, scaled, {1}));
}

Specs WeightTakesFactorAfter(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const ContractSpec spec = t.SpecOf(m, "spec");
    const NodeId x = e.Operand(m.Class("x")), w = e.Operand(m.Class("w"));
    const Shape shape = e.Type(w).shape;
    if (!SumsSomething(t, spec, e.Type(x).shape, shape)) return std::nullopt;
    const std::optional<NodeId> factor =
        ReadAlong(e, e.Operand(m.Class("g")), *t.View(m, "map"), spec.result, spec.rhs, shape);
    if (!factor) return std::nullopt;
    return Contraction(e, x, e.x().Add(Op::kMul, {w, *factor}), spec);
  };
  return Orders(
      {.name = "weight_takes_factor_after",
       .premises = {"?y = (Mul~ (Contract~[?spec] ?x ?w) (IndexMap[?map] ?g))"},
       .conditions = {t.HasWideDType("y"), t.IsWeight("w"), t.IsWeight("g"), t.IsNoWeight("x"),
                      t.IsView("map"), t.IsNotUniform("g"), t.IsProductBounded("w", "g")},
       .apply = t.Equal("y", build)});
}

void WeightTakesFactorAfterExample(ExampleBuilder& e) {
  const Expr rows = e.Size();
  const int64_t k = e.ConstantSize(1), n = e.ConstantSize(2);
  const NodeId x = e.Input({rows, k}, WideDType(e)), w = e.BoundedParameter({k, n}, WideDType(e));
  const NodeId y = e.Coin() ? e.x().Add(Op::kContract, {x, w}, {{"spec", "mk,kn->mn"}})
                            : e.x().Add(Op::kContract, {w, x}, {{"spec", "kn,mk->mn"}});
  const NodeId g = e.x().Map(e.Constant({n}, WideDType(e)), {rows, n}, {Expr::Axis(1)});
  e.Output(e.Coin() ? e.x().Add(Op::kMul, {y, g}) : e.x().Add(Op::kMul, {g, y}));
}

// --- Biases ---

// Approximate: where x is near -b, x + b is small and keeps all of its digits, but contract(x, w) +
// contract(b, w) loses them by cancellation.
Specs ContractSplitsBias(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const ContractSpec spec = t.SpecOf(m, "spec");
    const NodeId x = e.Operand(m.Class("x")), w = e.Operand(m.Class("w"));
    ContractSpec once;  // contracts the bias along the axes it shares with w
    Shape shape;
    for (size_t i = 0; i < spec.lhs.size(); ++i) {
      if (!Has(spec.rhs, spec.lhs[i])) {
        if (!Has(spec.result, spec.lhs[i])) return std::nullopt;
        continue;
      }
      once.lhs += spec.lhs[i];
      shape.push_back(e.Type(w).shape[spec.rhs.find(spec.lhs[i])]);
    }
    once.rhs = spec.rhs;
    std::vector<Expr> coordinates;
    for (size_t i = 0; i < spec.result.size(); ++i) {
      if (!Has(spec.rhs, spec.result[i])) continue;
      once.result += spec.result[i];
      coordinates.push_back(Expr::Axis(static_cast<int>(i)));
    }
    const std::optional<NodeId> bias =
        ReadAlong(e, e.Operand(m.Class("b")), *t.View(m, "map"), spec.lhs, once.lhs, shape);
    if (!bias) return std::nullopt;
    const int magnitude = t.MagnitudeOfContract(t.FactsOf(m, "b").values, t.FactsOf(m, "w").values,
                                                {e.Type(*bias), e.Type(w)}, once);
    if (!HasHeadroom(magnitude, e.Type(w).dtype)) return std::nullopt;
    const NodeId shift = Contraction(e, *bias, w, once);
    return e.x().Add(Op::kAdd, {Contraction(e, x, w, spec),
                                e.x().Map(shift, t.ShapeOf(m, "y"), std::move(coordinates))});
  };
  return Orders({.name = "contract_splits_bias",
                 .premises = {"?y = (Contract~[?spec] (Add~ ?x (IndexMap[?map] ?b)) ?w)"},
                 .conditions = {t.HasWideDType("y"), t.IsWeight("w"), t.IsWeight("b"),
                                t.IsNoWeight("x"), t.IsView("map"), t.IsBounded("w")},
                 .apply = t.Equal("y", build)});
}

void ContractSplitsBiasExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), rows = e.Size();
  const int64_t k = e.ConstantSize(2), n = e.ConstantSize();
  const NodeId x = e.Input({batch, rows, k}, WideDType(e));
  const NodeId w =
      e.Coin() ? e.Constant({k, n}, WideDType(e)) : e.BoundedParameter({k, n}, WideDType(e));
  const NodeId b =
      e.x().Map(e.BoundedParameter({k}, WideDType(e)), {batch, rows, k}, {Expr::Axis(2)});
  const NodeId shifted = e.Coin() ? e.x().Add(Op::kAdd, {x, b}) : e.x().Add(Op::kAdd, {b, x});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {shifted, w}, {{"spec", "bmk,kn->bmn"}})
                    : e.x().Add(Op::kContract, {w, shifted}, {{"spec", "kn,bmk->nbm"}}));
}

// Merges the bias that a contraction gives off with its other bias. Only for contractions: if the
// sum with `a` cancels, rounding `a+b` loses no more than the contraction's own rounding.
Specs BiasesAdd(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId a = e.Operand(m.Class("a")), b = e.Operand(m.Class("b"));
    if (e.Type(a).shape != e.Type(b).shape) return std::nullopt;
    const DType dtype = e.Type(a).dtype;
    const int magnitude = MagnitudeOfSum(
        std::max(t.FactsOf(m, "a").values.magnitude, t.FactsOf(m, "b").values.magnitude), 2);
    if (!HasHeadroom(magnitude, dtype)) return std::nullopt;
    const IndexMap& map = *t.View(m, "map");
    const NodeId sum = e.x().Add(Op::kAdd, {a, b});
    return e.x().Add(Op::kAdd,
                     {e.Operand(m.Class("x")), e.x().Map(sum, map.shape, map.coordinates)});
  };
  return Orders(
      {.name = "biases_add",
       .premises = {"?y = (Add~ (Add~ ?x (IndexMap[?map] ?a)) (IndexMap[?map] ?b))",
                    "?x = (Contract[?product] ?l ?r)"},
       .conditions = {t.HasWideDType("y"), t.IsWeight("a"), t.IsWeight("b"), t.IsNoWeight("x"),
                      t.IsView("map"), t.IsNotUniform("a"), t.IsNotUniform("b")},
       .apply = t.Equal("y", build)});
}

void BiasesAddExample(ExampleBuilder& e) {
  const Expr rows = e.Size();
  const int64_t k = e.ConstantSize(), n = e.ConstantSize(2);
  const NodeId l = e.Input({rows, k}, WideDType(e)), r = e.Input({k, n}, WideDType(e));
  const NodeId x = e.x().Add(Op::kContract, {l, r}, {{"spec", "mk,kn->mn"}});
  const auto bias = [&] {
    return e.x().Map(e.BoundedParameter({n}, WideDType(e)), {rows, n}, {Expr::Axis(1)});
  };
  const NodeId once = e.x().Add(Op::kAdd, {x, bias()});
  e.Output(e.Coin() ? e.x().Add(Op::kAdd, {once, bias()}) : e.x().Add(Op::kAdd, {bias(), once}));
}

// --- Contractions of contractions ---

// Renames the inner contraction's letters for the outer one: the letters of its result are the
// outer's left letters, others get new ones. Returns nullopt if the alphabet is too short.
std::optional<ContractSpec> Renamed(const ContractSpec& inner, const ContractSpec& outer) {
  std::string taken = outer.lhs + outer.rhs;
  ContractSpec renamed;
  std::string from = inner.result, to = outer.lhs;
  for (const char letter : inner.lhs + inner.rhs) {
    if (Has(from, letter)) continue;
    char fresh = 'a';
    while (fresh <= 'z' && Has(taken, fresh)) ++fresh;
    if (fresh > 'z') return std::nullopt;
    taken += fresh;
    from += letter;
    to += fresh;
  }
  for (const char letter : inner.lhs) renamed.lhs += to[from.find(letter)];
  for (const char letter : inner.rhs) renamed.rhs += to[from.find(letter)];
  renamed.result = outer.lhs;
  return renamed;
}

Specs WeightsContract(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const ContractSpec outer = t.SpecOf(m, "outer");
    const std::optional<ContractSpec> inner = Renamed(t.SpecOf(m, "inner"), outer);
    const NodeId a = e.Operand(m.Class("a")), b = e.Operand(m.Class("b"));
    const NodeId c = e.Operand(m.Class("c"));
    if (!inner || !SumsSomething(t, *inner, e.Type(a).shape, e.Type(b).shape) ||
        !SumsSomething(t, outer, t.ShapeOf(m, "x"), e.Type(c).shape)) {
      return std::nullopt;
    }
    ContractSpec weights{inner->rhs, outer.rhs, ""};
    for (const char letter : inner->rhs + outer.rhs) {
      const bool needed = Has(inner->lhs, letter) || Has(outer.result, letter);
      if (needed && !Has(weights.result, letter)) weights.result += letter;
    }
    if (t.MagnitudeOfContract(t.FactsOf(m, "b").values, t.FactsOf(m, "c").values,
                              {e.Type(b), e.Type(c)}, weights) == ValueFacts::kUnknown) {
      return std::nullopt;
    }
    // Pays only if the joined weight is no larger than the two together.
    const NodeId joined = Contraction(e, b, c, weights);
    if (!e.x().status().ok() ||
        Elements(e.Type(joined).shape) > Elements(e.Type(b).shape) + Elements(e.Type(c).shape)) {
      return std::nullopt;
    }
    return Contraction(e, a, joined, {inner->lhs, weights.result, outer.result});
  };
  return Orders({.name = "weights_contract",
                 .premises = {"?y = (Contract~[?outer] ?x ?c)", "?x = (Contract~[?inner] ?a ?b)"},
                 .conditions = {t.HasWideDType("y"), t.IsWeight("b"), t.IsWeight("c"),
                                t.IsNoWeight("a"), t.IsBounded("a"), t.IsBounded("c")},
                 .apply = t.Equal("y", build)});
}

void WeightsContractExample(ExampleBuilder& e) {
  const Expr rows = e.Size();
  const int64_t j = e.ConstantSize(1), k = e.ConstantSize(1);
  const int64_t n = e.Pick(1, k);  // otherwise the joined weight may be larger
  const NodeId a = e.x().Add(Op::kErf, {e.Input({rows, j}, WideDType(e))});
  const NodeId b = e.BoundedParameter({j, k}, WideDType(e));
  const NodeId c =
      e.Coin() ? e.Constant({k, n}, WideDType(e)) : e.BoundedParameter({k, n}, WideDType(e));
  const NodeId x = e.Coin() ? e.x().Add(Op::kContract, {a, b}, {{"spec", "mj,jk->mk"}})
                            : e.x().Add(Op::kContract, {b, a}, {{"spec", "jk,mj->mk"}});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {x, c}, {{"spec", "mk,kn->mn"}})
                    : e.x().Add(Op::kContract, {c, x}, {{"spec", "kn,mk->nm"}}));
}

// Contracts the rows of a table once per model, if that makes the table no larger.
Specs TableContracts(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    ContractSpec spec = t.SpecOf(m, "spec");
    const NodeId table = e.Operand(m.Class("t")), w = e.Operand(m.Class("w"));
    const auto axis = static_cast<size_t>(GetAttr<int64_t>(t.AttrsOf(m, "gather"), "axis"));
    const size_t rank = t.ShapeOf(m, "ids").size();
    if (rank == 0) return std::nullopt;
    const std::string ids = spec.lhs.substr(axis, rank);
    const size_t place = spec.result.find(ids);
    if (place == std::string::npos) return std::nullopt;
    for (const char letter : ids) {
      if (Has(spec.rhs, letter)) return std::nullopt;
    }
    // The first letter of the indices is used for the rows of the table.
    spec.lhs.replace(axis, rank, ids.substr(0, 1));
    spec.result.replace(place, rank, ids.substr(0, 1));
    const NodeId contracted = Contraction(e, table, w, spec);
    if (!e.x().status().ok() ||
        Elements(e.Type(contracted).shape) > Elements(e.Type(table).shape)) {
      return std::nullopt;
    }
    return e.x().Add(Op::kGather, {contracted, e.Operand(m.Class("ids"))},
                     {{"axis", static_cast<int64_t>(place)}});
  };
  return Orders({.name = "table_contracts",
                 .premises = {"?y = (Contract~[?spec] (Gather[?gather] ?t ?ids) ?w)"},
                 .conditions = {t.IsWeight("t"), t.IsWeight("w"), t.IsNoWeight("ids")},
                 .apply = t.Equal("y", build)});
}

void TableContractsExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const int64_t words = e.ConstantSize(1), width = e.ConstantSize(1), n = e.Pick(1, width);
  const NodeId table = e.Parameter({words, width}), w = e.Parameter({width, n});
  const NodeId ids = e.Indices({rows, columns}, words);
  const NodeId x = e.x().Add(Op::kGather, {table, ids}, {{"axis", int64_t{0}}});
  e.Output(e.Coin() ? e.x().Add(Op::kContract, {x, w}, {{"spec", "bsk,kn->bsn"}})
                    : e.x().Add(Op::kContract, {w, x}, {{"spec", "kn,bsk->nbs"}}));
}

}  // namespace

std::vector<RuleRow> BoundedRows() {
  constexpr std::string_view kFamily = "algebra";
  constexpr RuleClass kExact = RuleClass::kExact, kReassociating = RuleClass::kReassociating;
  return {
      {"contract_gives_factor", kFamily, RuleClass::kApproximate,
       "contract(x*repeat(r), z) = contract(x, z)*repeat(r) for bounded r that is not summed",
       ContractGivesFactor, nullptr, nullptr, ContractGivesFactorExample},
      {"sum_gives_factor", kFamily, RuleClass::kApproximate,
       "sum(x*repeat(r)) = sum(x)*r for bounded r that is not summed", SumGivesFactor, nullptr,
       nullptr, SumGivesFactorExample},
      {"weight_takes_factor_after", kFamily, kReassociating,
       "contract(x, w)*repeat(g) = contract(x, w*repeat(g)) for weights w, g, bounded w*g",
       WeightTakesFactorAfter, nullptr, nullptr, WeightTakesFactorAfterExample},
      {"contract_splits_bias", kFamily, RuleClass::kApproximate,
       "contract(x+repeat(b), w) = contract(x, w) + repeat(contract(b, w)), weights b, w, "
       "contract(b, w) far from overflow",
       ContractSplitsBias, nullptr, nullptr, ContractSplitsBiasExample},
      {"biases_add", kFamily, kReassociating,
       "(x+repeat(a))+repeat(b) = x+repeat(a+b), x a contraction, weights a, b far from overflow",
       BiasesAdd, nullptr, nullptr, BiasesAddExample},
      {"weights_contract", kFamily, kReassociating,
       "contract(contract(a, b), c) = contract(a, contract(b, c)), weights b, c, bounded a, c, "
       "contract(b, c)",
       WeightsContract, nullptr, nullptr, WeightsContractExample},
      {"table_contracts", kFamily, kExact,
       "contract(gather(t, ids), w) = gather(contract(t, w), ids) for weights t, w", TableContracts,
       nullptr, nullptr, TableContractsExample},
  };
}

}  // namespace athanor
