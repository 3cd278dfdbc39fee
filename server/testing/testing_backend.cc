// Backends for tests: plans run in the reference evaluator, searches follow a script.
#include <cstring>
#include <utility>

#include "compiler/frontend/frontend.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/device.h"
#include "server/keeper/plan_keeper.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

// Its states lie row by row, in memory as the runtime has it; each state by itself, since a run
// writes all of it.
class EvaluatorRunner final : public PlanRunner {
 public:
  EvaluatorRunner(const Graph& graph, std::vector<Tensor> parameters, MemoryLedger* ledger,
                  std::shared_ptr<TestControl> control)
      : graph_(graph),
        parameters_(std::move(parameters)),
        ledger_(ledger),
        control_(std::move(control)) {}

  absl::StatusOr<std::unique_ptr<RunContext>> NewContext() override {
    if (!graph_.StateIds().empty()) return absl::FailedPreconditionError("the plan has states");
    return std::make_unique<Context>();
  }
  absl::StatusOr<std::unique_ptr<StateMemory>> NewStates(int64_t slots, int64_t block,
                                                         StateMemory::Order) override {
    std::vector<StateMemory::Spec> specs;
    for (NodeId id : graph_.StateIds()) {
      const TensorType& type = graph_.node(id).type;
      int64_t bytes = DTypeBytes(type.dtype);
      for (size_t i = 1; i < type.shape.size(); ++i) bytes *= *type.shape[i].constant();
      specs.push_back({graph_.node(id).name, "", bytes});
    }
    return StateMemory::Create(device_.get(), ledger_, std::move(specs), slots, block);
  }
  absl::StatusOr<std::unique_ptr<RunContext>> NewContextOver(const StateMemory& states) override {
    auto context = std::make_unique<Context>();
    context->states = &states;
    return std::unique_ptr<RunContext>(std::move(context));
  }

  absl::Status Run(RunContext& context, absl::Span<const int64_t> dims,
                   absl::Span<const std::string_view> inputs, absl::Span<const RunOutput> outputs,
                   const RunLimits& limits) override {
    control_->PassRun();
    Expr::Env env;
    for (size_t i = 0; i < dims.size(); ++i) env[graph_.dims[i].name] = dims[i];
    std::vector<Tensor> values;
    const std::vector<NodeId> ids = graph_.InputIds();
    for (size_t i = 0; i < ids.size(); ++i) {
      const TensorType& type = graph_.node(ids[i]).type;
      Tensor tensor{type.dtype, {}, std::string(inputs[i])};
      for (const Expr& size : type.shape) tensor.shape.push_back(size.Evaluate(env).value());
      values.push_back(std::move(tensor));
    }
    values.insert(values.end(), parameters_.begin(), parameters_.end());
    const StateMemory* const states = static_cast<Context&>(context).states;
    const std::vector<NodeId> state_ids = graph_.StateIds();
    for (size_t i = 0; i < state_ids.size(); ++i) {
      const TensorType& type = graph_.node(state_ids[i]).type;
      std::vector<int64_t> shape;
      for (const Expr& size : type.shape) shape.push_back(size.Evaluate(env).value());
      Tensor tensor = Tensor::Zeros(type.dtype, shape);
      tensor.bytes.assign(states->data(static_cast<int>(i)), tensor.bytes.size());
      values.push_back(std::move(tensor));
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> results, Evaluate(graph_, values));
    for (size_t i = 0; i < state_ids.size(); ++i) {
      const std::string& left = results[graph_.outputs.size() + i].bytes;
      std::memcpy(states->data(static_cast<int>(i)), left.data(), left.size());
    }
    for (const RunOutput& output : outputs) {
      const Tensor& result = results[output.output];
      if (static_cast<int64_t>(result.bytes.size()) != output.bytes) {
        return absl::InternalError("output has another size");
      }
      std::memcpy(output.data, result.bytes.data(), result.bytes.size());
    }
    return absl::OkStatus();
  }

  int64_t prepared_bytes() const override { return 0; }
  int64_t arena_bytes() const override { return 0; }
  int64_t EstimateMicroseconds(absl::Span<const int64_t>) const override { return 1'000; }

 private:
  struct Context final : RunContext {
    const StateMemory* states = nullptr;
  };

  const Graph graph_;
  const std::vector<Tensor> parameters_;
  MemoryLedger* const ledger_;
  const std::shared_ptr<TestControl> control_;
  const std::unique_ptr<CpuDevice> device_ = CpuDevice::Create({.threads = 1}).value();
};

constexpr char kPlainKernel[] = "plain reference";

// Returns the compiled code as this backend sees it; loading it with another plan is an error.
std::string ObjectOf(const v1::Plan& plan) { return "object of " + plan.plan_id(); }

void SetDims(const Graph& graph, v1::Plan* plan) {
  plan->clear_dims();
  for (const Dim& dim : graph.dims) {
    auto* range = plan->add_dims();
    range->set_name(dim.name);
    range->set_min(dim.min);
    range->set_max(dim.max);
  }
}

class ScriptedSearch final : public PlanSearch {
 public:
  // `interrupted` is the backend's.
  ScriptedSearch(const Graph& graph, CompiledPlan from, TestSearch script,
                 std::shared_ptr<TestControl> control, const bool* interrupted)
      : graph_(graph),
        from_(std::move(from)),
        script_(std::move(script)),
        control_(std::move(control)),
        interrupted_(interrupted) {}

  absl::StatusOr<Step> Next() override {
    RETURN_IF_ERROR(control_->PassSearch(interrupted_));
    control_->Tell("step " + from_.plan.plan_id());
    progress_.set_candidates(progress_.candidates() + 1);
    Step step;
    if (script_.first > 0 && !finishing_) {
      --script_.first;
      return step;
    }
    if (found_ < script_.plans && !finishing_) {
      ++found_;
      step.found = Another();
    } else if (!script_.error.ok()) {
      return script_.error;
    } else if (finishing_) {
      step.stop = v1::CompileJob::STOP_BUDGET;
    } else if (!script_.endless) {
      step.stop = script_.stop;
    }
    return step;
  }
  void Finish() override { finishing_ = !script_.deaf; }
  void Until(std::chrono::steady_clock::time_point) override {}
  void Taken(const absl::Status& taken) override {
    control_->Tell((taken.ok() ? "taken " : "refused ") + offered_);
    if (!taken.ok()) return;
    progress_.set_best(progress_.plans_taken() == 0 ? 0.5 : progress_.best() / 2);
    progress_.set_plans_taken(progress_.plans_taken() + 1);
    taken_ = offered_;
  }
  const v1::SearchProgress& progress() const override { return progress_; }
  std::vector<absl::StatusOr<std::string>> TakePictures() override {
    return std::exchange(script_.pictures, {});
  }
  absl::StatusOr<v1::PlanComparison> CompareWith(const CompiledPlan& other) override {
    if (script_.crowded-- > 0) return absl::AbortedError("no gaps to measure in");
    const std::string best = taken_.empty() ? from_.plan.plan_id() : taken_;
    control_->Tell("compare " + best + " with " + other.plan.plan_id());
    v1::PlanComparison comparison;
    comparison.set_plan_id(best);
    comparison.set_against(other.plan.plan_id());
    comparison.set_ratio(best == other.plan.plan_id() ? 1 : script_.compared);
    comparison.set_low(comparison.ratio());
    comparison.set_high(comparison.ratio());
    return comparison;
  }
  absl::StatusOr<std::vector<v1::PlanCost>> Costs(const CompiledPlan& plan) override {
    if (script_.crowded-- > 0) return absl::AbortedError("no gaps to measure in");
    v1::PlanCost cost;
    cost.set_size("n=1");
    for (int s = 0; s < plan.plan.run_size(); ++s) cost.add_steps()->set_seconds(0.25);
    return std::vector<v1::PlanCost>{cost};
  }

 private:
  CompiledPlan Another() {
    CompiledPlan found = from_;
    offered_ = control_->NextPlanId();
    found.plan.set_plan_id(offered_);
    found.plan.set_kind("search");
    SetDims(graph_, &found.plan);
    found.plan.mutable_kernels(0)->set_source(offered_);
    for (KernelObject& kernel : found.objects) {
      kernel.object = ObjectOf(found.plan);
      control_->Keep(found.plan, kernel);
    }
    return found;
  }

  const Graph graph_;
  const CompiledPlan from_;
  TestSearch script_;
  const std::shared_ptr<TestControl> control_;
  const bool* const interrupted_;
  int found_ = 0;
  bool finishing_ = false;
  std::string offered_, taken_;
  v1::SearchProgress progress_;
};

class EvaluatorBackend final : public CompileBackend {
 public:
  explicit EvaluatorBackend(std::shared_ptr<TestControl> control) : control_(std::move(control)) {}

  void Use(const std::string& device) override { used_ = device; }

  absl::StatusOr<internal::TargetReply> Machine() override {
    if (control_->cache() == nullptr) return absl::UnimplementedError("plans are not kept");
    if (!control_->HasDevice(used_)) return control_->loss(used_);
    control_->AskMachine();
    return control_->machine(used_);
  }

  absl::StatusOr<internal::LowerReply> Lower(const Graph& graph, bool plain) override {
    v1::Plan plan;
    std::string what = CanonicalHash(graph) + (plain ? " plain" : "");
    for (const Dim& dim : graph.dims) {
      what += ' ' + dim.name + '=' + std::to_string(dim.min) + ".." + std::to_string(dim.max);
    }
    plan.set_plan_id("p-" + Sha256Hex(what).substr(0, 16));
    plan.set_kind("baseline");
    SetDims(graph, &plan);
    plan.add_kernels()->set_name(plain ? kPlainKernel : "reference");
    plan.mutable_kernels(0)->set_source(plan.plan_id());
    plan.add_run();
    if (const int64_t bytes = control_->constant_bytes; bytes > 0) {
      plan.set_format(1);
      v1::Buffer* constant = plan.add_buffers();
      constant->set_kind(v1::Buffer::CONSTANT);
      constant->set_dtype("u8");
      constant->mutable_bytes()->add_terms()->set_coefficient(bytes);
      constant->set_literal(std::string(bytes, 'c'));
      plan.add_outputs()->set_name("c");
    }
    control_->Tell((plain ? "lower plain " : "lower ") + plan.plan_id());
    internal::LowerReply lowered;
    *lowered.mutable_plan() = std::move(plan);
    return lowered;
  }

  absl::StatusOr<KernelObject> CompileKernel(const v1::Plan& plan, int) override {
    const absl::Status s = control_->PassCompile(&interrupted_);
    const bool right = absl::IsDataLoss(s) && plan.kernels(0).name() == kPlainKernel;
    if (!s.ok() && !right) return s;
    const KernelObject object{ObjectOf(plan), false};
    control_->Keep(plan, object);
    return object;
  }

  absl::Status CheckKernel(const v1::Plan&, const internal::KernelCheck&,
                           absl::Span<const KernelObject>) override {
    return absl::OkStatus();
  }

  absl::Status Verify(const Graph&, const CompiledPlan& plan) override {
    control_->Tell("verify " + plan.plan.plan_id());
    return control_->verdict();
  }

  absl::StatusOr<std::unique_ptr<PlanSearch>> NewSearch(const Graph& graph, CompiledPlan from,
                                                        const PlanSearchOptions& options) override {
    std::optional<TestSearch> script = control_->search();
    if (!script.has_value()) {
      return absl::UnimplementedError("the reference evaluator has no faster plans");
    }
    control_->Tell("search from " + from.plan.plan_id());
    control_->SetSearchOptions(options);
    return std::make_unique<ScriptedSearch>(graph, std::move(from), *std::move(script), control_,
                                            &interrupted_);
  }
  size_t most_searches() const override { return TestControl::kMostSearches; }
  void Interrupt() override { control_->SetInterrupted(&interrupted_, true); }
  void ClearInterrupt() override { control_->SetInterrupted(&interrupted_, false); }

 private:
  const std::shared_ptr<TestControl> control_;
  std::string used_ = "cpu";
  bool interrupted_ = false;  // guarded by the control's lock
};

class EvaluatorBackends final : public CompileBackends {
 public:
  explicit EvaluatorBackends(std::shared_ptr<TestControl> control) : control_(std::move(control)) {}

  std::unique_ptr<CompileBackend> New() override {
    return std::make_unique<EvaluatorBackend>(control_);
  }

  absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const std::string&, const Graph& graph, const v1::Plan& plan,
      absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters,
      MemoryLedger* ledger) override {
    for (const KernelObject& object : objects) {
      if (object.object == ObjectOf(plan)) continue;
      return absl::InternalError("plan " + plan.plan_id() + " was given the " + object.object);
    }
    std::vector<Tensor> tensors;
    const std::vector<NodeId> ids = graph.ParameterIds();
    for (size_t i = 0; i < ids.size(); ++i) {
      const TensorType& type = graph.node(ids[i]).type;
      Tensor tensor{
          type.dtype,
          {},
          std::string(static_cast<const char*>(parameters[i]->data()), parameters[i]->bytes())};
      for (const Expr& size : type.shape) tensor.shape.push_back(size.constant().value());
      tensors.push_back(std::move(tensor));
    }
    return std::make_shared<EvaluatorRunner>(graph, std::move(tensors), ledger, control_);
  }

  absl::StatusOr<std::vector<std::string>> RuleNames() override {
    return std::vector<std::string>{"double_not", "algebra", "fuse", "layout"};
  }
  std::optional<internal::TargetReply> known_machine(const std::string& device) override {
    if (cache() == nullptr || !control_->machine_known()) return std::nullopt;
    if (!control_->HasDevice(device)) return std::nullopt;
    return control_->machine(device);
  }
  Cache* cache() override { return control_->cache(); }
  std::vector<v1::Device> Devices() override {
    ++control_->descriptions;
    return {control_->device()};
  }
  std::vector<std::string> DeviceNames() const override { return control_->devices; }
  PreparedPool* pool(const std::string&, MemoryLedger*) override { return control_->pool; }
  std::optional<internal::MachineReply> Limits(const std::string&) override {
    return control_->limits;
  }
  absl::Status loss(const std::string& device) override { return control_->loss(device); }
  void OnLoss(std::function<void()> call) override { control_->OnLoss(std::move(call)); }

 private:
  const std::shared_ptr<TestControl> control_;
};

}  // namespace

std::shared_ptr<CompileBackends> EvaluatorFactory(std::shared_ptr<TestControl> control) {
  return std::make_shared<EvaluatorBackends>(std::move(control));
}

}  // namespace athanor
