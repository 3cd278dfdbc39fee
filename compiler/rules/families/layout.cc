// The family `layout`: merges views of views and moves views past other ops. It moves only
// permutations, repetitions and axes of size 1, so that saturation ends soon. Rows about the
// letters of contractions are in algebra_contract.cc.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"

namespace athanor {
namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;
using Axes = std::vector<int64_t>;

constexpr size_t kMaxCoordinateText = 400;

// Reports whether the map is small: reshapes of reshapes without common factors grow with every
// step.
bool IsSimple(const IndexMap& map) {
  return std::all_of(map.coordinates.begin(), map.coordinates.end(),
                     [](const Expr& c) { return c.ToString().size() <= kMaxCoordinateText; });
}

Specs ViewOfView(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId x = e.Operand(m.Class("x"));
    const Shape shape = e.Type(x).shape;
    // The inner map's fill applies wherever its own coordinates are outside.
    Attrs attrs = t.AttrsOf(m, "inner");
    IndexMap map =
        ComposeMaps(*t.View(m, "outer"), GetAttr<IndexMap>(attrs, "map"), t.facts().bounds());
    if (!IsSimple(map)) return std::nullopt;
    Attrs inside = {{"map", map}};
    const egraph::PayloadId payload = t.language().Intern(Op::kIndexMap, inside);
    // Inference proves whether the composed map stays inside x.
    if (!t.facts().Infer(Op::kIndexMap, payload, {e.Type(x)}).ok()) {
      if (!attrs.contains("fill")) return std::nullopt;  // not proved for both maps together
      attrs.insert_or_assign("map", std::move(map));
      return e.x().Add(Op::kIndexMap, {x}, std::move(attrs));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i].IsConstant(1)) map.coordinates[i] = 0;
    }
    if (IsIdentityMap(map, shape)) return x;
    return e.x().Map(x, map.shape, map.coordinates);
  };
  return {{.premises = {"?y = (IndexMap[?outer] (IndexMap[?inner] ?x))"},
           .conditions = {t.IsView("outer")},
           .apply = t.Equal("y", build)}};
}

void ViewOfViewExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId x = e.Input({rows, 6, columns});
  const NodeId turned =
      e.x().Map(x, {6, columns, rows}, {Expr::Axis(2), Expr::Axis(0), Expr::Axis(1)});
  const Expr both = 2 * Expr::Axis(0) + Expr::Axis(1);
  e.Output(e.x().Map(turned, {3, 2, rows, columns}, {both, Expr::Axis(3), Expr::Axis(2)}));
  const NodeId padded = e.x().Add(
      Op::kIndexMap, {x},
      {{"map", IndexMap{{rows, 8, columns}, {Expr::Axis(0), Expr::Axis(1) - 1, Expr::Axis(2)}}},
       {"fill", Tensor::Zeros(e.dtype(), {})}});
  e.Output(
      e.x().Map(padded, {rows, 3, columns}, {Expr::Axis(0), 2 * Expr::Axis(1), Expr::Axis(2)}));
}

Specs ViewOfAll(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition same("changes nothing", {"map", "x"}, [t](const Match& m) {
    const IndexMap* map = t.View(m, "map");
    return map != nullptr && IsIdentityMap(*map, t.ShapeOf(m, "x"));
  });
  return {{.premises = {"(IndexMap[?map] ?x)"}, .conclusions = {"?x"}, .conditions = {same}}};
}

void ViewOfAllExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId x = e.Input({rows, columns, 1});
  e.Output(e.x().Map(x, {rows, columns, 1}, {Expr::Axis(0), Expr::Axis(1), 0}));
}

// --- Elementwise ops ---

std::string PatternOf(const OpRow& row, const std::string& children) {
  return std::string(row.name) + (row.attrs.empty() ? "" : "[?attrs]") + " " + children;
}

Attrs AttrsOrNone(const RowTerms& t, const Match& m) {
  return m.Payload("attrs").valid() ? t.AttrsOf(m, "attrs") : Attrs();
}

// Rewrites op(view(x)...) as view(op(x...)); an operand that is one number is used in x's shape.
RowTerms::Builder OpBelowView(const RowTerms& t, Op op, std::vector<std::string> operands) {
  return [t, op, operands](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const IndexMap map = *t.View(m, "map");
    const auto viewed = std::find_if(operands.begin(), operands.end(),
                                     [](const std::string& name) { return name[0] == 'x'; });
    const Shape shape = t.ShapeOf(m, *viewed);
    if (!AxesOfMap(map, shape)) return std::nullopt;
    std::vector<NodeId> inputs;
    for (const std::string& name : operands) {
      const NodeId operand = e.Operand(m.Class(name));
      if (name[0] == 'x' && e.Type(operand).shape != shape) return std::nullopt;
      if (name[0] == 'x') {
        inputs.push_back(operand);
        continue;
      }
      const std::optional<double> number = t.Uniform(m, name);
      if (!number) return std::nullopt;
      inputs.push_back(e.x().Fill(e.Type(operand).dtype, *number, shape));
    }
    const NodeId below = e.x().Add(op, std::move(inputs), AttrsOrNone(t, m));
    if (!e.x().status().ok()) return below;
    return e.x().Map(below, map.shape, map.coordinates);
  };
}

Specs ViewsRise(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  Specs specs;
  const std::string x0 = "(IndexMap[?map] ?x0)", x1 = "(IndexMap[?map] ?x1)",
                    x2 = "(IndexMap[?map] ?x2)";
  for (const OpRow& row : OpTable()) {
    if (row.op_class != OpClass::kElementwise) continue;
    const auto add = [&](const std::string& form, const std::string& children,
                         std::vector<std::string> operands,
                         std::vector<egraph::Condition> conditions) {
      conditions.push_back(t.IsView("map"));
      specs.push_back({.name = "views_rise." + std::string(row.name) + form,
                       .premises = {"?y = (" + PatternOf(row, children) + ")"},
                       .conditions = std::move(conditions),
                       .apply = t.Equal("y", OpBelowView(t, row.op, std::move(operands)))});
    };
    // All operands must be read through the same view. A number counts as one, because it equals
    // every view of itself.
    if (row.max_inputs == 1) add("", x0, {"x0"}, {t.IsNotUniform("x0")});
    if (row.max_inputs == 3) add("", x0 + " " + x1 + " " + x2, {"x0", "x1", "x2"}, {});
    if (row.max_inputs != 2) continue;
    add("", x0 + " " + x1, {"x0", "x1"}, {});
    add(".left", x0 + " ?s", {"x0", "s"}, {t.IsUniform("s"), t.IsNotUniform("x0")});
    add(".right", "?s " + x1, {"s", "x1"}, {t.IsUniform("s"), t.IsNotUniform("x1")});
  }
  return specs;
}

void ViewsRiseExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size(), others = e.Size();
  const auto wide = [&](NodeId n) {
    return e.x().Map(n, {others, columns, rows, 1}, {Expr::Axis(2), Expr::Axis(1)});
  };
  const NodeId a = e.Input({rows, columns}), b = e.Input({rows, columns});
  const NodeId c = e.Input({rows, columns}, DType::kBool);
  e.Output(e.x().Add(Op::kExp, {wide(a)}));
  e.Output(e.x().Cast(wide(a), e.dtype() == DType::kF64 ? DType::kF32 : DType::kF64));
  e.Output(e.x().Add(Op::kAdd, {wide(a), wide(b)}));
  e.Output(e.x().Add(Op::kDiv, {e.x().FillLike(wide(a), 3), wide(a)}));
  e.Output(e.x().Add(Op::kSelect, {wide(c), wide(a), wide(b)}));
}

// Rewrites view(op(x...)) as op(view(x)...), for permutations.
Specs PermutationsSink(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition permutes("permutes", {"map", "z"}, [t](const Match& m) {
    const IndexMap* map = t.View(m, "map");
    return map != nullptr && PermutationOfMap(*map, t.ShapeOf(m, "z")).has_value();
  });
  const egraph::Condition computed = t.IsNoWeight("z");
  const egraph::Condition varies = t.IsNotUniform("z");
  Specs specs;
  for (const OpRow& row : OpTable()) {
    if (row.op_class != OpClass::kElementwise) continue;
    std::vector<std::string> operands;
    std::string children;
    for (int i = 0; i < row.max_inputs; ++i) {
      operands.push_back("x" + std::to_string(i));
      children += (i > 0 ? " ?" : "?") + operands.back();
    }
    const auto build = [t, op = row.op, operands](const Match& m,
                                                  TermExpansion& e) -> std::optional<NodeId> {
      const IndexMap map = *t.View(m, "map");
      std::vector<NodeId> inputs;
      for (const std::string& name : operands) {
        inputs.push_back(e.x().Map(e.Operand(m.Class(name)), map.shape, map.coordinates));
      }
      return e.x().Add(op, std::move(inputs), AttrsOrNone(t, m));
    };
    specs.push_back(
        {.name = "permutations_sink." + std::string(row.name),
         .premises = {"?y = (IndexMap[?map] ?z)", "?z = (" + PatternOf(row, children) + ")"},
         .conditions = {permutes, computed, varies},
         .apply = t.Equal("y", build)});
  }
  return specs;
}

void PermutationsSinkExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const auto turned = [&](NodeId n) {
    return e.x().Map(n, {columns, 1, rows}, {Expr::Axis(2), Expr::Axis(0)});
  };
  const NodeId a = e.Input({rows, columns}), b = e.Input({rows, columns});
  const NodeId c = e.Input({rows, columns}, DType::kBool);
  e.Output(turned(e.x().Add(Op::kSqrt, {a})));
  e.Output(turned(e.x().Add(Op::kMul, {a, b})));
  e.Output(turned(e.x().Add(Op::kSelect, {c, a, b})));
}

// --- Reductions ---

template <Op kOp>
Specs ReducePermuted(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const NodeId x = e.Operand(m.Class("x"));
    const IndexMap map = *t.View(m, "map");
    const auto& reduced = GetAttr<Axes>(t.AttrsOf(m, "axes"), "axes");
    const std::optional<std::vector<int>> places = PermutationOfMap(map, e.Type(x).shape);
    if (!places) return std::nullopt;
    std::vector<int> axis_after(map.shape.size(), -1);  // for each axis of the view, if it is kept
    Shape shape;
    for (size_t j = 0; j < map.shape.size(); ++j) {
      if (std::find(reduced.begin(), reduced.end(), j) != reduced.end()) continue;
      axis_after[j] = static_cast<int>(shape.size());
      shape.push_back(map.shape[j]);
    }
    Axes axes;
    std::vector<Expr> coordinates;
    for (size_t i = 0; i < places->size(); ++i) {
      const int place = (*places)[i];
      if (place >= 0 && axis_after[place] < 0) {
        axes.push_back(static_cast<int64_t>(i));
      } else {
        coordinates.push_back(place < 0 ? Expr(0) : Expr::Axis(axis_after[place]));
      }
    }
    const NodeId below = e.x().Reduce(kOp, x, std::move(axes));
    if (IsIdentityMap({shape, coordinates}, e.Type(below).shape)) return below;
    return e.x().Map(below, shape, std::move(coordinates));
  };
  const std::string op(OpName(kOp));
  return {{.premises = {"?y = (" + op + "[?axes] (IndexMap[?map] ?x))"},
           .conditions = {t.IsView("map")},
           .apply = t.Equal("y", build)}};
}

template <Op kOp>
void ReducePermutedExample(ExampleBuilder& e) {
  const Expr a = e.Size(), b = e.Size(), c = e.Size();
  const NodeId x = e.Input({a, b, 1, c});
  const NodeId turned =
      e.x().Map(x, {c, 1, a, b}, {Expr::Axis(2), Expr::Axis(3), 0, Expr::Axis(0)});
  e.Output(e.x().Reduce(kOp, turned, e.Coin() ? Axes{0} : Axes{1, 2}));
}

}  // namespace

std::vector<RuleRow> LayoutRows() {
  constexpr std::string_view kFamily = "layout";
  constexpr RuleClass kExact = RuleClass::kExact, kReassociating = RuleClass::kReassociating;
  std::vector<RuleRow> rows = {
      {"view_of_view", kFamily, kExact, "view(view(x)) = view(x)", ViewOfView, nullptr, nullptr,
       ViewOfViewExample},
      {"view_of_all", kFamily, kExact, "view(x) = x where it changes nothing", ViewOfAll, nullptr,
       nullptr, ViewOfAllExample},
      {"views_rise", kFamily, kExact,
       "f(view(x), view(z)) = view(f(x, z)) for permutations and repetitions", ViewsRise, nullptr,
       nullptr, ViewsRiseExample},
      {"permutations_sink", kFamily, kExact, "permute(f(x, z)) = f(permute(x), permute(z))",
       PermutationsSink, nullptr, nullptr, PermutationsSinkExample},
      {"sum_of_permuted", kFamily, kReassociating, "sum(permute(x)) = permute(sum(x))",
       ReducePermuted<Op::kSumReduce>, nullptr, nullptr, ReducePermutedExample<Op::kSumReduce>},
      {"max_of_permuted", kFamily, kExact, "max(permute(x)) = permute(max(x))",
       ReducePermuted<Op::kMaxReduce>, nullptr, nullptr, ReducePermutedExample<Op::kMaxReduce>},
      // This row is a switch: compiler/search joins regions at their boundaries.
      {.name = "boundary_layouts",
       .family = kFamily,
       .algebra = "a value between two regions may be stored with its axes in another order"},
  };
  for (const RuleRow& row : ContractionLayoutRows()) rows.push_back(row);
  return rows;
}

}  // namespace athanor
