#include "compiler/pipeline/plan_builder.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/pipeline/check_sizes.h"
#include "compiler/plan/planner.h"
#include "compiler/search/fusion.h"

namespace athanor {
namespace {

std::string Label(const Graph& graph, const KernelChoice& choice) {
  std::string label = graph.Describe(choice.root);
  if (choice.anchor >= 0 && choice.anchor != choice.root) {
    absl::StrAppend(&label, " over ", graph.Describe(choice.anchor));
  }
  return label;
}

// Values and launches of a genome; values are added as they are met.
class Assembly {
 public:
  explicit Assembly(const ScheduledGraph& scheduled)
      : graph_(scheduled.graph), memory_(MemoryOf(scheduled.graph, scheduled.genome)) {}

  const std::vector<bool>& memory() const { return memory_; }

  int ValueOf(NodeId n) {
    auto [it, added] = value_of_.try_emplace(n, static_cast<int>(in.values.size()));
    if (!added) return it->second;
    const Node& node = graph_.node(n);
    PlanValue v;
    v.type = node.type;
    v.name = node.name;
    if (node.op == Op::kInput) {
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

  void AddLaunch(const KernelChoice& choice, const LoweredKernel& lowered) {
    PlanLaunch launch{
        lowered.kernel, {}, Label(graph_, choice), Flops(graph_, memory_, choice.root), 0};
    for (NodeId n : lowered.buffers) {
      launch.buffers.push_back(ValueOf(n));
      const TensorType& type = graph_.node(n).type;
      launch.moved_bytes += Product(type.shape) * DTypeBytes(type.dtype);
    }
    in.launches.push_back(std::move(launch));
  }

  PlanInput in;

 private:
  const Graph& graph_;
  const std::vector<bool> memory_;
  std::map<NodeId, int> value_of_;
};

}  // namespace

absl::StatusOr<v1::Plan> PlanBuilder::Build(const ScheduledGraph& scheduled,
                                            const PlanNames& names) const {
  const Graph& graph = scheduled.graph;
  Assembly assembly(scheduled);
  for (NodeId n : graph.InputIds()) assembly.ValueOf(n);
  for (NodeId n : graph.ParameterIds()) assembly.ValueOf(n);
  const LowerInput input{graph, assembly.memory(), target_};
  for (const KernelChoice& choice : scheduled.genome.kernels) {
    absl::StatusOr<LoweredKernel> lowered = LowerKernel(input, choice);
    if (!lowered.ok()) return lowered.status();
    assembly.AddLaunch(choice, *lowered);
  }
  PlanInput& in = assembly.in;
  in.target = target_;
  in.graph_hash = names.graph_hash.empty() ? CanonicalHash(graph) : names.graph_hash;
  in.kind = names.kind;
  in.dims = graph.dims;
  in.dim_names = names.dim_names;
  if (in.dim_names.empty()) {
    for (const Dim& d : in.dims) in.dim_names.push_back(d.name);
  }
  for (const Output& o : graph.outputs) in.outputs.emplace_back(o.name, assembly.ValueOf(o.node));
  return MakePlan(in, [this](const kir::Kernel& k) { return PrintCpuKernel(k, target_); });
}

absl::StatusOr<internal::CheckRequest> PlanBuilder::Check(const KernelTask& task,
                                                          const KernelChoice& choice) const {
  const ScheduledGraph scheduled = WithSchedule(task, choice, target_);
  absl::StatusOr<v1::Plan> plan = Build(scheduled, {.kind = "check"});
  if (!plan.ok()) return plan.status();
  internal::CheckRequest request;
  *request.mutable_plan() = *std::move(plan);
  request.set_graph_text(ToText(task.graph));
  const std::vector<bool> memory = MemoryOf(task.graph, {{task.choice}});
  AddCheckSizes(task.graph, Flops(task.graph, memory, task.choice.root), &request);
  return request;
}

absl::StatusOr<std::vector<KernelCheck>> PlanBuilder::Checks(const ScheduledGraph& scheduled,
                                                             const v1::Plan& plan) const {
  std::map<std::string, int> kernel_of;
  for (int k = 0; k < plan.kernels_size(); ++k) kernel_of[plan.kernels(k).kir_hash()] = k;
  const std::vector<bool> memory = MemoryOf(scheduled.graph, scheduled.genome);
  const std::vector<bool> weights = WeightsOf(scheduled.graph);
  const LowerInput input{scheduled.graph, memory, target_};
  std::vector<KernelCheck> checks;
  std::set<int> checked;
  for (const KernelChoice& choice : scheduled.genome.kernels) {
    absl::StatusOr<LoweredKernel> lowered = LowerKernel(input, choice);
    if (!lowered.ok()) return lowered.status();
    const int kernel = kernel_of.at(kir::KirHash(lowered->kernel));
    if (!checked.insert(kernel).second) continue;
    const KernelTask task = CutTask(scheduled.graph, memory, weights, choice);
    absl::StatusOr<internal::CheckRequest> check = Check(task, task.choice);
    if (!check.ok()) return check.status();
    checks.push_back({kernel, *std::move(check)});
  }
  return checks;
}

}  // namespace athanor
