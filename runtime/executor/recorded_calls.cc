// Calls devices whose kernels do not read host memory: arguments, inputs and outputs go through a
// CallBlock, and steps between loops are recorded once and replayed.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"

namespace athanor {
namespace {

std::vector<CallBlock::Launch> LaunchesOf(absl::Span<const Program::Step> steps) {
  std::vector<CallBlock::Launch> launches;
  launches.reserve(steps.size());
  for (const Program::Step& step : steps) launches.push_back({step.buffers, step.sizes});
  return launches;
}

void Write(const Program& program, const Program::Step& step, const ArgumentWords& arguments,
           absl::FunctionRef<void*(int buffer)> address, absl::FunctionRef<int64_t(int id)> size) {
  for (int i = 0; i < step.buffers; ++i) {
    const int buffer = program.buffer_refs[step.first_buffer + i];
    arguments.address(i) = reinterpret_cast<int64_t>(address(buffer));
    arguments.bytes(i) = size(program.buffers[buffer].bytes_size);
  }
  for (int i = 0; i < step.sizes; ++i) {
    arguments.size(i) = size(program.size_refs[step.first_size + i]);
  }
  arguments.items() = size(step.grid_size);
}

}  // namespace

RecordedLaunch Executable::LaunchOf(const Program::Step& step, int level,
                                    RecordedLaunch launch) const {
  if (step.call >= 0) {
    launch.call = &program_.calls[step.call].at(level);
  } else {
    launch.kernel = kernels_[step.kernel].get();
  }
  launch.most_items = program_.sizes.range(step.grid_size).max;
  launch.team = step.team;
  return launch;
}

absl::Status Executable::RecordPrepared(DeviceQueue& queue) {
  std::vector<Program::Step> steps;
  for (const int index : fixed_.steps()) steps.push_back(program_.prepare[index]);
  if (steps.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<CallBlock> block,
                   CallBlock::Create(*device_, queue, LaunchesOf(steps), {}, options_.ledger,
                                     options_.host_ledger));
  const auto address = [&](int buffer) { return FixedAddress(program_.buffers[buffer]); };
  const auto size = [&](int id) { return program_.sizes.range(id).min; };
  for (size_t i = 0; i < steps.size(); ++i) {
    Write(program_, steps[i], block->arguments(i), address, size);
  }
  const auto run = [&]() -> absl::Status {
    RETURN_IF_ERROR(block->CopyIn(queue));
    for (size_t i = 0; i < steps.size(); ++i) {
      if (size(steps[i].grid_size) <= 0) continue;
      const auto recording = queue.Record({LaunchOf(steps[i], /*level=*/0, block->Recorded(i))});
      absl::Status status = recording.ok() ? queue.Replay(**recording) : recording.status();
      // Waits for each, so that an error tells its step.
      if (absl::Status waited = queue.Wait(); status.ok()) status = waited;
      if (!status.ok()) return InStep(steps[i].label, status);
    }
    RETURN_IF_ERROR(block->CopyOut(queue));
    return queue.Wait();
  };
  if (absl::Status status = run(); !status.ok()) {
    // Waits after an error too: what is queued uses the block.
    queue.Wait().IgnoreError();
    return status;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (block->Error(i).code != 0) return OutOfRange(steps[i].label, block->Error(i));
  }
  return absl::OkStatus();
}

absl::Status Executable::Record(Context* context, const RunOptions& options) const {
  RETURN_IF_ERROR(CheckSteps(options));
  if (host_memory_) return absl::OkStatus();
  const int64_t first = options.first_step, end = EndOf(options);
  if (!StepByStep(options)) return context->RecordSpan(program_.outer_loops, first, end);
  for (int64_t i = first; i < end; ++i) {
    RETURN_IF_ERROR(context->RecordLevels(i, i + 1, options.check != nullptr));
  }
  return absl::OkStatus();
}

absl::Status Executable::Context::AllocateBlock() {
  const Program& program = executable_->program_;
  CallBlock::Limits limits;
  for (const auto& [staged, most] :
       {std::pair(&in_block_, &limits.most_in), std::pair(&out_of_block_, &limits.most_out)}) {
    for (const Staged& s : *staged) {
      const SizeRange range = program.sizes.range(program.buffers[s.buffer].bytes_size);
      *most += CallBlock::Aligned(std::max<int64_t>(0, range.max));
    }
  }
  in_loop_.resize(program.run.size());
  for (const Program::Loop& loop : program.loops) {
    std::fill(in_loop_.begin() + loop.first, in_loop_.begin() + loop.end, true);
    limits.most_of_turn = std::max(limits.most_of_turn, loop.end - loop.first);
  }
  ASSIGN_OR_RETURN(
      block_, CallBlock::Create(*executable_->device_, *queue_, LaunchesOf(program.run), limits,
                                executable_->options_.ledger, executable_->options_.host_ledger));
  words_.resize(program.buffer_refs.size());
  for (size_t s = 0; s < program.run.size(); ++s) {
    const Program::Step& step = program.run[s];
    for (int i = 0; i < step.buffers; ++i) {
      words_[step.first_buffer + i] = &block_->arguments(s).address(i);
    }
  }
  return absl::OkStatus();
}

bool Executable::Context::IsInBlock(int buffer) const {
  return std::any_of(out_of_block_.begin(), out_of_block_.end(),
                     [&](const Staged& staged) { return staged.buffer == buffer; });
}

void Executable::Context::WriteArguments() {
  // Tensors lie side by side, however large they may be at other sizes.
  const auto place = [&](std::vector<Staged>& staged) {
    int64_t end = 0;
    for (Staged& s : staged) {
      s.offset = end;
      end = CallBlock::Aligned(end + BytesOf(s.buffer));
    }
    return end;
  };
  const int64_t in = place(in_block_), out = place(out_of_block_);
  block_->Resize(in, out);
  for (const Staged& s : in_block_) addresses_[s.buffer] = block_->in_on_device(s.offset);
  for (const Staged& s : out_of_block_) addresses_[s.buffer] = block_->out_on_device(s.offset);
  const Program& program = executable_->program_;
  for (size_t s = 0; s < program.run.size(); ++s) {
    Write(
        program, program.run[s], block_->arguments(s),
        [&](int buffer) { return DeviceAddress(buffer); }, [&](int id) { return values_[id]; });
  }
}

absl::Status Executable::Context::BringInputs(absl::Span<const absl::string_view> inputs) {
  const Program& program = executable_->program_;
  size_t next = 0;  // in_block_ has inputs in their order
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int buffer = program.inputs[i];
    if (next < in_block_.size() && in_block_[next].buffer == buffer) {
      if (!inputs[i].empty()) {
        std::memcpy(block_->in(in_block_[next].offset), inputs[i].data(), inputs[i].size());
      }
      ++next;
    } else {
      RETURN_IF_ERROR(queue_->Copy(DeviceAddress(buffer), inputs[i].data(), BytesOf(buffer),
                                   CopyKind::kToDevice));
    }
  }
  return block_->CopyIn(*queue_);
}

absl::Status Executable::Context::RecordSpan(absl::Span<const int> loops, int64_t first,
                                             int64_t end) {
  const Program& program = executable_->program_;
  for (const int index : loops) {
    const Program::Loop& loop = program.loops[index];
    if (loop.first < first || loop.end > end) continue;
    if (loop.first > first) RETURN_IF_ERROR(RecordLevels(first, loop.first));
    RETURN_IF_ERROR(RecordSpan(loop.inside, loop.first, loop.end));
    first = loop.end;
  }
  return first < end ? RecordLevels(first, end) : absl::OkStatus();
}

absl::Status Executable::Context::RecordLevels(int64_t first, int64_t end, bool one_thread) {
  const int most = LevelOf(first, end, executable_->program_.levels - 1);
  for (int level = 0; level <= most; ++level) {
    RETURN_IF_ERROR(Recorded({first, end, one_thread, level}).status());
  }
  return absl::OkStatus();
}

int Executable::Context::LevelNow() const {
  int level = 0;
  for (const Program::Call& call : executable_->program_.calls) {
    if (call.ways.size() == 1) continue;
    // The last way has enough rows for all sizes (CheckedCall).
    while (call.ways[level].rows < values_[call.rows_size]) ++level;
  }
  return level;
}

int Executable::Context::LevelOf(int64_t first, int64_t end, int level) const {
  const Program& program = executable_->program_;
  for (int64_t s = first; s < end && program.levels > 1; ++s) {
    const int call = program.run[s].call;
    if (call >= 0 && program.calls[call].ways.size() > 1) return level;
  }
  return 0;
}

LibraryBuffers Executable::Context::CallBuffersOf(const Program::Step& step, int level) const {
  const Program& program = executable_->program_;
  const LibraryCall& call = program.calls[step.call].at(level);
  int next = step.first_buffer;
  const auto address = [&] { return DeviceAddress(program.buffer_refs[next++]); };
  LibraryBuffers buffers;
  buffers.result = address();
  buffers.left = address();
  buffers.right = address();
  if (call.bias) buffers.bias = address();
  if (call.workspace_bytes > 0) buffers.workspace = address();
  return buffers;
}

absl::StatusOr<const DeviceRecording*> Executable::Context::Recorded(const Span& span) {
  if (const auto found = recordings_.find(span); found != recordings_.end()) {
    return found->second.get();
  }
  const auto [first, end, one_thread, level] = span;
  std::vector<RecordedLaunch> launches;
  for (int64_t s = first; s < end; ++s) {
    RecordedLaunch launch =
        executable_->LaunchOf(executable_->program_.run[s], level, block_->Recorded(s));
    launch.one_thread = one_thread;
    if (launch.call != nullptr) {
      launch.call_buffers = CallBuffersOf(executable_->program_.run[s], level);
      launch.label = executable_->program_.run[s].label;
    }
    if (launch.most_items > 0) launches.push_back(launch);
  }
  std::unique_ptr<DeviceRecording> recording;
  if (!launches.empty()) {
    ASSIGN_OR_RETURN(recording, queue_->Record(launches));
    recorded_launches_ += std::ssize(launches);
  }
  return recordings_.emplace(span, std::move(recording)).first->second.get();
}

void Executable::Context::LimitRecordings(int64_t launches) {
  if (recorded_launches_ <= launches) return;
  recordings_.clear();
  replayed_ = nullptr;
  recorded_launches_ = 0;
}

absl::Status Executable::Context::Replay(int64_t first, int64_t end, bool one_thread) {
  ASSIGN_OR_RETURN(const DeviceRecording* const recording,
                   Recorded({first, end, one_thread, LevelOf(first, end, level_)}));
  replayed_ = recording;
  ++replays_;
  if (!in_loop_[first]) return recording ? queue_->Replay(*recording) : absl::OkStatus();
  RETURN_IF_ERROR(MakeRoom());
  RETURN_IF_ERROR(block_->SendTurn(*queue_, first, end));
  if (recording != nullptr) RETURN_IF_ERROR(queue_->Replay(*recording));
  return block_->FetchTurn(*queue_);
}

absl::StatusOr<std::optional<double>> Executable::Context::ReplayedSeconds() const {
  if (replayed_ == nullptr) return std::nullopt;
  return replayed_->Seconds();
}

absl::Status Executable::Context::MakeRoom() {
  if (!block_->Full()) return absl::OkStatus();
  RETURN_IF_ERROR(Wait());
  if (!turn_failed_) return absl::OkStatus();
  // The host ran ahead of the error. A step before the loop may have failed first.
  RETURN_IF_ERROR(block_->CopyOut(*queue_));
  RETURN_IF_ERROR(Wait());
  NoteErrors();
  return executable_->KernelErrors(*this);
}

void Executable::Context::SettleTurns(bool finished) {
  block_->Settle([&](int step, const KernelError& error) {
    // Only the first counts: what ran after it had other values.
    if (!finished || turn_failed_) return;
    turn_failed_ = true;
    errors_[step] = error;
  });
}

void Executable::Context::NoteErrors() {
  for (size_t s = 0; s < errors_.size(); ++s) {
    if (!in_loop_[s]) errors_[s] = block_->Error(s);
  }
}

void Executable::Context::TakeOutputs(absl::Span<const absl::Span<char>> outputs) const {
  const Program& program = executable_->program_;
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const Staged& staged : out_of_block_) {
      if (staged.buffer != program.outputs[i].buffer || outputs[i].empty()) continue;
      std::memcpy(outputs[i].data(), block_->out(staged.offset), outputs[i].size());
    }
  }
}

}  // namespace athanor
