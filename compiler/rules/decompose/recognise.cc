#include "compiler/rules/decompose/recognise.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/rules/decompose/decompose.h"
#include "compiler/rules/decompose/recognise_match.h"
#include "compiler/rules/decompose/rule_example.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

RecognitionSite::RecognitionSite(const Graph& g)
    : graph(g), bounds(g.DimBounds()), users(g.nodes.size()), is_output(g.nodes.size()) {
  for (const Output& o : g.outputs) is_output[o.node] = true;
  for (NodeId update : g.updates) is_output[update] = true;
  for (NodeId n = static_cast<NodeId>(g.nodes.size()); n-- > 0;) {
    if (!is_output[n] && users[n].empty()) continue;
    for (NodeId i : g.nodes[n].inputs) users[i].push_back(n);
  }
}

namespace {

constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz";

bool SumsInOwnDType(DType dtype) { return AccumulatorOf(dtype) == dtype; }

std::optional<Recognised> MatchContract(const RecognitionSite& site, NodeId n) {
  const Node& sum = site.node(n);
  if (sum.op != Op::kSumReduce) return std::nullopt;
  const Node& mul = site.node(sum.inputs[0]);
  // Low precision rounds each product before the sum, but a contraction does not.
  if (mul.op != Op::kMul || !SumsInOwnDType(mul.type.dtype)) return std::nullopt;
  const size_t rank = mul.type.shape.size();
  if (rank > 26) return std::nullopt;
  const std::string joint = std::string(kLetters).substr(0, rank);
  Recognised r;
  std::string spec[2];
  for (int side = 0; side < 2; ++side) {
    const Lettered given{mul.inputs[side], joint};
    const Lettered source = SourceOf(site, given);
    LetteredView operand{{source.node, std::nullopt}, source.letters};
    if (source.letters.size() == rank) {
      operand = ViewWithoutRepetition(site, given).value_or(std::move(operand));
      // An operand with all axes is elementwise input of the sum, which is better fused as one.
      if (operand.letters.size() == rank) return std::nullopt;
    }
    spec[side] = operand.letters;
    r.operands.push_back(std::move(operand.operand));
  }
  std::string result;
  const auto& axes = GetAttr<std::vector<int64_t>>(sum.attrs, "axes");
  for (size_t i = 0; i < rank; ++i) {
    if ((spec[0] + spec[1]).find(joint[i]) == std::string::npos) return std::nullopt;
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
      result += joint[i];
  }
  r.attrs["spec"] = spec[0] + "," + spec[1] + "->" + result;
  return r;
}

std::optional<Recognised> MatchContractOfView(const RecognitionSite& site, NodeId n) {
  const Node& node = site.node(n);
  if (node.op != Op::kContract) return std::nullopt;
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  Lettered lhs = PermutedSourceOf(site, {node.inputs[0], spec.lhs});
  Lettered rhs = PermutedSourceOf(site, {node.inputs[1], spec.rhs});
  if (lhs.node == node.inputs[0] && rhs.node == node.inputs[1]) return std::nullopt;
  Recognised r;
  r.operands = {{lhs.node, std::nullopt}, {rhs.node, std::nullopt}};
  r.attrs["spec"] = ContractSpec{lhs.letters, rhs.letters, spec.result}.ToString();
  return r;
}

// Returns `n` as a view of the operand of a Cast from `dtype`, without the Cast.
std::optional<RecognisedOperand> CastFrom(const RecognitionSite& site, NodeId n, DType dtype) {
  RecognisedOperand r{n, std::nullopt};
  if (const Node& node = site.node(n); node.op == Op::kIndexMap && !node.attrs.contains("fill")) {
    r = {node.inputs[0], GetAttr<IndexMap>(node.attrs, "map")};
  }
  const Node& cast = site.node(r.node);
  if (cast.op != Op::kCast || site.node(cast.inputs[0]).type.dtype != dtype) return std::nullopt;
  r.node = cast.inputs[0];
  return r;
}

std::optional<Recognised> MatchRoundsOnce(const RecognitionSite& site, NodeId n) {
  const Node& cast = site.node(n);
  const DType dtype = cast.type.dtype;
  if (cast.op != Op::kCast || !IsFloat(dtype) || SumsInOwnDType(dtype)) return std::nullopt;
  Recognised r;
  NodeId inner = cast.inputs[0];
  if (const Node& view = site.node(inner);
      view.op == Op::kIndexMap && !view.attrs.contains("fill")) {
    r.view = GetAttr<IndexMap>(view.attrs, "map");
    inner = view.inputs[0];
  }
  const Node& node = site.node(inner);
  if (node.op != Op::kContract && node.op != Op::kAttention) return std::nullopt;
  if (node.type.dtype != AccumulatorOf(dtype)) return std::nullopt;
  // With another user, the inner node would be computed anyway.
  if (site.users[inner].size() != 1 || site.is_output[inner]) return std::nullopt;
  r.op = node.op;
  r.attrs = node.attrs;
  for (NodeId input : node.inputs) {
    std::optional<RecognisedOperand> operand = CastFrom(site, input, dtype);
    if (!operand && site.node(input).type.dtype == DType::kBool)
      operand = RecognisedOperand{input, {}};
    if (!operand) return std::nullopt;
    r.operands.push_back(*std::move(operand));
  }
  return r;
}

// Matches the beginning of an order that no other node needs as a whole.
std::optional<Recognised> MatchTopK(const RecognitionSite& site, NodeId n) {
  const Node& node = site.node(n);
  if (node.op != Op::kIndexMap) return std::nullopt;
  const NodeId whole = node.inputs[0];
  const Node& order = site.node(whole);
  if (order.op != Op::kSort || site.users[whole].size() != 1 || site.is_output[whole]) {
    return std::nullopt;
  }
  const auto axis = GetAttr<int64_t>(order.attrs, "axis");
  const IndexMap& map = GetAttr<IndexMap>(node.attrs, "map");
  if (map.shape.size() != order.type.shape.size() || map.shape == order.type.shape) {
    return std::nullopt;
  }
  for (size_t i = 0; i < map.shape.size(); ++i) {
    const bool along = static_cast<int64_t>(i) == axis;
    if (!(map.coordinates[i] == Expr::Axis(static_cast<int>(i)))) return std::nullopt;
    if (!along && !(map.shape[i] == order.type.shape[i])) return std::nullopt;
  }
  if (!site.bounds.NonNegative(order.type.shape[axis] - map.shape[axis])) return std::nullopt;
  Recognised r;
  r.op = Op::kTopK;
  r.operands = {{order.inputs[0], std::nullopt}};
  r.attrs = {{"axis", axis},
             {"k", Shape{map.shape[axis]}},
             {"largest", GetAttrOr<bool>(order.attrs, "descending", false)}};
  return r;
}

// Adds the op in the form of its decomposition row.
NodeId InPrimitives(ExampleBuilder& e, Op op, const std::vector<NodeId>& inputs, Attrs attrs) {
  const NodeId n = e.x().Add(op, inputs, std::move(attrs));
  if (!e.status().ok()) return n;
  const absl::Span<const DecompositionRow> rows = DecompositionRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const DecompositionRow& r) { return r.op == op; });
  const Node node = e.graph().node(n);  // a copy: the graph grows
  return row->expand(e.x(), node, node.inputs);
}

void ContractExample(ExampleBuilder& e) {
  const Expr m = e.Size(), n = e.Size(), k = e.Size();
  const NodeId lhs = e.Input({m, k});
  e.Output(
      InPrimitives(e, Op::kContract, {lhs, e.Input({k, n})}, {{"spec", std::string("mk,kn->mn")}}));
}

void ContractOfViewExample(ExampleBuilder& e) {
  const Expr m = e.Size(), n = e.Size(), k = e.Size();
  const NodeId turned = e.x().Map(e.Input({k, m}), {m, k}, {Expr::Axis(1), Expr::Axis(0)});
  e.Output(
      e.x().Add(Op::kContract, {turned, e.Input({k, n})}, {{"spec", std::string("mk,kn->mn")}}));
}

void AttentionExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), queries = e.Size(), keys = e.Size();
  const int64_t width = e.ConstantSize(1);
  const NodeId q = e.Input({batch, queries, width}, ExampleEdges::kNaN);
  const NodeId k = e.Input({batch, keys, width}, ExampleEdges::kNaN);
  const NodeId v = e.Input({batch, keys, e.ConstantSize()});
  e.Output(InPrimitives(e, Op::kAttention, {q, k, v}, {{"scale", 0.25}}));
}

void RoundsOnceExample(ExampleBuilder& e) {
  const DType low = e.Coin() ? DType::kF16 : DType::kBF16;
  const Expr m = e.Size(), n = e.Size(), k = e.Size();
  const NodeId a = e.x().Cast(e.Input({m, k}, low), DType::kF32);
  const NodeId b = e.x().Cast(e.Input({k, n}, low), DType::kF32);
  const NodeId y = e.x().Add(Op::kContract, {a, b}, {{"spec", std::string("mk,kn->mn")}});
  e.Output(e.x().Cast(y, low));
}

void TopKExample(ExampleBuilder& e) {
  const Expr rows = e.Size();
  const int64_t size = e.ConstantSize(1);
  const NodeId x = e.Input({rows, size});
  e.Output(InPrimitives(
      e, Op::kTopK, {x},
      {{"axis", int64_t{1}}, {"k", Shape{e.Pick(0, size - 1)}}, {"largest", e.Coin()}}));
}

constexpr RecognitionRow kRows[] = {
    {"contract", "sum(repeat(a) * repeat(b)) = contract(a, b)", MatchContract, ContractExample},
    {"contract_of_view", "contract(permute(a), b) = contract(a, b), its letters permuted",
     MatchContractOfView, ContractOfViewExample},
    {"attention", "softmax(scale * contract(q, k)) contracted with v = attention(q, k, v)",
     MatchAttention, AttentionExample},
    {"rounds_once",
     "cast(op(cast(a), cast(b))) = op(a, b) where op computes in the accumulator's dtype",
     MatchRoundsOnce, RoundsOnceExample},
    {"top_k", "the beginning of sort = top_k", MatchTopK, TopKExample},
};

}  // namespace

absl::Span<const RecognitionRow> RecognitionRows() { return kRows; }

absl::StatusOr<Graph> ApplyRecognition(const Graph& graph, const RecognitionRow& row,
                                       Recognition* recognition) {
  RecognitionSite site(graph);
  Graph out;
  out.name = graph.name;
  out.dims = graph.dims;
  Expansion x(&out);
  std::vector<NodeId> at(graph.nodes.size());
  auto view = [&](NodeId n, const std::optional<IndexMap>& map) {
    return map ? x.Map(n, map->shape, map->coordinates) : n;
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const bool needed = site.is_output[n] || !site.users[n].empty();
    std::optional<Recognised> found;
    if (needed) found = row.match(site, static_cast<NodeId>(n));
    if (!found) {
      at[n] = static_cast<NodeId>(out.nodes.size());
      out.nodes.push_back(graph.nodes[n]);
      for (NodeId& i : out.nodes.back().inputs) i = at[i];
      continue;
    }
    if (recognition != nullptr) recognition->found.push_back(static_cast<NodeId>(n));
    std::vector<NodeId> inputs;
    for (const RecognisedOperand& operand : found->operands) {
      inputs.push_back(view(at[operand.node], operand.view));
    }
    at[n] = view(x.Add(found->op, std::move(inputs), std::move(found->attrs)), found->view);
    if (!x.status().ok() || !(out.nodes[at[n]].type == graph.nodes[n].type)) {
      return absl::InternalError(
          absl::StrCat("row ", absl::string_view(row.name.data(), row.name.size()), " at ",
                       graph.Describe(static_cast<NodeId>(n)), ": ",
                       x.status().ok() ? "another type" : x.status().message()));
    }
  }
  for (const Output& o : graph.outputs) out.outputs.push_back({o.name, at[o.node]});
  for (NodeId update : graph.updates) out.updates.push_back(at[update]);
  if (recognition != nullptr) recognition->at = std::move(at);
  return out;
}

absl::StatusOr<Graph> Recognise(const Graph& graph) {
  Graph result = graph;
  for (const RecognitionRow& row : kRows) {
    ASSIGN_OR_RETURN(result, ApplyRecognition(result, row));
  }
  return result;
}

}  // namespace athanor
