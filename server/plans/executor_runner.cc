#include "server/plans/executor_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Least work of one core in a microsecond (flops plus moved bytes), and the cost of a launch. The
// first is a low guess and the second a high one, so that no long run is taken for a short one.
constexpr int64_t kWorkPerMicrosecond = 4'000;
constexpr int64_t kLaunchesPerMicrosecond = 4;
// Each run moves the pace by so much towards itself, so that it stays at the runs' median, and one
// that was interrupted counts as any other.
constexpr double kPaceStep = 1.1;
// Bounds what runs change of a guess: short runs of one size say little about long ones of another.
constexpr double kMostPace = 8;

}  // namespace

struct ExecutorRunner::Context final : RunContext {
  ~Context() override { *arena_bytes -= charged; }
  void EndTurn() override { begun = {}; }

  std::unique_ptr<Executable::Context> context;
  std::shared_ptr<std::atomic<int64_t>> arena_bytes;
  int64_t charged = 0;
  std::vector<std::string> unwanted;  // outputs that nobody asked for, by plan output
  std::vector<absl::string_view> inputs;
  std::vector<absl::Span<char>> outputs;
  std::vector<int64_t> dims;
  Turns::Turn turn;
  Turns::Lease begun;  // by TryTurn
};

absl::StatusOr<std::shared_ptr<PlanRunner>> ExecutorRunner::Load(
    const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
    absl::Span<const std::shared_ptr<const MappedTensor>> parameters, Device* device,
    const LoadOptions& options, const SharedDevice& shared) {
  std::vector<absl::string_view> object_bytes;
  for (const KernelObject& object : objects) object_bytes.push_back(object.object);
  std::vector<ParameterView> views;
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    views.push_back(
        {graph.node(ids[i]).name,
         absl::string_view(static_cast<const char*>(parameters[i]->data()), parameters[i]->bytes()),
         parameters[i], parameters[i]->hash()});
  }
  auto runner = std::make_shared<ExecutorRunner>();
  runner->shared_ = shared;
  runner->device_ = device;
  runner->ledger_ = options.ledger;
  ASSIGN_OR_RETURN(runner->executable_,
                   Executable::Load(plan, object_bytes, views, device, options));
  RETURN_IF_ERROR(runner->MatchNames(graph, plan));
  RETURN_IF_ERROR(runner->AddWork(plan));
  runner->AddStates(graph, plan);
  return std::shared_ptr<PlanRunner>(std::move(runner));
}

absl::Status ExecutorRunner::MatchNames(const Graph& graph, const v1::Plan& plan) {
  auto find = [](const auto& items, const std::string& name, auto name_of) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (name_of(items[i]) == name) return static_cast<int>(i);
    }
    return -1;
  };
  for (const SizeDim& dim : executable_->dims()) {
    dims_.push_back(find(graph.dims, dim.name, [](const Dim& d) { return d.name; }));
    if (dims_.back() < 0) return Invalid("plan: dim ", Quoted(dim.name), " is not the graph's");
  }
  const std::vector<NodeId> ids = graph.InputIds();
  for (int i = 0; i < executable_->inputs(); ++i) {
    const std::string& name = executable_->input_name(i);
    inputs_.push_back(find(ids, name, [&](NodeId id) { return graph.node(id).name; }));
    if (inputs_.back() < 0) return Invalid("plan: input ", Quoted(name), " is not the graph's");
  }
  for (int i = 0; i < executable_->outputs(); ++i) {
    const std::string& name = executable_->output_name(i);
    outputs_.push_back(find(graph.outputs, name, [](const Output& o) { return o.name; }));
    if (outputs_.back() < 0) return Invalid("plan: output ", Quoted(name), " is not the graph's");
  }
  return absl::OkStatus();
}

absl::Status ExecutorRunner::AddWork(const v1::Plan& plan) {
  work_sizes_ = SizeTable(executable_->dims());
  for (const v1::Step& step : plan.run()) {
    const absl::StatusOr<int> flops = work_sizes_.Add(step.flops());
    const absl::StatusOr<int> bytes = work_sizes_.Add(step.moved_bytes());
    if (!flops.ok()) return flops.status();
    if (!bytes.ok()) return bytes.status();
    work_.push_back({*flops, *bytes, {}});
  }
  for (const v1::Loop& loop : plan.loops()) {
    ASSIGN_OR_RETURN(const int turns, work_sizes_.Add(loop.count()));
    for (uint32_t i = loop.first(); i < loop.first() + loop.steps(); ++i) {
      work_[i].turns.push_back(turns);
    }
  }
  return absl::OkStatus();
}

void ExecutorRunner::AddPrepared(Prepared* held) const {
  for (const PreparedPool::Block& block : executable_->fixed_blocks()) {
    if (block) (*held)[block.data()] = block.bytes();
  }
}

std::vector<int64_t> ExecutorRunner::PlanDims(absl::Span<const int64_t> dims) const {
  std::vector<int64_t> own;
  own.reserve(dims_.size());
  for (int dim : dims_) own.push_back(dims[dim]);
  return own;
}

double ExecutorRunner::Guess(absl::Span<const int64_t> plan_dims) const {
  const auto value = [&](int id) {
    return static_cast<double>(std::max<int64_t>(0, work_sizes_.EvaluateOne(id, plan_dims)));
  };
  double work = 0, launches = 0;
  for (const Work& step : work_) {
    double turns = 1;
    for (int id : step.turns) turns *= value(id);
    work += turns * (value(step.flops) + value(step.bytes));
    launches += turns;
  }
  return work / kWorkPerMicrosecond + launches / kLaunchesPerMicrosecond;
}

int64_t ExecutorRunner::EstimateMicroseconds(absl::Span<const int64_t> dims) const {
  constexpr double kMost = 1e15;  // years
  return static_cast<int64_t>(std::min(kMost, Guess(PlanDims(dims)) * pace_));
}

void ExecutorRunner::AddStates(const Graph& graph, const v1::Plan& plan) {
  for (NodeId id : graph.StateIds()) {
    const Node& node = graph.node(id);
    for (const v1::Buffer& buffer : plan.buffers()) {
      if (buffer.kind() != v1::Buffer::STATE || buffer.name() != node.name) continue;
      int64_t bytes = DTypeBytes(node.type.dtype);
      for (size_t i = 1; i < node.type.shape.size(); ++i) bytes *= *node.type.shape[i].constant();
      states_.push_back({node.name, buffer.layout(), bytes});
    }
  }
}

absl::StatusOr<std::unique_ptr<StateMemory>> ExecutorRunner::NewStates(int64_t slots, int64_t block,
                                                                       StateMemory::Order order) {
  if (states_.empty()) return PlanRunner::NewStates(slots, block, order);
  return StateMemory::Create(device_, ledger_, states_, slots, block, order);
}

absl::StatusOr<std::unique_ptr<RunContext>> ExecutorRunner::Make(const StateMemory* states) {
  ASSIGN_OR_RETURN(std::unique_ptr<Executable::Context> made, executable_->NewContext(states));
  auto context = std::make_unique<Context>();
  context->context = std::move(made);
  context->arena_bytes = arena_bytes_;
  context->unwanted.resize(outputs_.size());
  context->inputs.resize(inputs_.size());
  context->outputs.resize(outputs_.size());
  context->dims.resize(dims_.size());
  // Plans over states are those of an engine's steps.
  if (states != nullptr) context->turn = {Turns::Kind::kStep, states};
  return std::unique_ptr<RunContext>(std::move(context));
}

bool ExecutorRunner::TryTurn(RunContext& run_context) {
  if (shared_.turns == nullptr) return true;
  auto& context = static_cast<Context&>(run_context);
  context.begun = shared_.turns->TryRun(usual());
  return static_cast<bool>(context.begun);
}

absl::Status ExecutorRunner::Run(RunContext& run_context, absl::Span<const int64_t> dims,
                                 absl::Span<const std::string_view> inputs,
                                 absl::Span<const RunOutput> outputs, const RunLimits& limits) {
  auto& context = static_cast<Context&>(run_context);
  Turns::Lease turn = std::exchange(context.begun, {});
  if (shared_.turns != nullptr && !turn) {
    context.turn.usual = usual();
    ASSIGN_OR_RETURN(turn, shared_.turns->Begin(context.turn, limits.deadline));
  }
  const auto began = Clock::now();
  const absl::Status status = RunNow(context, dims, inputs, outputs, limits);
  if (status.ok()) Learn(context, Clock::now() - began);
  return status;
}

// Loses what one of two learns at the same time.
void ExecutorRunner::Learn(const Context& context, Clock::duration took) {
  constexpr int64_t kWeight = 8;
  const int64_t before = usual_ns_.load(std::memory_order_relaxed);
  const int64_t now = std::chrono::nanoseconds(took).count();
  usual_ns_.store(before == 0 ? now : before + (now - before) / kWeight, std::memory_order_relaxed);

  if (context.turn.kind == Turns::Kind::kStep) return;  // nobody asks how long a step will take
  const double pace = pace_.load(std::memory_order_relaxed);
  const bool slower = static_cast<double>(now) / 1e3 > Guess(context.dims) * pace;
  pace_.store(std::clamp(slower ? pace * kPaceStep : pace / kPaceStep, 1 / kMostPace, kMostPace),
              std::memory_order_relaxed);
}

absl::Status ExecutorRunner::RunNow(Context& context, absl::Span<const int64_t> dims,
                                    absl::Span<const std::string_view> inputs,
                                    absl::Span<const RunOutput> outputs, const RunLimits& limits) {
  const Traffic::Request request(shared_.traffic);
  for (size_t i = 0; i < dims_.size(); ++i) context.dims[i] = dims[dims_[i]];
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const std::string_view bytes = inputs[inputs_[i]];
    context.inputs[i] = absl::string_view(bytes.data(), bytes.size());
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    auto wanted = std::find_if(outputs.begin(), outputs.end(), [&](const RunOutput& output) {
      return output.output == outputs_[i];
    });
    if (wanted != outputs.end()) {
      context.outputs[i] = {static_cast<char*>(wanted->data), static_cast<size_t>(wanted->bytes)};
    } else {
      context.unwanted[i].resize(executable_->output_bytes(static_cast<int>(i), context.dims));
      context.outputs[i] = absl::MakeSpan(context.unwanted[i]);
    }
  }
  RunOptions options;
  options.deadline = limits.deadline;
  options.cancelled = limits.cancelled;
  const absl::Status status = executable_->Run(context.context.get(), context.dims, context.inputs,
                                               context.outputs, options);
  const int64_t charged = context.context->charged_bytes();
  *context.arena_bytes += charged - std::exchange(context.charged, charged);
  return status;
}

}  // namespace athanor
