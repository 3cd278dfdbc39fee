// Merges contractions that share an operand into one contraction with concatenated weights. The
// operand is read once, and the kernel is as wide as all of them (queries, keys and values; gate
// and up).
#include <algorithm>
#include <string>
#include <utility>

#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using egraph::ClassId;
using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;

// A contraction contract(x, w), or contract(x, w) + a view of b.
struct Linear {
  ClassId value;
  ClassId w;
  ContractSpec spec;  // x at the left; letters in order of appearance
  ClassId bias;       // b; invalid if there is none
  IndexMap bias_map;
};

ContractSpec InOrderOfAppearance(ContractSpec spec) {
  std::string seen;
  for (std::string* letters : {&spec.lhs, &spec.rhs, &spec.result}) {
    for (char& letter : *letters) {
      if (seen.find(letter) == std::string::npos) seen += letter;
      letter = static_cast<char>('a' + seen.find(letter));
    }
  }
  return spec;
}

// Reads the users of one operand. Runs between matching and rebuilding, so it looks up every id
// again.
class Siblings {
 public:
  Siblings(const RowTerms& terms, const egraph::EGraph& graph) : terms_(terms), graph_(graph) {}

  // Returns the contractions of `x` with stored weights, one per weight, in the order of their
  // creation. Weights that a rule computed are left out, so that this terminates.
  std::vector<Linear> Contractions(ClassId x) const {
    std::vector<Linear> found;
    for (const egraph::NodeId n : ParentsOf(x, Op::kContract)) {
      const ClassId left = graph_.Find(graph_.children(n)[0]);
      const ClassId right = graph_.Find(graph_.children(n)[1]);
      Linear linear{.value = graph_.class_of(n), .w = left == graph_.Find(x) ? right : left};
      if (left == right || !terms_.facts().Get(graph_, linear.w).stored) continue;
      const Attrs& attrs = terms_.language().attrs(graph_.payload(n));
      linear.spec = ContractSpec::Parse(GetAttr<std::string>(attrs, "spec")).value();
      if (linear.w == left) std::swap(linear.spec.lhs, linear.spec.rhs);
      linear.spec = InOrderOfAppearance(std::move(linear.spec));
      found.push_back(std::move(linear));
    }
    return found;
  }

  // Adds the bias, if the value is added to a view of a weight along axes of w.
  void FindBias(Linear* linear) const {
    for (const egraph::NodeId n : ParentsOf(linear->value, Op::kAdd)) {
      const ClassId left = graph_.Find(graph_.children(n)[0]);
      const ClassId right = graph_.Find(graph_.children(n)[1]);
      const ClassId other = left == graph_.Find(linear->value) ? right : left;
      for (const egraph::NodeId view : graph_.nodes(other)) {
        if (!graph_.alive(view) || ToOp(graph_.op(view)) != Op::kIndexMap) continue;
        const Attrs& attrs = terms_.language().attrs(graph_.payload(view));
        const ClassId b = graph_.Find(graph_.children(view)[0]);
        if (attrs.contains("fill") || !terms_.facts().Get(graph_, b).stored) continue;
        const IndexMap& map = GetAttr<IndexMap>(attrs, "map");
        if (!IsAlong(map, linear->spec)) continue;
        linear->value = graph_.class_of(n);
        linear->bias = b;
        linear->bias_map = map;
        return;
      }
    }
  }

 private:
  static bool IsAlong(const IndexMap& map, const ContractSpec& spec) {
    const std::vector<bool> used = AxesUsed(map);
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] && spec.rhs.find(spec.result[i]) == std::string::npos) return false;
    }
    return true;
  }

  std::vector<egraph::NodeId> ParentsOf(ClassId id, Op op) const {
    std::vector<egraph::NodeId> parents;
    for (const egraph::NodeId n : graph_.parents(id)) {
      if (graph_.alive(n) && ToOp(graph_.op(n)) == op) parents.push_back(n);
    }
    std::sort(parents.begin(), parents.end());
    parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
    return parents;
  }

  const RowTerms& terms_;
  const egraph::EGraph& graph_;
};

// Members of `all` whose weights can be concatenated with weight `w` along one axis: they have the
// same letters, and all other axes have the same size. One member per weight.
struct Row {
  std::vector<Linear> members;
  char letter = 0;  // letter of that axis
};
Row SideBySide(const RowTerms& t, const egraph::EGraph& graph, const std::vector<Linear>& all,
               ClassId w) {
  const auto shape_of = [&](const Linear& l) -> const Shape& {
    return t.facts().Type(graph, l.w).shape;
  };
  const auto mine =
      std::find_if(all.begin(), all.end(), [&](const Linear& l) { return l.w == graph.Find(w); });
  if (mine == all.end()) return {};
  for (size_t axis = 0; axis < mine->spec.rhs.size(); ++axis) {
    const char letter = mine->spec.rhs[axis];
    if (mine->spec.result.find(letter) == std::string::npos ||
        mine->spec.lhs.find(letter) != std::string::npos) {
      continue;
    }
    Row row{.letter = letter};
    for (const Linear& l : all) {
      if (l.spec.ToString() != mine->spec.ToString()) continue;
      Shape shape = shape_of(l);
      shape[axis] = shape_of(*mine)[axis];
      const bool known = std::any_of(row.members.begin(), row.members.end(),
                                     [&](const Linear& m) { return m.w == l.w; });
      if (shape == shape_of(*mine) && !known) row.members.push_back(l);
    }
    if (row.members.size() > 1) return row;
  }
  return {};
}

// Concatenates the parts along an axis as a sum: each part is padded with -0, which is neutral.
NodeId Concatenated(TermExpansion& e, const std::vector<NodeId>& parts, size_t axis) {
  const DType dtype = e.Type(parts[0]).dtype;
  Shape shape = e.Type(parts[0]).shape;
  shape[axis] = 0;
  for (const NodeId part : parts) shape[axis] += e.Type(part).shape[axis];
  Tensor nothing = Tensor::Zeros(dtype, {});
  if (IsFloat(dtype)) StoreScalar(nothing, 0, Scalar::Float(dtype, -0.0));
  Expr offset = 0;
  std::optional<NodeId> joined;
  for (const NodeId part : parts) {
    IndexMap map{shape, {}};
    for (size_t i = 0; i < shape.size(); ++i) {
      map.coordinates.push_back(Expr::Axis(static_cast<int>(i)) - (i == axis ? offset : Expr(0)));
    }
    offset += e.Type(part).shape[axis];
    const NodeId padded =
        e.x().Add(Op::kIndexMap, {part}, {{"map", std::move(map)}, {"fill", nothing}});
    joined = joined ? e.x().Add(Op::kAdd, {*joined, padded}) : padded;
  }
  return *joined;
}

// Concatenates the biases and repeats them to the result; parts without a bias get neutral
// elements.
std::optional<NodeId> ConcatenatedBias(TermExpansion& e, const Row& row, const Shape& result) {
  const ContractSpec& spec = row.members[0].spec;
  std::string letters;  // letters of the weight and the result
  for (const char letter : spec.result) {
    if (spec.rhs.find(letter) != std::string::npos) letters += letter;
  }
  std::vector<NodeId> parts;
  for (const Linear& l : row.members) {
    const Shape w = e.Type(e.Operand(l.w)).shape;
    Shape shape;
    for (const char letter : letters) shape.push_back(w[spec.rhs.find(letter)]);
    if (!l.bias.valid()) {
      parts.push_back(e.x().Fill(e.Type(e.Operand(l.w)).dtype, -0.0, shape));
      continue;
    }
    const std::optional<NodeId> part =
        ReadAlong(e, e.Operand(l.bias), l.bias_map, spec.result, letters, shape);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  const NodeId joined = Concatenated(e, parts, letters.find(row.letter));
  std::vector<Expr> coordinates;
  for (const char letter : letters) {
    coordinates.push_back(Expr::Axis(static_cast<int>(spec.result.find(letter))));
  }
  return e.x().Map(joined, result, std::move(coordinates));
}

// Unites every member with a slice of one contraction, to which `biased` adds the biases.
absl::Status Share(const RowTerms& t, ClassId x, const Row& row, bool biased,
                   egraph::Rewriter* rewriter) {
  TermExpansion e(t.language(), t.facts(), rewriter);
  const ContractSpec& spec = row.members[0].spec;
  std::vector<NodeId> weights;
  for (const Linear& l : row.members) weights.push_back(e.Operand(l.w));
  const size_t weight_axis = spec.rhs.find(row.letter);
  NodeId all = Contraction(e, e.Operand(x), Concatenated(e, weights, weight_axis), spec);
  Shape shape = e.Type(all).shape;
  if (biased) {
    const std::optional<NodeId> bias = ConcatenatedBias(e, row, shape);
    if (!bias) return absl::OkStatus();
    all = e.x().Add(Op::kAdd, {all, *bias});
  }
  const size_t axis = spec.result.find(row.letter);
  Expr offset = 0;
  for (size_t i = 0; i < row.members.size(); ++i) {
    const Expr width = e.Type(weights[i]).shape[weight_axis];
    shape[axis] = width;
    std::vector<Expr> coordinates;
    for (size_t j = 0; j < shape.size(); ++j) {
      coordinates.push_back(Expr::Axis(static_cast<int>(j)) + (j == axis ? offset : Expr(0)));
    }
    offset += width;
    const NodeId slice = e.x().Map(all, shape, std::move(coordinates));
    RETURN_IF_ERROR(e.Unite(slice, row.members[i].value));
  }
  return absl::OkStatus();
}

// Each new sibling is a match of its own, so the rule sees all siblings together whenever one is
// added.
Specs ContractsShareOperand(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto apply = [t](const Match& m, egraph::Rewriter* rewriter) -> absl::Status {
    const Siblings siblings(t, m.graph());
    const Row row = SideBySide(t, m.graph(), siblings.Contractions(m.Class("x")), m.Class("w"));
    if (row.members.empty()) return absl::OkStatus();
    return Share(t, m.Class("x"), row, /*biased=*/false, rewriter);
  };
  return Orders({.name = "contracts_share_operand",
                 .premises = {"(Contract~[?spec] ?x ?w)"},
                 .conditions = {t.IsStored("w"), t.IsNoWeight("x")},
                 .apply = apply});
}

NodeId ContractWith(ExampleBuilder& e, NodeId x, NodeId w) {
  return e.Coin() ? e.x().Add(Op::kContract, {x, w}, {{"spec", "bsk,kn->bsn"}})
                  : e.x().Add(Op::kContract, {w, x}, {{"spec", "kn,bsk->bsn"}});
}

void ContractsShareOperandExample(ExampleBuilder& e) {
  const int64_t k = e.ConstantSize();
  const NodeId x = e.Input({e.Size(), e.Size(), k});
  for (int i = 0; i < 3; ++i) e.Output(ContractWith(e, x, e.Parameter({k, e.ConstantSize()})));
}

Specs LinearsShareOperand(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto apply = [t](const Match& m, egraph::Rewriter* rewriter) -> absl::Status {
    const Siblings siblings(t, m.graph());
    Row row = SideBySide(t, m.graph(), siblings.Contractions(m.Class("x")), m.Class("w"));
    bool any = false;
    for (Linear& l : row.members) {
      siblings.FindBias(&l);
      any = any || l.bias.valid();
    }
    if (!any) return absl::OkStatus();
    return Share(t, m.Class("x"), row, /*biased=*/true, rewriter);
  };
  return Orders(
      {.name = "linears_share_operand",
       .premises = {"(Add~ (Contract~[?spec] ?x ?w) (IndexMap[?map] ?b))"},
       .conditions = {t.IsStored("w"), t.IsStored("b"), t.IsNoWeight("x"), t.IsView("map")},
       .apply = apply});
}

void LinearsShareOperandExample(ExampleBuilder& e) {
  const int64_t k = e.ConstantSize();
  const Expr batch = e.Size(), rows = e.Size();
  const NodeId x = e.Input({batch, rows, k});
  for (int i = 0; i < 3; ++i) {
    const int64_t n = e.ConstantSize();
    NodeId y = ContractWith(e, x, e.Parameter({k, n}));
    if (i != 1) {
      const NodeId bias = e.x().Map(e.Parameter({n}), {batch, rows, n}, {Expr::Axis(2)});
      y = e.Coin() ? e.x().Add(Op::kAdd, {y, bias}) : e.x().Add(Op::kAdd, {bias, y});
    }
    e.Output(y);
  }
}

}  // namespace

std::vector<RuleRow> SharingRows() {
  constexpr std::string_view kFamily = "algebra";
  return {
      {"contracts_share_operand", kFamily, RuleClass::kExact,
       "contract(x, v), contract(x, w) = slices of contract(x, concat(v, w)) for weights v, w",
       ContractsShareOperand, nullptr, nullptr, ContractsShareOperandExample},
      {"linears_share_operand", kFamily, RuleClass::kExact,
       "contract(x, v)+a, contract(x, w)+b = slices of contract(x, concat(v, w)) + concat(a, b)",
       LinearsShareOperand, nullptr, nullptr, LinearsShareOperandExample},
  };
}

}  // namespace athanor
