#include "compiler/pipeline/plan_builder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/dialect.h"
#include "compiler/pipeline/check_sizes.h"
#include "compiler/plan/planner.h"
#include "compiler/search/extents.h"
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
    nodes.push_back(n);
    return it->second;
  }

  void AddLaunch(const KernelChoice& choice, const LoweredKernel& lowered) {
    PlanLaunch launch{
        lowered.kernel, {}, Label(graph_, choice), Flops(graph_, memory_, choice.root), 0};
    for (NodeId n : lowered.buffers) {
      launch.buffers.push_back(ValueOf(n));
      launch.moved_bytes += BytesOf(graph_.node(n).type);
    }
    in.launches.push_back(std::move(launch));
  }

  PlanInput in;
  std::vector<NodeId> nodes;  // by value

 private:
  const Graph& graph_;
  const std::vector<bool> memory_;
  std::map<NodeId, int> value_of_;
};

// Literals as text are several times their bytes, and this text is only for people.
constexpr size_t kMostLiteralBytes = size_t{64} << 10;

// The kernels in the order they run, then the graph whose nodes they name.
std::string GenomeText(const ScheduledGraph& scheduled) {
  std::string text;
  size_t literals = 0;
  for (const Node& node : scheduled.graph.nodes) {
    if (node.op == Op::kConstant) literals += GetAttr<Tensor>(node.attrs, "value").bytes.size();
  }
  for (const KernelChoice& choice : scheduled.genome.kernels) {
    absl::StrAppend(&text, "kernel ", Label(scheduled.graph, choice), ": ", ScheduleText(choice),
                    "\n");
  }
  if (literals > kMostLiteralBytes) {
    return absl::StrCat(text, "\n# the graph is left out: its literals hold ", literals,
                        " bytes\n");
  }
  return absl::StrCat(text, "\n", ToText(scheduled.graph));
}

// A task's kernel, its buffers as nodes of the scheduled task.
struct LoweredTask {
  KernelTask task;
  LoweredKernel lowered;
};

absl::StatusOr<LoweredTask> LowerTask(KernelTask task, const v1::Target& target) {
  const ScheduledGraph alone = WithSchedule(task, task.choice, target);
  const std::vector<bool> memory = MemoryOf(alone.graph, alone.genome);
  absl::StatusOr<LoweredKernel> lowered =
      LowerKernel({alone.graph, memory, target}, alone.genome.kernels.back());
  if (!lowered.ok()) return lowered.status();
  return LoweredTask{std::move(task), *std::move(lowered)};
}

// The same kernel with its buffers as nodes of the graph that `task` was cut from.
LoweredKernel In(const KernelTask& task, const KernelChoice& choice, const LoweredKernel& lowered) {
  LoweredKernel in{lowered.kernel, {}};
  for (NodeId n : lowered.buffers) {
    // Beyond the task's own nodes is what WithSchedule added: its packed weight.
    const bool own = n < static_cast<NodeId>(task.nodes.size());
    in.buffers.push_back(own ? task.nodes[n] : choice.contract.packed);
  }
  return in;
}

}  // namespace

absl::StatusOr<BuiltPlan> PlanBuilder::Build(const ScheduledGraph& scheduled,
                                             const PlanNames& names) const {
  const Graph& graph = scheduled.graph;
  Assembly assembly(scheduled);
  for (NodeId n : graph.InputIds()) assembly.ValueOf(n);
  for (NodeId n : graph.ParameterIds()) assembly.ValueOf(n);
  const std::vector<bool> weights = WeightsOf(graph);
  std::map<std::string, LoweredTask> lowered;  // by task and schedule
  for (const KernelChoice& choice : scheduled.genome.kernels) {
    KernelTask task = CutTask(graph, assembly.memory(), weights, choice);
    const std::string key = absl::StrCat(task.key, " ", ScheduleText(choice));
    auto known = lowered.find(key);
    if (known == lowered.end()) {
      absl::StatusOr<LoweredTask> now = LowerTask(task, target_);
      if (!now.ok()) return now.status();
      known = lowered.emplace(key, *std::move(now)).first;
    }
    assembly.AddLaunch(choice, In(task, choice, known->second.lowered));
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
  absl::StatusOr<v1::Plan> plan =
      MakePlan(in, [this](const kir::Kernel& k) { return PrintCpuKernel(k, target_); });
  if (!plan.ok()) return plan.status();
  BuiltPlan built{*std::move(plan), {}, std::move(assembly.nodes)};
  std::map<std::string, int> kernel_of;
  for (int k = 0; k < built.plan.kernels_size(); ++k) {
    kernel_of[built.plan.kernels(k).kir_hash()] = k;
  }
  for (auto& [key, task] : lowered) {
    auto kernel = kernel_of.extract(kir::KirHash(task.lowered.kernel));
    if (kernel.empty()) continue;
    if (names.describe) {
      built.plan.mutable_kernels(kernel.mapped())->set_kir(kir::ToText(task.lowered.kernel));
    }
    built.tasks.emplace_back(std::move(task.task), kernel.mapped());
  }
  if (names.describe) built.plan.set_genome(GenomeText(scheduled));
  std::sort(built.tasks.begin(), built.tasks.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  return built;
}

absl::StatusOr<internal::CheckRequest> PlanBuilder::Check(const KernelTask& task,
                                                          const KernelChoice& choice) const {
  const ScheduledGraph scheduled = WithSchedule(task, choice, target_);
  absl::StatusOr<BuiltPlan> built = Build(scheduled, {.kind = "check", .describe = false});
  if (!built.ok()) return built.status();
  internal::CheckRequest request;
  *request.mutable_plan() = std::move(built->plan);
  request.set_graph_text(ToText(task.graph));
  const std::vector<bool> memory = MemoryOf(task.graph, {{task.choice}});
  AddCheckSizes(task.graph, Flops(task.graph, memory, task.choice.root), &request);
  return request;
}

absl::StatusOr<std::vector<internal::KernelCheck>> PlanBuilder::Checks(
    const BuiltPlan& built) const {
  std::vector<internal::KernelCheck> checks;
  for (const auto& [task, kernel] : built.tasks) {
    absl::StatusOr<internal::CheckRequest> check = Check(task, task.choice);
    if (!check.ok()) return check.status();
    internal::KernelCheck& out = checks.emplace_back();
    out.set_kernel(static_cast<uint32_t>(kernel));
    *out.mutable_request() = *std::move(check);
  }
  return checks;
}

}  // namespace athanor
