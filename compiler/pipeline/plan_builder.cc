#include "compiler/pipeline/plan_builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/graph/state.h"
#include "compiler/pipeline/backends.h"
#include "compiler/pipeline/check_sizes.h"
#include "compiler/plan/planner.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/signature.h"
#include "compiler/search/kernels/state_layout.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

struct KnownKernels {
  std::map<std::string, LoweredKernel> lowered;  // by task and schedule; buffers as in LoweredTask
  std::map<std::string, std::string> printed;    // by KirHash
};

namespace {

std::string Label(const Graph& graph, const KernelChoice& choice) {
  std::string label = graph.Describe(choice.root);
  if (choice.anchor >= 0 && choice.anchor != choice.root) {
    absl::StrAppend(&label, " over ", graph.Describe(choice.anchor));
  }
  return label;
}

// A task's kernel; its buffers are nodes of the scheduled task.
struct LoweredTask {
  KernelTask task;
  LoweredKernel lowered;
};

absl::StatusOr<LoweredKernel> LowerTask(const KernelTask& task, const v1::Target& target) {
  const ScheduledGraph alone = WithSchedule(task, task.choice, target);
  const std::vector<bool> memory = MemoryOf(alone.graph, alone.genome);
  return LowerKernel({alone.graph, memory, target}, alone.genome.kernels.back());
}

// Returns the same kernel with its buffers as nodes of the graph that `task` was cut from.
LoweredKernel In(const KernelTask& task, const KernelChoice& choice, const LoweredKernel& lowered) {
  LoweredKernel in{lowered.kernel, {}};
  for (NodeId n : lowered.buffers) {
    // A node behind the task's own is the packed weight that WithSchedule added.
    const bool own = n < static_cast<NodeId>(task.nodes.size());
    in.buffers.push_back(n < 0 ? n : own ? task.nodes[n] : choice.packed);
  }
  return in;
}

// State shared by the graph and the graphs inside it.
struct Whole {
  Whole(const v1::Target& t, const Backend& b, const FusionRules& r, KnownKernels* k)
      : target(t), backend(b), rules(r), known_kernels(*k) {}

  const v1::Target& target;
  const Backend& backend;
  const FusionRules rules;  // for graphs inside
  KnownKernels& known_kernels;
  PlanInput in;
  std::vector<NodeId> nodes;                   // by value; -1: a value of a graph inside
  std::map<std::string, LoweredTask> lowered;  // by task and schedule
  // Loops as tasks, each with the hash of the kernel that makes its results last.
  std::vector<std::pair<KernelTask, std::string>> loops;
};

// Collects values and launches of a genome; adds values as they are met.
class Assembly {
 public:
  // `given`: values of the Inputs and Parameters, for a graph inside another.
  Assembly(const ScheduledGraph& scheduled, Whole* whole, std::map<NodeId, int> given = {},
           bool inside = false)
      : scheduled_(scheduled),
        graph_(scheduled.graph),
        memory_(MemoryOf(scheduled.graph, scheduled.genome)),
        behind_panels_(MemoryBehindPanels(scheduled.graph, scheduled.genome)),
        weights_(WeightsOf(scheduled.graph)),
        whole_(*whole),
        value_of_(std::move(given)),
        inside_(inside) {}

  // The value of a state's write is the state's.
  int ValueOf(NodeId n) {
    if (IsStateWrite(graph_.node(n).op)) return ValueOf(graph_.node(n).inputs[0]);
    auto [it, added] = value_of_.try_emplace(n, static_cast<int>(whole_.in.values.size()));
    if (!added) return it->second;
    const Node& node = graph_.node(n);
    PlanValue v;
    v.type = node.type;
    v.name = node.name;
    if (IsInput(node.op)) {
      v.kind = ValueKind::kInput;
    } else if (IsParameter(node.op)) {
      v.kind = ValueKind::kParameter;
    } else if (IsStateRead(node.op)) {
      v.kind = ValueKind::kState;
      v.layout = StateLayout(RoleOf(node), node.type.shape);
    } else if (IsConstant(node.op)) {
      v.kind = ValueKind::kConstant;
      v.literal = GetAttr<Tensor>(node.attrs, "value");
    }
    Add(std::move(v), inside_ ? -1 : n);
    return it->second;
  }

  absl::Status AddLaunches() {
    for (const KernelChoice& choice : scheduled_.genome.kernels) {
      const absl::Status added =
          choice.kind == KernelKind::kLoop ? AddLoop(choice) : AddKernel(choice);
      if (!added.ok()) return added;
    }
    return absl::OkStatus();
  }

 private:
  int Add(PlanValue value, NodeId node = -1) {
    whole_.in.values.push_back(std::move(value));
    whole_.nodes.push_back(node);
    return static_cast<int>(whole_.in.values.size()) - 1;
  }
  int AddOf(ValueKind kind, const TensorType& type) { return Add({kind, type, "", {}}); }

  const std::vector<bool>& MemoryFor(const KernelChoice& choice) const {
    return choice.packed >= 0 ? behind_panels_ : memory_;
  }

  absl::Status AddKernel(const KernelChoice& choice) {
    KernelTask task = CutTask(graph_, MemoryFor(choice), weights_, choice);
    const std::string key = absl::StrCat(task.key, " ", ScheduleText(choice));
    auto known = whole_.lowered.find(key);
    if (known == whole_.lowered.end()) {
      auto before = whole_.known_kernels.lowered.find(key);
      if (before == whole_.known_kernels.lowered.end()) {
        ASSIGN_OR_RETURN(LoweredKernel now, LowerTask(task, whole_.target));
        RETURN_IF_ERROR(whole_.backend.verify(now.kernel));
        before = whole_.known_kernels.lowered.emplace(key, std::move(now)).first;
      }
      known = whole_.lowered.emplace(key, LoweredTask{task, before->second}).first;
    }
    AddLaunch(choice, In(task, choice, known->second.lowered));
    return absl::OkStatus();
  }

  void AddLaunch(const KernelChoice& choice, const LoweredKernel& lowered) {
    const std::vector<bool>& memory = MemoryFor(choice);
    PlanLaunch launch{
        lowered.kernel, {}, Label(graph_, choice), Flops(graph_, memory, choice.root), 0};
    const std::map<NodeId, Expr> moved = MovedElements(graph_, memory, choice.root);
    for (size_t b = 0; b < lowered.buffers.size(); ++b) {
      const NodeId n = lowered.buffers[b];
      if (n < 0) {
        AddOfLaunch(lowered.kernel.buffers[b], &launch);
      } else {
        launch.buffers.push_back(ValueOf(n));
        // A step moves few of a state's slots.
        const Node& node = graph_.node(n);
        launch.moved_bytes +=
            IsState(node.op) ? moved.at(n) * DTypeBytes(node.type.dtype) : BytesOf(node.type);
      }
    }
    whole_.in.launches.push_back(std::move(launch));
  }

  void AddOfLaunch(const kir::Buffer& buffer, PlanLaunch* launch) {
    const TensorType type = {buffer.dtype, {buffer.elements}};
    launch->buffers.push_back(AddOf(ValueKind::kLaunch, type));
    whole_.in.values.back().zeroed = buffer.zeroed;
    // A kernel of code writes and reads it; the library has it for whatever it needs.
    if (kir::CallOf(launch->kernel) == nullptr) launch->moved_bytes += 2 * BytesOf(type);
  }

  absl::Status AddLoop(const KernelChoice& choice);
  // Returns the loop's body, ready to be lowered, with only those of its outputs that are wanted.
  // `results`: nodes of this graph by output of the body; `node` is one of their Scans.
  ScheduledGraph BodyFor(const Node& node, const std::map<int, NodeId>& results,
                         const FusionRules& rules);
  absl::Status AddBody(const KernelChoice& choice, const std::map<int, NodeId>& results,
                       const FusionRules& rules);

  const ScheduledGraph& scheduled_;
  const Graph& graph_;
  const std::vector<bool> memory_, behind_panels_, weights_;
  Whole& whole_;
  std::map<NodeId, int> value_of_;
  const bool inside_;
  std::set<std::string> loops_;  // loops added so far, by LoopKey
};

ScheduledGraph Assembly::BodyFor(const Node& node, const std::map<int, NodeId>& results,
                                 const FusionRules& rules) {
  const ScanView scan = ViewScan(node);
  Graph body = BodyOf(scan, graph_.dims);
  const std::vector<NodeId> inputs = body.InputIds();
  // A weight outside the loop is a weight inside too, so its layouts are prepared once.
  for (int i = scan.states + scan.scanned; i < static_cast<int>(node.inputs.size()); ++i) {
    if (weights_[node.inputs[i]]) body.nodes[inputs[scan.InputOf(i)]].op = Op::kParameter;
  }
  std::vector<Output> outputs;
  std::set<NodeId> written;
  for (int o = 0; o < static_cast<int>(body.outputs.size()); ++o) {
    if (o >= scan.states && !results.contains(o)) continue;
    Output output = body.outputs[o];
    const Op op = body.node(output.node).op;
    const bool leaf = IsDeclared(op) || IsConstant(op);
    if (leaf || !written.insert(output.node).second) {
      // Each output needs memory of its own, written by some kernel of the body.
      const TensorType type = body.node(output.node).type;
      IndexMap same{type.shape, {}};
      for (size_t a = 0; a < type.shape.size(); ++a) {
        same.coordinates.push_back(Expr::Axis(static_cast<int>(a)));
      }
      body.nodes.push_back({Op::kIndexMap, {output.node}, {{"map", std::move(same)}}, type, ""});
      output.node = static_cast<NodeId>(body.nodes.size()) - 1;
    }
    outputs.push_back(std::move(output));
  }
  body.outputs = std::move(outputs);
  ScheduledGraph scheduled{body, ChooseKernels(body, whole_.target, {.rules = rules})};
  PackWeights(&scheduled.graph, &scheduled.genome, whole_.target);
  return scheduled;
}

absl::Status Assembly::AddBody(const KernelChoice& choice, const std::map<int, NodeId>& results,
                               const FusionRules& rules) {
  const Node& node = graph_.node(choice.root);
  const ScanView scan = ViewScan(node);
  const ScheduledGraph body = BodyFor(node, results, rules);
  const std::vector<NodeId> ids = scan.body.InputIds();
  const size_t at = whole_.in.loops.size();
  whole_.in.loops.push_back(
      {.first = static_cast<int>(whole_.in.launches.size()), .count = scan.length});
  PlanLoop loop;
  std::map<NodeId, int> given;
  loop.turn = AddOf(ValueKind::kWindow, scan.body.node(ids[0]).type);
  given[ids[0]] = loop.turn;
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
    const NodeId inside = ids[scan.InputOf(i)];
    const int operand = ValueOf(node.inputs[i]);
    if (i >= scan.states + scan.scanned) {
      given[inside] = operand;
      continue;
    }
    given[inside] = AddOf(ValueKind::kWindow, scan.body.node(inside).type);
    if (i >= scan.states) {
      loop.slices.push_back({given[inside], operand, scan.reverse});
    } else {
      loop.carries.push_back({operand, given[inside], -1, -1, -1});
    }
  }
  size_t place = 0;  // index in the remaining outputs
  for (int o = 0; o < static_cast<int>(scan.body.outputs.size()); ++o) {
    const auto result = results.find(o);
    if (o >= scan.states && result == results.end()) continue;
    const NodeId out = body.graph.outputs[place++].node;
    const TensorType& type = body.graph.node(out).type;
    given[out] = AddOf(ValueKind::kWindow, type);
    if (o < scan.states) {
      PlanLoop::Carry& carry = loop.carries[o];
      carry.next = given[out];
      carry.last =
          result == results.end() ? AddOf(ValueKind::kComputed, type) : ValueOf(result->second);
      carry.other = AddOf(ValueKind::kComputed, type);
    } else {
      loop.slices.push_back({given[out], ValueOf(result->second), scan.reverse});
    }
  }
  Assembly assembly(body, &whole_, std::move(given), /*inside=*/true);
  RETURN_IF_ERROR(assembly.AddLaunches());
  PlanLoop& there = whole_.in.loops[at];
  loop.first = there.first;
  loop.end = static_cast<int>(whole_.in.launches.size());
  loop.count = scan.length;
  for (int l = loop.first; l < loop.end; ++l) {
    PlanLaunch& launch = whole_.in.launches[l];
    launch.label = absl::StrCat(launch.label, " of ", graph_.Describe(choice.root));
  }
  there = std::move(loop);
  return absl::OkStatus();
}

absl::Status Assembly::AddLoop(const KernelChoice& choice) {
  const Node& node = graph_.node(choice.root);
  const std::string key = LoopKey(node);
  if (!loops_.insert(key).second) return absl::OkStatus();
  std::map<int, NodeId> results;
  for (const KernelChoice& other : scheduled_.genome.kernels) {
    if (other.kind != KernelKind::kLoop || LoopKey(graph_.node(other.root)) != key) continue;
    results.emplace(ViewScan(graph_.node(other.root)).result, other.root);
  }
  PlanInput& in = whole_.in;
  const size_t values = in.values.size(), launches = in.launches.size();
  const size_t plan_loops = in.loops.size(), loops = whole_.loops.size();
  FusionRules rules = whole_.rules;
  absl::Status added = AddBody(choice, results, rules);
  if (absl::IsInternal(added)) {  // slower, but always possible
    in.values.erase(in.values.begin() + values, in.values.end());
    in.launches.erase(in.launches.begin() + launches, in.launches.end());
    in.loops.erase(in.loops.begin() + plan_loops, in.loops.end());
    whole_.nodes.resize(values);
    whole_.loops.erase(whole_.loops.begin() + loops, whole_.loops.end());
    std::erase_if(value_of_, [&](const auto& v) { return v.second >= static_cast<int>(values); });
    rules.epilogues = false;
    added = AddBody(choice, results, rules);
  }
  if (!added.ok()) return added;
  whole_.loops.emplace_back(CutTask(graph_, memory_, weights_, choice),
                            kir::KirHash(whole_.in.launches.back().kernel));
  return absl::OkStatus();
}

// The kind of plans that check a kernel alone, and never serve.
constexpr char kCheck[] = "check";

// Literals as text take several times their bytes, and this text is only for people.
constexpr size_t kMostLiteralBytes = size_t{64} << 10;

// Returns the kernels in execution order, then the graph whose nodes they name.
std::string GenomeText(const ScheduledGraph& scheduled) {
  std::string text;
  size_t literals = 0;
  for (const Node& node : scheduled.graph.nodes) {
    if (IsConstant(node.op)) literals += GetAttr<Tensor>(node.attrs, "value").bytes.size();
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

}  // namespace

absl::StatusOr<BuiltPlan> PlanBuilder::Build(const ScheduledGraph& scheduled,
                                             const PlanNames& names) const {
  return BuildWith(scheduled, names, std::make_shared<KnownKernels>());
}

absl::StatusOr<BuiltPlan> PlanBuilder::BuildWith(const ScheduledGraph& scheduled,
                                                 const PlanNames& names,
                                                 std::shared_ptr<KnownKernels> known) const {
  const Graph& graph = scheduled.graph;
  ASSIGN_OR_RETURN(const Backend* const backend, FindBackend(target_.device()));
  Whole whole(target_, *backend, names.rules, known.get());
  Assembly assembly(scheduled, &whole);
  for (NodeId n : graph.InputIds()) assembly.ValueOf(n);
  for (NodeId n : graph.ParameterIds()) assembly.ValueOf(n);
  for (NodeId n : graph.StateIds()) assembly.ValueOf(n);
  RETURN_IF_ERROR(assembly.AddLaunches());
  PlanInput& in = whole.in;
  in.target = target_;
  in.scratch_bytes = backend->scratch_bytes;
  in.graph_hash = names.graph_hash.empty() ? CanonicalHash(graph) : names.graph_hash;
  in.kind = names.kind;
  in.dims = graph.dims;
  in.dim_names = names.dim_names;
  if (in.dim_names.empty()) {
    for (const Dim& d : in.dims) in.dim_names.push_back(d.name);
  }
  if (!graph.StateIds().empty() && names.kind != kCheck) {
    in.signature = SignatureOf(graph, scheduled.genome, target_);
  }
  for (const Output& o : graph.outputs) in.outputs.emplace_back(o.name, assembly.ValueOf(o.node));
  const auto print = [&](const kir::Kernel& k, const std::string& hash) {
    auto [printed, added] = known->printed.try_emplace(hash);
    if (added) printed->second = backend->print(k, target_);
    return printed->second;
  };
  ASSIGN_OR_RETURN(v1::Plan plan, MakePlan(in, print));
  BuiltPlan built{std::move(plan), {}, std::move(whole.nodes), std::move(known)};
  std::map<std::string, int> kernel_of;
  for (int k = 0; k < built.plan.kernels_size(); ++k) {
    kernel_of[built.plan.kernels(k).kir_hash()] = k;
  }
  for (auto& [task, hash] : whole.loops) {
    built.tasks.emplace_back(std::move(task), kernel_of.at(hash));
  }
  for (auto& [key, task] : whole.lowered) {
    auto kernel = kernel_of.extract(kir::KirHash(task.lowered.kernel));
    if (kernel.empty()) continue;
    if (names.describe) {
      built.plan.mutable_kernels(kernel.mapped())->set_kir(kir::ToText(task.lowered.kernel));
    }
    built.tasks.emplace_back(std::move(task.task), kernel.mapped());
  }
  if (names.describe) built.plan.set_genome(GenomeText(scheduled));
  std::sort(built.tasks.begin(), built.tasks.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second, a.first.key) < std::tie(b.second, b.first.key);
  });
  return built;
}

absl::StatusOr<internal::CheckRequest> PlanBuilder::Check(const KernelTask& task,
                                                          const KernelChoice& choice) const {
  return CheckWith(task, choice, std::make_shared<KnownKernels>());
}

absl::StatusOr<internal::CheckRequest> PlanBuilder::CheckWith(
    const KernelTask& task, const KernelChoice& choice, std::shared_ptr<KnownKernels> known) const {
  ScheduledGraph scheduled = WithSchedule(task, choice, target_);
  // A write's result is not copied out of a run: the check reads the state.
  std::erase_if(scheduled.graph.outputs, [&](const Output& output) {
    return IsStateWrite(scheduled.graph.node(output.node).op);
  });
  ASSIGN_OR_RETURN(BuiltPlan built,
                   BuildWith(scheduled, {.kind = kCheck, .describe = false}, std::move(known)));
  internal::CheckRequest request;
  *request.mutable_plan() = std::move(built.plan);
  request.set_graph_text(ToText(task.graph));
  const std::vector<bool> memory = MemoryOf(task.graph, {{task.choice}});
  AddCheckSizes(task.graph, Flops(task.graph, memory, task.choice.root),
                paged_.has_value() ? &*paged_ : nullptr, &request);
  return request;
}

absl::StatusOr<std::vector<internal::KernelCheck>> PlanBuilder::Checks(
    const BuiltPlan& built) const {
  std::vector<internal::KernelCheck> checks;
  for (const auto& [task, kernel] : built.tasks) {
    ASSIGN_OR_RETURN(internal::CheckRequest check, CheckWith(task, task.choice, built.known));
    internal::KernelCheck& out = checks.emplace_back();
    out.set_kernel(static_cast<uint32_t>(kernel));
    *out.mutable_request() = std::move(check);
  }
  return checks;
}

}  // namespace athanor
