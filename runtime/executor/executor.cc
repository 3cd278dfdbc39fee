#include "runtime/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/program/checked_call.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kIndexErrorUrl[] = "athanor/index_error";

}  // namespace

bool Executable::StepByStep(const RunOptions& options) {
  return options.check != nullptr || !options.step_nanoseconds.empty();
}

absl::Status Executable::OutOfRange(const std::string& label, const KernelError& error) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("step '", label, "': index ", error.index, " is out of range [0, ", error.extent,
                   ") at work item ", error.item));
  status.SetPayload(kIndexErrorUrl, absl::Cord());
  return status;
}

absl::Status Executable::InStep(const std::string& label, const absl::Status& status) {
  // Names its own step, which the host was ahead of.
  if (IsIndexError(status)) return status;
  return absl::Status(status.code(), absl::StrCat("step '", label, "': ", status.message()));
}

absl::Status Executable::InKernel(const v1::Plan& plan, int kernel, const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat("kernel ", kernel, " '", plan.kernels(kernel).name(), "': ", status.message()));
}

bool IsIndexError(const absl::Status& status) {
  return status.GetPayload(kIndexErrorUrl).has_value();
}

Executable::Executable(Program program, Device* device, const LoadOptions& options)
    : program_(std::move(program)),
      device_(device),
      host_memory_(device->host_memory()),
      options_(options),
      own_pool_(options.pool != nullptr ? nullptr
                                        : std::make_unique<PreparedPool>(device, options.ledger)),
      fixed_(options.pool != nullptr ? options.pool : own_pool_.get(),
             /*shares=*/options.pool != nullptr),
      weights_(options.pool != nullptr ? options.pool : own_pool_.get(),
               /*shares=*/options.pool != nullptr, host_memory_) {}

Executable::~Executable() = default;

absl::StatusOr<std::shared_ptr<const Executable>> Executable::Load(
    const v1::Plan& plan, absl::Span<const absl::string_view> objects,
    absl::Span<const ParameterView> parameters, Device* device, const LoadOptions& options) {
  const std::string& made_for = plan.target().device();
  if (!made_for.empty() && made_for != device->name()) {
    return absl::FailedPreconditionError(absl::StrCat("plan '", plan.plan_id(),
                                                      "' is made for device '", made_for,
                                                      "', not for '", device->name(), "'"));
  }
  ASSIGN_OR_RETURN(Program program, BuildProgram(plan));
  std::shared_ptr<Executable> executable(new Executable(std::move(program), device, options));
  MemoryCharge scratch(options.ledger, MemoryKind::kScratch);
  RETURN_IF_ERROR(executable->ChargeScratch(&scratch));
  ASSIGN_OR_RETURN(auto queue, device->NewQueue(executable->program_.scratch_bytes));
  absl::Status status = executable->Fill(plan, objects, parameters, *queue);
  // What is queued reads the plan and the parameters, so an error waits for it, too.
  if (absl::Status waited = queue->Wait(); status.ok()) status = waited;
  if (!status.ok()) return status;
  return std::shared_ptr<const Executable>(std::move(executable));
}

// Charges the scratch of `prepare`, and then of the first context.
absl::Status Executable::ChargeScratch(MemoryCharge* scratch) const {
  const int64_t bytes = device_->ScratchBytes(program_.scratch_bytes);
  absl::Status status = scratch->Raise(bytes);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("plan '", program_.plan_id, "' needs ", bytes,
                                                  " bytes of scratch for steps that use up to ",
                                                  program_.scratch_bytes, ": ", status.message()));
}

absl::Status Executable::Fill(const v1::Plan& plan, absl::Span<const absl::string_view> objects,
                              absl::Span<const ParameterView> parameters, DeviceQueue& queue) {
  RETURN_IF_ERROR(ReserveMemory(plan, parameters, queue));
  RETURN_IF_ERROR(LoadKernels(plan, objects));
  RETURN_IF_ERROR(weights_.Upload(program_, parameters, queue));
  RETURN_IF_ERROR(Prepare(queue));
  // Others may use what is kept from now on, so it has to be there.
  RETURN_IF_ERROR(queue.Wait());
  fixed_.Keep();
  weights_.Keep(program_);
  return absl::OkStatus();
}

absl::Status Executable::ReserveMemory(const v1::Plan& plan,
                                       absl::Span<const ParameterView> parameters,
                                       DeviceQueue& queue) {
  ParameterHashes hashes;
  for (const ParameterView& parameter : parameters) hashes[parameter.name] = parameter.hash;
  RETURN_IF_ERROR(fixed_.Reserve(plan, program_, hashes, queue));
  return weights_.Reserve(program_, hashes, fixed_.steps());
}

absl::Status Executable::LoadKernels(const v1::Plan& plan,
                                     absl::Span<const absl::string_view> objects) {
  if (objects.size() != static_cast<size_t>(program_.kernels)) {
    return absl::InvalidArgumentError(absl::StrCat("plan '", program_.plan_id, "' has ",
                                                   program_.kernels, " kernels, got ",
                                                   objects.size(), " objects"));
  }
  for (int i = 0; i < program_.kernels; ++i) {
    if (plan.kernels(i).library_call()) {
      kernels_.push_back(nullptr);
      continue;
    }
    auto kernel = device_->LoadKernel(objects[i]);
    if (!kernel.ok()) return InKernel(plan, i, kernel.status());
    kernels_.push_back(*std::move(kernel));
  }
  for (const Program::Step& step : program_.run) {
    if (step.call < 0) continue;
    std::vector<LibraryCall>& ways = program_.calls[step.call].ways;
    absl::Status status = CompleteCall(objects[step.kernel], &ways);
    for (size_t w = 0; w < ways.size() && status.ok(); ++w) status = device_->CheckCall(ways[w]);
    if (!status.ok()) return InStep(step.label, InKernel(plan, step.kernel, status));
  }
  return absl::OkStatus();
}

void* Executable::FixedAddress(const Program::Buffer& buffer) const {
  return buffer.kind == v1::Buffer::PARAMETER ? weights_.data(buffer.place)
                                              : fixed_.data(buffer.place);
}

absl::Status Executable::Prepare(DeviceQueue& queue) {
  if (!host_memory_) return RecordPrepared(queue);
  for (const int index : fixed_.steps()) {
    const Program::Step& step = program_.prepare[index];
    std::vector<void*> buffers;
    std::vector<int64_t> bytes, sizes;
    for (int i = 0; i < step.buffers; ++i) {
      const Program::Buffer& buffer = program_.buffers[program_.buffer_refs[step.first_buffer + i]];
      buffers.push_back(FixedAddress(buffer));
      bytes.push_back(program_.sizes.range(buffer.bytes_size).min);
    }
    for (int i = 0; i < step.sizes; ++i) {
      const int id = program_.size_refs[step.first_size + i];
      sizes.push_back(program_.sizes.range(id).min);
    }
    const int64_t grid = program_.sizes.range(step.grid_size).min;
    if (grid <= 0) continue;
    KernelError error;
    // Always shares the launch out, whatever work the plan declares: loading is not urgent.
    absl::Status status =
        queue.Launch(*kernels_[step.kernel], {.buffers = buffers,
                                              .bytes = bytes,
                                              .sizes = sizes,
                                              .grid = grid,
                                              .team = step.team,
                                              .work = std::numeric_limits<int64_t>::max(),
                                              .error = &error});
    // The launch reads the tables above until it is over.
    if (absl::Status waited = queue.Wait(); status.ok()) status = waited;
    if (!status.ok()) return InStep(step.label, status);
    if (error.code != 0) return OutOfRange(step.label, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Executable::Context>> Executable::NewContext(
    const StateMemory* states) const {
  std::unique_ptr<Context> context(new Context(shared_from_this(), states));
  absl::Status status = context->Allocate();
  if (!status.ok()) return status;
  return context;
}

absl::Status Executable::CheckDims(absl::Span<const int64_t> dims) const {
  const std::vector<SizeDim>& ranges = program_.sizes.dims();
  if (dims.size() != ranges.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", dims.size(), " dims, plan '",
                                                   program_.plan_id, "' has ", ranges.size()));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < ranges[i].min || dims[i] > ranges[i].max) {
      return absl::InvalidArgumentError(absl::StrCat("dim '", ranges[i].name, "' is ", dims[i],
                                                     ", plan '", program_.plan_id, "' serves ",
                                                     ranges[i].min, "..", ranges[i].max));
    }
  }
  return absl::OkStatus();
}

Executable::Shape Executable::ShapeOf(const Program::Buffer& buffer,
                                      absl::Span<const int64_t> dims) const {
  Shape shape;
  for (const int size : buffer.shape_sizes) {
    shape.push_back(program_.sizes.EvaluateOne(size, dims));
  }
  return shape;
}

absl::Status Executable::CheckTensors(const Context& context,
                                      absl::Span<const absl::string_view> inputs,
                                      absl::Span<const absl::Span<char>> outputs) const {
  if (inputs.size() != program_.inputs.size() || outputs.size() != program_.outputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", inputs.size(), " inputs and ", outputs.size(), " outputs, plan '", program_.plan_id,
        "' has ", program_.inputs.size(), " and ", program_.outputs.size()));
  }
  const auto wrong = [](absl::string_view what, const std::string& name, size_t bytes,
                        int64_t expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " '", name, "' has ", bytes, " bytes, expected ", expected));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t expected = context.BytesOf(program_.inputs[i]);
    if (static_cast<int64_t>(inputs[i].size()) != expected) {
      return wrong("input", input_name(i), inputs[i].size(), expected);
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t expected = context.BytesOf(program_.outputs[i].buffer);
    if (static_cast<int64_t>(outputs[i].size()) != expected) {
      return wrong("output", output_name(i), outputs[i].size(), expected);
    }
  }
  return absl::OkStatus();
}

absl::Status Executable::Run(Context* context, absl::Span<const int64_t> dims,
                             absl::Span<const absl::string_view> inputs,
                             absl::Span<const absl::Span<char>> outputs,
                             const RunOptions& options) const {
  RETURN_IF_ERROR(CheckDims(dims));
  RETURN_IF_ERROR(context->BindSizes(dims));
  RETURN_IF_ERROR(CheckTensors(*context, inputs, outputs));
  RETURN_IF_ERROR(CheckSteps(options));
  context->replayed_ = nullptr;
  context->replays_ = 0;
  absl::Status status = RunSteps(*context, inputs, outputs, options);
  // What is queued uses the caller's memory, so an error waits for it, too.
  const absl::Status waited = context->Wait();
  if (status.ok()) status = waited;
  if (status.ok() && !host_memory_ && !options.resident) {
    context->NoteErrors();
    context->TakeOutputs(outputs);
  }
  if (status.ok()) status = KernelErrors(*context);
  if (options.device_seconds != nullptr) {
    options.device_seconds->reset();
    if (status.ok() && context->replays_ == 1) {
      ASSIGN_OR_RETURN(*options.device_seconds, context->ReplayedSeconds());
    }
  }
  context->brought_ = status.ok() && (context->brought_ || !options.resident);
  return status;
}

int64_t Executable::EndOf(const RunOptions& options) const {
  return options.steps < 0 ? steps() : int64_t{options.first_step} + options.steps;
}

absl::Status Executable::CheckSteps(const RunOptions& options) const {
  const bool timed = !options.step_nanoseconds.empty();
  if (timed && options.step_nanoseconds.size() != program_.run.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("step_nanoseconds has ", options.step_nanoseconds.size(), " elements for ",
                     program_.run.size(), " steps"));
  }
  const int64_t first = options.first_step, end = EndOf(options);
  if (first < 0 || first > end || end > steps()) {
    return absl::InvalidArgumentError(absl::StrCat("steps ", first, " to ", end, " of ", steps()));
  }
  for (const int loop : program_.outer_loops) {
    const Program::Loop& l = program_.loops[loop];
    if (l.first < end && l.end > first && (l.first < first || l.end > end)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "steps ", first, " to ", end, " cut the loop of steps ", l.first, " to ", l.end));
    }
  }
  return absl::OkStatus();
}

absl::Status Executable::RunSteps(Context& context, absl::Span<const absl::string_view> inputs,
                                  absl::Span<const absl::Span<char>> outputs,
                                  const RunOptions& options) const {
  RETURN_IF_ERROR(context.BindTensors(inputs, outputs, options.resident));
  const int64_t first = options.first_step, end = EndOf(options);
  if (!options.step_nanoseconds.empty()) {
    std::fill(options.step_nanoseconds.begin() + first, options.step_nanoseconds.begin() + end, 0);
  }
  if (options_.poison) RETURN_IF_ERROR(context.Poison());
  RETURN_IF_ERROR(RunSpan(context, options, program_.outer_loops, first, end));
  return options.resident && !host_memory_ ? absl::OkStatus() : context.CopyOut(outputs);
}

absl::Status Executable::RunSpan(Context& context, const RunOptions& options,
                                 absl::Span<const int> loops, int64_t first, int64_t end) const {
  size_t next = 0;
  for (int64_t i = first; i < end;) {
    while (next < loops.size() && program_.loops[loops[next]].first < i) ++next;
    const int64_t straight =
        next < loops.size() ? std::min<int64_t>(program_.loops[loops[next]].first, end) : end;
    if (straight == i) {
      RETURN_IF_ERROR(RunLoop(context, options, loops[next]));
      i = program_.loops[loops[next]].end;
    } else {
      const int64_t until = host_memory_ || StepByStep(options) ? i + 1 : straight;
      RETURN_IF_ERROR(RunStraight(context, options, i, until));
      i = until;
    }
  }
  return absl::OkStatus();
}

absl::Status Executable::RunLoop(Context& context, const RunOptions& options, int index) const {
  const Program::Loop& loop = program_.loops[index];
  const int64_t count = context.values_[loop.count_size];
  // A loop without iterations returns its initial states.
  for (const Program::Loop::Carry& carry : loop.carries) {
    if (count > 0) continue;
    RETURN_IF_ERROR(context.queue_->Copy(context.DeviceAddress(carry.last),
                                         context.DeviceAddress(carry.initial),
                                         context.BytesOf(carry.last), CopyKind::kOnDevice));
  }
  for (int64_t turn = 0; turn < count; ++turn) {
    RETURN_IF_ERROR(context.MoveWindows(index, turn));
    RETURN_IF_ERROR(RunSpan(context, options, loop.inside, loop.first, loop.end));
    if (!host_memory_) continue;
    // The next iteration changes the table.
    RETURN_IF_ERROR(context.queue_->Wait());
    for (int i = loop.first; i < loop.end; ++i) {
      if (context.errors_[i].code != 0) return KernelErrors(context);
    }
  }
  return absl::OkStatus();
}

absl::Status Executable::RunStraight(Context& context, const RunOptions& options, int64_t first,
                                     int64_t end) const {
  RETURN_IF_ERROR(Interrupted(options, first));
  const bool timed = !options.step_nanoseconds.empty(), one_thread = options.check != nullptr;
  const std::string& label = program_.run[first].label;
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point();
  absl::Status status =
      host_memory_ ? Launch(context, first, one_thread) : context.Replay(first, end, one_thread);
  if (timed && status.ok()) {
    status = context.Wait();
    const int64_t took = std::chrono::nanoseconds(Clock::now() - start).count();
    std::optional<double> seconds;
    if (status.ok()) {
      ASSIGN_OR_RETURN(seconds, context.ReplayedSeconds());
    }
    options.step_nanoseconds[first] += seconds.has_value() ? std::llround(1e9 * *seconds) : took;
  }
  if (!status.ok()) return end == first + 1 ? InStep(label, status) : status;
  return options.check != nullptr ? Check(context, options, first) : absl::OkStatus();
}

absl::Status Executable::Launch(Context& context, int64_t i, bool one_thread) const {
  const Program::Step& step = program_.run[i];
  const int64_t grid = context.values_[step.grid_size];
  if (grid <= 0) return absl::OkStatus();
  return context.queue_->Launch(
      *kernels_[step.kernel],
      {.buffers = absl::MakeConstSpan(context.table_).subspan(step.first_buffer, step.buffers),
       .bytes = absl::MakeConstSpan(context.bytes_table_).subspan(step.first_buffer, step.buffers),
       .sizes = absl::MakeConstSpan(context.size_table_).subspan(step.first_size, step.sizes),
       .grid = grid,
       .team = step.team,
       .work = Work(context, step),
       .one_thread = one_thread,
       .error = &context.errors_[i]});
}

int64_t Executable::Work(const Context& context, const Program::Step& step) {
  int64_t work = 0;
  if (__builtin_add_overflow(context.values_[step.flops_size], context.values_[step.moved_size],
                             &work)) {
    return std::numeric_limits<int64_t>::max();
  }
  return work;
}

absl::Status Executable::Interrupted(const RunOptions& options, int step) const {
  const auto where = [&] {
    return absl::StrCat("before step ", step + 1, " of ", program_.run.size(), " '",
                        program_.run[step].label, "'");
  };
  if (options.cancelled != nullptr && options.cancelled->load(std::memory_order_relaxed)) {
    return absl::CancelledError(absl::StrCat("cancelled ", where()));
  }
  if (options.deadline != Clock::time_point::max() && Clock::now() >= options.deadline) {
    return absl::DeadlineExceededError(absl::StrCat("deadline passed ", where()));
  }
  return absl::OkStatus();
}

absl::Status Executable::Check(Context& context, const RunOptions& options, int index) const {
  const Program::Step& step = program_.run[index];
  if (!host_memory_) RETURN_IF_ERROR(context.block_->CopyOut(*context.queue_));
  if (absl::Status status = context.Wait(); !status.ok()) return InStep(step.label, status);
  if (!host_memory_) context.NoteErrors();
  if (context.errors_[index].code != 0) {
    return OutOfRange(step.label, context.errors_[index]);
  }
  StepView view{index, step.label, context.values_[step.grid_size], {}};
  std::vector<std::string> copies(host_memory_ ? 0 : step.buffers);  // for the view to point to
  for (int i = 0; i < step.buffers; ++i) {
    const int buffer_index = program_.buffer_refs[step.first_buffer + i];
    const Program::Buffer& buffer = program_.buffers[buffer_index];
    const int64_t bytes = context.BytesOf(buffer_index);
    const void* data = context.DeviceAddress(buffer_index);
    if (!host_memory_) {
      copies[i].resize(bytes);
      RETURN_IF_ERROR(context.queue_->Copy(copies[i].data(), data, bytes, CopyKind::kToHost));
      RETURN_IF_ERROR(context.queue_->Wait());
      data = copies[i].data();
    }
    view.buffers.push_back({buffer_index, buffer.name, buffer.dtype, ShapeOf(buffer, context.dims_),
                            absl::string_view(static_cast<const char*>(data), bytes)});
  }
  return (*options.check)(view);
}

absl::Status Executable::KernelErrors(const Context& context) const {
  for (size_t i = 0; i < context.errors_.size(); ++i) {
    if (context.errors_[i].code != 0) {
      return OutOfRange(program_.run[i].label, context.errors_[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace athanor
