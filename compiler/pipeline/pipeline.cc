#include "compiler/pipeline/pipeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/lower.h"
#include "compiler/plan/planner.h"
#include "compiler/rules/decompose.h"
#include "compiler/rules/recognise.h"
#include "compiler/rules/views.h"
#include "compiler/search/fusion.h"

namespace athanor {

namespace {

// Composites that have kernels of their own; the others are computed as their decompositions.
bool HasKernel(const Graph& graph, const Node& node) {
  if (node.op == Op::kContract || node.op == Op::kEmbeddingBag) return true;
  if (node.op != Op::kAttention) return false;
  return graph.node(node.inputs[0]).type.shape.back().constant().has_value() &&
         graph.node(node.inputs[2]).type.shape.back().constant().has_value();
}

struct Prepared {
  Graph graph;
  std::vector<std::string> dim_names;  // of the user, in the order of graph.dims
};

absl::StatusOr<Graph> ToPrimitives(const Graph& graph) {
  return Decompose(graph, [&](const Node& node) {
    return OpInfo(node.op).composite() && !HasKernel(graph, node);
  });
}

absl::StatusOr<Prepared> Prepare(const Graph& graph) {
  Prepared p;
  absl::StatusOr<Graph> primitives = ToPrimitives(graph);
  if (!primitives.ok()) return primitives.status();
  std::vector<std::string> first;
  absl::StatusOr<Graph> recognised = Recognise(ComposeViews(Canonicalize(*primitives, &first)));
  if (!recognised.ok()) return recognised.status();
  absl::StatusOr<Graph> again = ToPrimitives(*recognised);
  if (again.ok()) again = WidenScatters(*again);
  if (!again.ok()) return again.status();
  // Canonical twice: the dims' names of the second form are d0, d1, ... of the first.
  std::vector<std::string> second;
  p.graph = Canonicalize(ComposeViews(*again), &second);
  for (const std::string& name : second) p.dim_names.push_back(first[std::stoul(name.substr(1))]);
  std::vector<NodeId> from = graph.InputIds(), to = p.graph.InputIds();
  for (size_t i = 0; i < to.size(); ++i) p.graph.nodes[to[i]].name = graph.node(from[i]).name;
  from = graph.ParameterIds();
  to = p.graph.ParameterIds();
  for (size_t i = 0; i < to.size(); ++i) p.graph.nodes[to[i]].name = graph.node(from[i]).name;
  for (size_t i = 0; i < p.graph.outputs.size(); ++i)
    p.graph.outputs[i].name = graph.outputs[i].name;
  return p;
}

// One step of the plan to be, with the nodes it stands for.
struct Piece {
  KernelChoice choice;
  LoweredKernel lowered;
};

Expr Flops(const Graph& graph, const std::vector<bool>& memory, const KernelChoice& choice) {
  Expr flops = 0;
  std::vector<bool> needed(graph.nodes.size());
  needed[choice.root] = true;
  for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
    if (!needed[n]) continue;
    const Node& node = graph.node(n);
    for (NodeId i : node.inputs) {
      if (!memory[i]) needed[i] = true;
    }
    if (node.op == Op::kContract) {
      ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
      Expr work = 2 * Product(node.type.shape);
      std::set<char> counted(spec.result.begin(), spec.result.end());
      for (int side = 0; side < 2; ++side) {
        const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
        for (size_t i = 0; i < letters.size(); ++i) {
          if (counted.insert(letters[i]).second)
            work *= graph.node(node.inputs[side]).type.shape[i];
        }
      }
      flops += work;
    } else if (node.op == Op::kAttention) {
      const Shape& k = graph.node(node.inputs[1]).type.shape;
      const Shape& q = graph.node(node.inputs[0]).type.shape;
      Expr rows = Product(Shape(q.begin(), q.end() - 1));
      flops += 2 * rows * k[k.size() - 2] * (q.back() + node.type.shape.back());
    } else if (OpInfo(node.op).op_class == OpClass::kElementwise) {
      flops += Product(node.type.shape);
    } else if (node.op == Op::kSumReduce || node.op == Op::kMaxReduce) {
      flops += Product(graph.node(node.inputs[0]).type.shape);
    }
  }
  return flops;
}

std::string Label(const Graph& graph, const std::vector<bool>& memory, const KernelChoice& choice) {
  std::string label = graph.Describe(choice.root);
  if (choice.anchor >= 0 && choice.anchor != choice.root) {
    absl::StrAppend(&label, " over ", graph.Describe(choice.anchor));
  }
  return label;
}

// Values and launches of some pieces of a genome; values are added as they are met.
class Assembly {
 public:
  Assembly(const Graph& graph, const std::vector<bool>& memory) : graph_(graph), memory_(memory) {}

  int ValueOf(NodeId n) {
    auto [it, added] = value_of_.try_emplace(n, static_cast<int>(in.values.size()));
    if (!added) return it->second;
    const Node& node = graph_.node(n);
    PlanValue v;
    v.type = node.type;
    v.name = node.name;
    if (inputs.contains(n)) {
      v.kind = ValueKind::kInput;
      v.name = absl::StrCat("n", n);
    } else if (node.op == Op::kInput) {
      v.kind = ValueKind::kInput;
    } else if (node.op == Op::kParameter) {
      v.kind = ValueKind::kParameter;
    } else if (node.op == Op::kConstant) {
      v.kind = ValueKind::kConstant;
      v.literal = GetAttr<Tensor>(node.attrs, "value");
    }
    in.values.push_back(std::move(v));
    return it->second;
  }

  void AddLaunch(const Piece& piece) {
    PlanLaunch launch{piece.lowered.kernel,
                      {},
                      Label(graph_, memory_, piece.choice),
                      Flops(graph_, memory_, piece.choice),
                      0};
    for (NodeId n : piece.lowered.buffers) {
      launch.buffers.push_back(ValueOf(n));
      const TensorType& type = graph_.node(n).type;
      launch.moved_bytes += Product(type.shape) * DTypeBytes(type.dtype);
    }
    in.launches.push_back(std::move(launch));
  }

  PlanInput in;
  std::set<NodeId> inputs;  // nodes that are given from outside although some kernel computes them

 private:
  const Graph& graph_;
  const std::vector<bool>& memory_;
  std::map<NodeId, int> value_of_;
};

// The part of the graph that one kernel computes, its operands turned into inputs.
Graph SubgraphOf(const Graph& graph, const std::vector<bool>& memory, const KernelChoice& choice,
                 std::vector<NodeId>* operands) {
  std::vector<bool> needed(graph.nodes.size());
  needed[choice.root] = true;
  for (NodeId n = choice.root; n >= 0; --n) {
    if (!needed[n] || (memory[n] && n != choice.root)) continue;
    for (NodeId i : graph.node(n).inputs) needed[i] = true;
  }
  Graph sub;
  sub.name = "check";
  sub.dims = graph.dims;
  std::vector<NodeId> at(graph.nodes.size(), -1);
  for (NodeId n = 0; n <= choice.root; ++n) {
    if (!needed[n]) continue;
    Node node = graph.node(n);
    if (memory[n] && n != choice.root && node.op != Op::kConstant) {
      node = Node{Op::kInput, {}, {}, node.type, absl::StrCat("n", n)};
      operands->push_back(n);
    }
    for (NodeId& i : node.inputs) i = at[i];
    at[n] = static_cast<NodeId>(sub.nodes.size());
    sub.nodes.push_back(std::move(node));
  }
  sub.outputs.push_back({"y", at[choice.root]});
  return sub;
}

// A checked operation costs the reference and its error bounds some 10 ns; a check should take a
// fraction of a second.
constexpr int64_t kCheckFlops = 10'000'000;

// Values of all dims near `wanted`, inside their bounds; different dims get different ones, so that
// swapped sizes are noticed.
std::vector<int64_t> SizesNear(const Graph& graph, int64_t wanted) {
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < graph.dims.size(); ++d) {
    int64_t size = wanted + (wanted > 1 ? 2 * static_cast<int64_t>(d) : 0);
    sizes.push_back(std::clamp(size, graph.dims[d].min, graph.dims[d].max));
  }
  return sizes;
}

bool Affordable(const Graph& graph, const std::vector<int64_t>& sizes, const Expr& flops) {
  Expr::Env env;
  for (size_t d = 0; d < sizes.size(); ++d) env[graph.dims[d].name] = sizes[d];
  std::optional<int64_t> value = flops.Evaluate(env);
  return value && *value <= kCheckFlops;
}

// The smallest sizes, and the largest affordable ones of a few that no tile divides.
void AddCheckSizes(const Graph& graph, const Expr& flops, internal::CheckRequest* request) {
  std::set<std::vector<int64_t>> distinct = {SizesNear(graph, 0)};
  for (int64_t wanted : {67, 37, 17, 7, 3}) {
    std::vector<int64_t> sizes = SizesNear(graph, wanted);
    if (!Affordable(graph, sizes, flops)) continue;
    distinct.insert(std::move(sizes));
    break;
  }
  for (const std::vector<int64_t>& sizes : distinct) {
    auto* set = request->add_sizes();
    for (int64_t s : sizes) set->add_values(s);
  }
}

class BaselineBuilder {
 public:
  BaselineBuilder(const Graph& graph, const v1::Target& target) : source_(graph), target_(target) {}

  absl::StatusOr<CheckedPlan> Build();

 private:
  absl::Status Lower();
  absl::Status LowerChoice(bool epilogues);
  absl::StatusOr<v1::Plan> WholePlan();
  absl::StatusOr<KernelCheck> Check(const Piece& piece, int kernel);
  absl::StatusOr<v1::Plan> Plan(PlanInput in) {
    in.target = target_;
    in.dims = prepared_.graph.dims;
    if (in.dim_names.empty()) {
      for (const Dim& d : in.dims) in.dim_names.push_back(d.name);
    }
    return MakePlan(in, [this](const kir::Kernel& k) { return PrintCpuKernel(k, target_); });
  }

  const Graph& source_;
  const v1::Target& target_;
  Prepared prepared_;
  Genome genome_;
  std::vector<bool> memory_;
  std::vector<Piece> pieces_;
  std::map<NodeId, size_t> piece_of_;
};

absl::Status BaselineBuilder::Lower() {
  const Graph given = prepared_.graph;
  absl::Status status = LowerChoice(/*epilogues=*/true);
  if (!absl::IsInternal(status)) return status;
  // Slower and always possible.
  prepared_.graph = given;
  pieces_.clear();
  piece_of_.clear();
  return LowerChoice(/*epilogues=*/false);
}

absl::Status BaselineBuilder::LowerChoice(bool epilogues) {
  genome_ = ChooseKernels(prepared_.graph, target_, {.epilogues = epilogues});
  PackWeights(&prepared_.graph, &genome_, target_);
  memory_ = MemoryOf(prepared_.graph, genome_);
  LowerInput in{prepared_.graph, memory_, target_};
  for (const KernelChoice& choice : genome_.kernels) {
    absl::StatusOr<LoweredKernel> lowered = LowerKernel(in, choice);
    if (!lowered.ok()) return lowered.status();
    piece_of_[choice.root] = pieces_.size();
    pieces_.push_back({choice, *std::move(lowered)});
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Plan> BaselineBuilder::WholePlan() {
  const Graph& graph = prepared_.graph;
  Assembly assembly(graph, memory_);
  for (NodeId n : graph.InputIds()) assembly.ValueOf(n);
  for (NodeId n : graph.ParameterIds()) assembly.ValueOf(n);
  for (const Piece& piece : pieces_) assembly.AddLaunch(piece);
  PlanInput& in = assembly.in;
  in.graph_hash = CanonicalHash(source_);
  in.dim_names = prepared_.dim_names;
  for (const Output& o : graph.outputs) in.outputs.emplace_back(o.name, assembly.ValueOf(o.node));
  return Plan(std::move(in));
}

absl::StatusOr<KernelCheck> BaselineBuilder::Check(const Piece& piece, int kernel) {
  std::vector<NodeId> operands;
  Graph sub = SubgraphOf(prepared_.graph, memory_, piece.choice, &operands);
  Assembly assembly(prepared_.graph, memory_);
  for (NodeId n : operands) {
    assembly.inputs.insert(n);
    assembly.ValueOf(n);
  }
  NodeId packed = piece.choice.contract.packed;
  if (piece.choice.kind == KernelKind::kContract && packed >= 0) {
    assembly.AddLaunch(pieces_[piece_of_.at(packed)]);
  }
  assembly.AddLaunch(piece);
  assembly.in.graph_hash = CanonicalHash(sub);
  assembly.in.outputs.emplace_back("y", assembly.ValueOf(piece.choice.root));
  absl::StatusOr<v1::Plan> plan = Plan(std::move(assembly.in));
  if (!plan.ok()) return plan.status();
  KernelCheck check{kernel, {}};
  *check.request.mutable_plan() = *std::move(plan);
  check.request.set_graph_text(ToText(sub));
  AddCheckSizes(sub, Flops(prepared_.graph, memory_, piece.choice), &check.request);
  return check;
}

absl::StatusOr<CheckedPlan> BaselineBuilder::Build() {
  absl::StatusOr<Prepared> prepared = Prepare(source_);
  if (!prepared.ok()) return prepared.status();
  prepared_ = *std::move(prepared);
  if (absl::Status s = Lower(); !s.ok()) return s;
  absl::StatusOr<v1::Plan> plan = WholePlan();
  if (!plan.ok()) return plan.status();
  CheckedPlan result{*std::move(plan), {}};
  std::map<std::string, int> kernel_of;
  for (int k = 0; k < result.plan.kernels_size(); ++k)
    kernel_of[result.plan.kernels(k).kir_hash()] = k;
  std::set<std::string> checked;
  for (const Piece& piece : pieces_) {
    std::string hash = kir::KirHash(piece.lowered.kernel);
    if (!checked.insert(hash).second) continue;
    absl::StatusOr<KernelCheck> check = Check(piece, kernel_of.at(hash));
    if (!check.ok()) return check.status();
    result.checks.push_back(*std::move(check));
  }
  return result;
}

}  // namespace

absl::StatusOr<CheckedPlan> BuildCheckedBaselinePlan(const Graph& graph, const v1::Target& target) {
  return BaselineBuilder(graph, target).Build();
}

absl::StatusOr<v1::Plan> BuildBaselinePlan(const Graph& graph, const v1::Target& target) {
  absl::StatusOr<CheckedPlan> checked = BuildCheckedBaselinePlan(graph, target);
  if (!checked.ok()) return checked.status();
  return std::move(checked->plan);
}

}  // namespace athanor
