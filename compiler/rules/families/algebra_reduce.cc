// Algebra of sums and maxima over axes.
#include <algorithm>
#include <cmath>

#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"

namespace athanor {
namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;
using Axes = std::vector<int64_t>;

const Axes& AxesOf(const RowTerms& t, const Match& m, std::string_view variable) {
  return GetAttr<Axes>(t.AttrsOf(m, variable), "axes");
}

Specs SumOfScaled(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    if (!s) return std::nullopt;
    const NodeId sum = e.x().Reduce(Op::kSumReduce, e.Operand(m.Class("x")), AxesOf(t, m, "axes"));
    return e.x().Add(Op::kMul, {sum, e.x().FillLike(sum, *s)});
  };
  return Orders({.name = "sum_of_scaled",
                 .premises = {"?y = (SumReduce[?axes] (Mul~ ?x ?s))"},
                 .conditions = {t.HasWideDType("y"), t.IsNotUniform("x"), LeavesSum(t, "s")},
                 .apply = t.Equal("y", build)});
}

void SumOfScaledExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size(), e.Size()}, WideDType(e));
  const double s = Number(e, -e.Pick(7, 16), 7);
  const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().FillLike(x, s)});
  e.Output(e.x().Reduce(Op::kSumReduce, scaled, e.Coin() ? Axes{0, 2} : Axes{1}));
}

// Rounding keeps the order, so the largest product is that of the largest element.
Specs MaxOfScaled(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    if (!s || *s <= 0 || !IsFloat(t.Type(m, "x").dtype)) return std::nullopt;
    const NodeId max = e.x().Reduce(Op::kMaxReduce, e.Operand(m.Class("x")), AxesOf(t, m, "axes"));
    return e.x().Add(Op::kMul, {max, e.x().FillLike(max, *s)});
  };
  return Orders({.name = "max_of_scaled",
                 .premises = {"?y = (MaxReduce[?axes] (Mul~ ?x ?s))"},
                 .conditions = {t.IsNotUniform("x"), t.IsFactor("s")},
                 .apply = t.Equal("y", build)});
}

void MaxOfScaledExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size(), e.Size()});
  const double s = static_cast<double>(e.Pick(1, 9)) / 7;
  const NodeId scaled = e.x().Add(Op::kMul, {e.x().FillLike(x, s), x});
  e.Output(e.x().Reduce(Op::kMaxReduce, scaled, e.Coin() ? Axes{0, 2} : Axes{1}));
}

// Returns the axes of the whole tensor that are reduced: `inner`, and `outer`, which counts the
// axes left by `inner`.
Axes JoinedAxes(const Axes& outer, const Axes& inner, size_t rank) {
  Axes kept, all = inner;
  for (int64_t i = 0; i < static_cast<int64_t>(rank); ++i) {
    if (std::find(inner.begin(), inner.end(), i) == inner.end()) kept.push_back(i);
  }
  for (const int64_t axis : outer) all.push_back(kept[axis]);
  std::sort(all.begin(), all.end());
  return all;
}

template <Op kOp>
Specs ReduceTwice(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId x = e.Operand(m.Class("x"));
    // Narrow dtypes round the result of the inner sum.
    if (kOp == Op::kSumReduce && !IsWide(e.Type(x).dtype)) return std::nullopt;
    return e.x().Reduce(
        kOp, x, JoinedAxes(AxesOf(t, m, "outer"), AxesOf(t, m, "inner"), e.Type(x).shape.size()));
  };
  const std::string op(OpName(kOp));
  return {{.premises = {"?y = (" + op + "[?outer] (" + op + "[?inner] ?x))"},
           .apply = t.Equal("y", build)}};
}

template <Op kOp>
void ReduceTwiceExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size(), e.Size(), e.Size()}, WideDType(e));
  const NodeId once = e.x().Reduce(kOp, x, e.Coin() ? Axes{1} : Axes{0, 2});
  e.Output(e.x().Reduce(kOp, once, e.Coin() ? Axes{1} : Axes{0}));
}

Specs ReduceNothing(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition none("has no axes", {"axes"},
                               [t](const Match& m) { return AxesOf(t, m, "axes").empty(); });
  Specs specs;
  for (const std::string op : {"SumReduce", "MaxReduce", "MulReduce"}) {
    specs.push_back({.name = "reduce_nothing." + op,
                     .premises = {"(" + op + "[?axes] ?x)"},
                     .conclusions = {"?x"},
                     .conditions = {none}});
  }
  return specs;
}

void ReduceNothingExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  constexpr Op kReductions[] = {Op::kSumReduce, Op::kMaxReduce, Op::kMulReduce};
  e.Output(e.x().Reduce(kReductions[e.Pick(0, 2)], x, {}));
}

}  // namespace

std::vector<RuleRow> ReductionRows() {
  constexpr std::string_view kFamily = "algebra";
  constexpr RuleClass kExact = RuleClass::kExact, kReassociating = RuleClass::kReassociating;
  return {
      {"sum_of_scaled", kFamily, kReassociating, "sum(x*s) = sum(x)*s for numbers s of at least 1",
       SumOfScaled, nullptr, nullptr, SumOfScaledExample},
      {"max_of_scaled", kFamily, kExact, "max(x*s) = max(x)*s for positive numbers s", MaxOfScaled,
       nullptr, nullptr, MaxOfScaledExample},
      {"sum_of_sums", kFamily, kReassociating, "sum(sum(x)) = sum(x) over both their axes",
       ReduceTwice<Op::kSumReduce>, nullptr, nullptr, ReduceTwiceExample<Op::kSumReduce>},
      {"max_of_maxima", kFamily, kExact, "max(max(x)) = max(x) over both their axes",
       ReduceTwice<Op::kMaxReduce>, nullptr, nullptr, ReduceTwiceExample<Op::kMaxReduce>},
      {"reduce_nothing", kFamily, kExact, "the sum, maximum or product over no axes is x",
       ReduceNothing, nullptr, nullptr, ReduceNothingExample},
  };
}

}  // namespace athanor
