#include "compiler/rules/families/row_terms.h"

#include <cmath>
#include <map>
#include <utility>

#include "compiler/egraph/graph/sexpr.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/sample/compare.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr std::string_view kSwapped = "~";  // suffix of the payload variable of a swapped operator

int CountMarks(const egraph::Sexpr& e) {
  int marks = e.head.back() == '~';
  for (const egraph::Sexpr& child : e.children) marks += CountMarks(child);
  return marks;
}

// Returns the text of `e`. Bit i of `orders` tells whether the i-th marked operator has its
// operands swapped.
std::string OrderedText(const egraph::Sexpr& e, uint32_t orders, int* mark) {
  const bool marked = e.head.back() == '~';
  const bool swapped = marked && ((orders >> (*mark)++) & 1) != 0;
  std::string text = marked ? e.head.substr(0, e.head.size() - 1) : e.head;
  if (e.payload) {
    const bool renamed = swapped && e.payload->starts_with('?');
    text += Cat("[", *e.payload, renamed ? kSwapped : "", "]");
  }
  if (e.atom) return text;
  std::vector<std::string> children;
  for (const egraph::Sexpr& child : e.children)
    children.push_back(OrderedText(child, orders, mark));
  if (swapped) std::swap(children[0], children[1]);
  for (const std::string& child : children) text += Cat(" ", child);
  return Cat("(", text, ")");
}

struct Premise {
  std::string root;  // "?y = ", or empty
  egraph::Sexpr pattern;
};

Premise ParsePremise(const std::string& text) {
  const size_t equals = text.find(" = ");
  const size_t begin = equals == std::string::npos || text[0] != '?' ? 0 : equals + 3;
  return {text.substr(0, begin), egraph::ParseSexpr(text.substr(begin)).value()};
}

}  // namespace

std::vector<egraph::RuleSpec> Orders(egraph::RuleSpec spec) {
  std::vector<Premise> premises;
  int marks = 0;
  for (const std::string& text : spec.premises) {
    premises.push_back(ParsePremise(text));
    marks += CountMarks(premises.back().pattern);
  }
  std::vector<egraph::RuleSpec> specs;
  // Makes a rule for each of the 2^marks ways to swap the marked operators.
  for (uint32_t orders = 0; orders < (uint32_t{1} << marks); ++orders) {
    egraph::RuleSpec ordered = spec;
    ordered.premises.clear();
    int mark = 0;
    for (const Premise& p : premises) {
      ordered.premises.push_back(p.root + OrderedText(p.pattern, orders, &mark));
    }
    if (orders > 0) ordered.name = Cat(spec.name, ".", orders);
    specs.push_back(std::move(ordered));
  }
  return specs;
}

std::vector<egraph::RuleSpec> Joined(std::vector<std::vector<egraph::RuleSpec>> parts) {
  std::vector<egraph::RuleSpec> all;
  for (std::vector<egraph::RuleSpec>& part : parts) {
    for (egraph::RuleSpec& spec : part) all.push_back(std::move(spec));
  }
  return all;
}

bool IsWide(DType dtype) { return Computes(dtype) && AccumulatorOf(dtype) == dtype; }

bool IsTame(double factor) {
  // Even the product of three such factors is a normal f32.
  constexpr int kMaxExponent = 40;
  return std::isfinite(factor) && factor != 0 && std::abs(std::ilogb(factor)) <= kMaxExponent;
}

bool HasHeadroom(int magnitude, DType dtype) {
  return magnitude < LargestExponent(dtype) + std::ilogb(UnitRoundoff(dtype));
}

IndexMap ComposeMaps(const IndexMap& outer, const IndexMap& inner, const Bounds& bounds) {
  std::map<std::string, Expr, std::less<>> at;
  for (size_t i = 0; i < outer.coordinates.size(); ++i) {
    at[Expr::Axis(static_cast<int>(i)).ToString()] = outer.coordinates[i];
  }
  Bounds axes = bounds;
  for (size_t i = 0; i < outer.shape.size(); ++i) {
    axes.SetExtent(Expr::Axis(static_cast<int>(i)).ToString(), outer.shape[i]);
  }
  IndexMap map{outer.shape, {}};
  for (const Expr& c : inner.coordinates)
    map.coordinates.push_back(axes.Simplify(c.Substitute(at)));
  return map;
}

bool IsIdentityMap(const IndexMap& map, const Shape& operand) {
  if (map.shape != operand) return false;
  for (size_t i = 0; i < operand.size(); ++i) {
    const bool same =
        map.coordinates[i] == Expr::Axis(static_cast<int>(i)) || operand[i].IsConstant(1);
    if (!same) return false;
  }
  return true;
}

std::optional<std::vector<int>> AxesOfMap(const IndexMap& map, const Shape& operand) {
  std::vector<int> axes(operand.size(), -1);
  std::vector<bool> taken(map.shape.size());
  for (size_t i = 0; i < operand.size(); ++i) {
    if (operand[i].IsConstant(1)) continue;
    for (size_t j = 0; j < map.shape.size(); ++j) {
      if (map.coordinates[i] == Expr::Axis(static_cast<int>(j))) axes[i] = static_cast<int>(j);
    }
    const int axis = axes[i];
    if (axis < 0 || taken[axis] || map.shape[axis] != operand[i]) return std::nullopt;
    taken[axis] = true;
  }
  // Any axis of size 1 may be used for another.
  size_t j = 0;
  for (size_t i = 0; i < operand.size(); ++i) {
    if (!operand[i].IsConstant(1)) continue;
    while (j < taken.size() && (taken[j] || !map.shape[j].IsConstant(1))) ++j;
    if (j < taken.size()) axes[i] = static_cast<int>(j++);
  }
  return axes;
}

std::optional<std::vector<int>> PermutationOfMap(const IndexMap& map, const Shape& operand) {
  std::optional<std::vector<int>> axes = AxesOfMap(map, operand);
  if (!axes) return std::nullopt;
  std::vector<bool> taken(map.shape.size());
  for (const int axis : *axes) {
    if (axis >= 0) taken[axis] = true;
  }
  for (size_t j = 0; j < map.shape.size(); ++j) {
    if (!taken[j] && !map.shape[j].IsConstant(1)) return std::nullopt;
  }
  return axes;
}

std::vector<bool> AxesUsed(const IndexMap& map) {
  std::vector<bool> used(map.shape.size());
  for (size_t j = 0; j < map.shape.size(); ++j) {
    const std::string axis = Expr::Axis(static_cast<int>(j)).ToString();
    for (const Expr& c : map.coordinates) used[j] = used[j] || c.Uses(axis);
  }
  return used;
}

const IndexMap* RowTerms::View(const egraph::Match& m, std::string_view variable) const {
  const Attrs& attrs = AttrsOf(m, variable);
  return attrs.contains("fill") ? nullptr : &GetAttr<IndexMap>(attrs, "map");
}

ContractSpec RowTerms::SpecOf(const egraph::Match& m, const std::string& variable) const {
  const bool swapped = !m.Payload(variable).valid();
  const Attrs& attrs = AttrsOf(m, swapped ? variable + std::string(kSwapped) : variable);
  ContractSpec spec = ContractSpec::Parse(GetAttr<std::string>(attrs, "spec")).value();
  if (swapped) std::swap(spec.lhs, spec.rhs);
  return spec;
}

egraph::Condition RowTerms::IsWeight(std::string variable) const {
  return egraph::Condition(
      "is a weight", {variable},
      [t = *this, variable](const egraph::Match& m) { return t.FactsOf(m, variable).weight; });
}

egraph::Condition RowTerms::IsNoWeight(std::string variable) const {
  return egraph::Condition(
      "is no weight", {variable},
      [t = *this, variable](const egraph::Match& m) { return !t.FactsOf(m, variable).weight; });
}

egraph::Condition RowTerms::IsStored(std::string variable) const {
  return egraph::Condition("is stored", {variable}, [t = *this, variable](const egraph::Match& m) {
    return t.FactsOf(m, variable).stored;
  });
}

egraph::Condition RowTerms::IsBounded(std::string variable) const {
  return egraph::Condition("is bounded", {variable}, [t = *this, variable](const egraph::Match& m) {
    return t.FactsOf(m, variable).values.bounded();
  });
}

egraph::Condition RowTerms::IsProductBounded(std::string a, std::string b) const {
  return egraph::Condition(
      "has a bounded product with", {a, b}, [t = *this, a, b](const egraph::Match& m) {
        const Facts &x = t.FactsOf(m, a), &y = t.FactsOf(m, b);
        const DType dtype = x.type.dtype;
        return ValueFactsOf(Op::kMul, {}, {x.values, y.values}, false, dtype, dtype).magnitude !=
               ValueFacts::kUnknown;
      });
}

int RowTerms::MagnitudeOfContract(const ValueFacts& lhs, const ValueFacts& rhs,
                                  absl::Span<const TensorType> types,
                                  const ContractSpec& spec) const {
  const Attrs attrs = {{"spec", spec.ToString()}};
  const DType dtype = types[0].dtype;
  return ValueFactsOf(Op::kContract, attrs, {lhs, rhs}, false, dtype, dtype,
                      MostTerms(Op::kContract, attrs, types, facts_->bounds()))
      .magnitude;
}

egraph::Condition RowTerms::IsUniform(std::string variable) const {
  return egraph::Condition("is uniform", {variable}, [t = *this, variable](const egraph::Match& m) {
    return t.Uniform(m, variable).has_value();
  });
}

egraph::Condition RowTerms::IsNotUniform(std::string variable) const {
  return egraph::Condition("is not uniform", {variable},
                           [t = *this, variable](const egraph::Match& m) {
                             return !t.Uniform(m, variable).has_value();
                           });
}

egraph::Condition RowTerms::UniformIs(std::string variable, double value) const {
  return egraph::Condition("is a number", {variable},
                           [t = *this, variable, value](const egraph::Match& m) {
                             return t.Uniform(m, variable) == value;
                           });
}

egraph::Condition RowTerms::IsFactor(std::string variable) const {
  return egraph::Condition("is a factor", {variable},
                           [t = *this, variable](const egraph::Match& m) {
                             const std::optional<double> value = t.Uniform(m, variable);
                             return value.has_value() && IsTame(*value);
                           });
}

egraph::Condition RowTerms::HasWideDType(std::string variable) const {
  return egraph::Condition(
      "accumulates in its own dtype", {variable},
      [t = *this, variable](const egraph::Match& m) { return IsWide(t.Type(m, variable).dtype); });
}

egraph::Condition RowTerms::IsView(std::string variable) const {
  return egraph::Condition(
      "has no fill", {variable},
      [t = *this, variable](const egraph::Match& m) { return t.View(m, variable) != nullptr; });
}

egraph::Applier RowTerms::Equal(std::string root, Builder builder) const {
  return [t = *this, root = std::move(root), builder = std::move(builder)](
             const egraph::Match& m, egraph::Rewriter* rewriter) -> absl::Status {
    TermExpansion e(t.language(), t.facts(), rewriter);
    const std::optional<NodeId> built = builder(m, e);
    if (!built) return absl::OkStatus();
    return e.Unite(*built, m.Class(root));
  };
}

}  // namespace athanor
