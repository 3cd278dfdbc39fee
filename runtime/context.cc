#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor.h"

namespace athanor {

Executable::Context::Context(std::shared_ptr<const Executable> executable)
    : executable_(std::move(executable)),
      arena_charge_(executable_->options_.ledger, MemoryKind::kArena),
      scratch_charge_(executable_->options_.ledger, MemoryKind::kScratch) {}

Executable::Context::~Context() = default;

absl::Status Executable::Context::Allocate() {
  const Program& program = executable_->program_;
  Device& device = *executable_->device_;
  RETURN_IF_ERROR(scratch_charge_.Raise(device.ScratchBytes(program.scratch_bytes)));
  ASSIGN_OR_RETURN(queue_, device.NewQueue(program.scratch_bytes));
  ASSIGN_OR_RETURN(arena_, device.Allocate(MemoryKind::kArena, program.arena_bytes));
  dims_.resize(program.sizes.dims().size());
  values_.resize(program.sizes.size());
  size_table_.resize(program.size_refs.size());
  errors_.resize(program.run.size());
  windows_.resize(program.buffers.size());
  turns_.resize(program.loops.size());
  FillTable();
  return absl::OkStatus();
}

void Executable::Context::FillTable() {
  const Program& program = executable_->program_;
  table_.resize(program.buffer_refs.size());
  bytes_table_.resize(program.buffer_refs.size());
  for (size_t i = 0; i < table_.size(); ++i) {
    const int index = program.buffer_refs[i];
    const Program::Buffer& buffer = program.buffers[index];
    const Patch patch{static_cast<int>(i), static_cast<int>(buffer.place)};
    if (buffer.kind == v1::Buffer::INPUT) {
      input_patches_.push_back(patch);
    } else if (buffer.kind == v1::Buffer::OUTPUT) {
      output_patches_.push_back(patch);
    } else if (buffer.kind != v1::Buffer::WINDOW) {  // windows move
      table_[i] = AddressOf(index);
    }
  }
}

void* Executable::Context::AddressOf(int index) const {
  const Program::Buffer& buffer = executable_->program_.buffers[index];
  switch (buffer.kind) {
    case v1::Buffer::INPUT:
      return const_cast<char*>(inputs_[buffer.place].data());
    case v1::Buffer::OUTPUT:
      return outputs_[buffer.place].data();
    case v1::Buffer::ARENA:
      return static_cast<char*>(arena_->data()) + buffer.place;
    case v1::Buffer::WINDOW:
      return windows_[index];
    default:
      return executable_->FixedAddress(buffer);
  }
}

void Executable::Context::MoveWindows(int index, int64_t turn) {
  const Program::Loop& loop = executable_->program_.loops[index];
  const int64_t count = values_[loop.count_size];
  const auto at = [&](int buffer) { return static_cast<char*>(AddressOf(buffer)); };
  for (const Program::Loop::Slice& slice : loop.slices) {
    const int64_t number = slice.reverse ? count - 1 - turn : turn;
    windows_[slice.buffer] = at(slice.of) + number * BytesOf(slice.buffer);
  }
  for (const Program::Loop::Carry& carry : loop.carries) {
    // Iterations write two buffers alternately, so none overwrites what it reads. Counting from
    // the end puts the last result into `last`.
    const bool last = (count - 1 - turn) % 2 == 0;
    windows_[carry.next] = at(last ? carry.last : carry.other);
    windows_[carry.read] = turn == 0 ? at(carry.initial) : at(last ? carry.other : carry.last);
  }
  turns_[index] = turn;
  if (loop.turn >= 0) windows_[loop.turn] = &turns_[index];
  for (const Program::Loop::Use& use : loop.uses) table_[use.position] = windows_[use.buffer];
}

void Executable::Context::BindTensors(absl::Span<const absl::string_view> inputs,
                                      absl::Span<const absl::Span<char>> outputs) {
  inputs_ = inputs;
  outputs_ = outputs;
  for (const Patch& patch : input_patches_) {
    table_[patch.position] = const_cast<char*>(inputs[patch.place].data());
  }
  for (const Patch& patch : output_patches_) {
    table_[patch.position] = outputs[patch.place].data();
  }
  std::fill(errors_.begin(), errors_.end(), KernelError());
}

int64_t Executable::Context::BytesOf(int index) const {
  return values_[executable_->program_.buffers[index].bytes_size];
}

absl::Status Executable::Context::BindSizes(absl::Span<const int64_t> dims) {
  // Sizes equal to those of the call before need no evaluation.
  if (bound_ && std::equal(dims.begin(), dims.end(), dims_.begin())) {
    return absl::OkStatus();
  }
  bound_ = false;
  const Program& program = executable_->program_;
  program.sizes.Evaluate(dims, absl::MakeSpan(values_));
  RETURN_IF_ERROR(CheckSizes());
  RETURN_IF_ERROR(arena_charge_.Raise(TouchedArenaBytes()));
  for (size_t i = 0; i < bytes_table_.size(); ++i) {
    bytes_table_[i] = BytesOf(program.buffer_refs[i]);
  }
  for (size_t i = 0; i < size_table_.size(); ++i) {
    size_table_[i] = values_[program.size_refs[i]];
  }
  std::copy(dims.begin(), dims.end(), dims_.begin());
  bound_ = true;
  return absl::OkStatus();
}

// The plan comes from outside this layer: a wrong one may fail a call, but must never write outside
// the arena.
absl::Status Executable::Context::CheckSizes() const {
  const Program& program = executable_->program_;
  const auto broken = [&](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat("plan '", program.plan_id, "': ", what));
  };
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const int64_t bytes = BytesOf(i);
    if (bytes < 0) {
      return broken(absl::StrCat("buffer ", i, " has ", bytes, " bytes"));
    }
    if (program.buffers[i].kind == v1::Buffer::ARENA &&
        bytes > program.arena_bytes - program.buffers[i].place) {
      return broken(absl::StrCat("buffer ", i, " of ", bytes, " bytes at ",
                                 program.buffers[i].place, " leaves the arena of ",
                                 program.arena_bytes));
    }
  }
  for (const Program::Step& step : program.run) {
    if (values_[step.grid_size] < 0) {
      return broken(
          absl::StrCat("step '", step.label, "' has a grid of ", values_[step.grid_size]));
    }
  }
  return CheckLoops();
}

absl::Status Executable::Context::CheckLoops() const {
  const Program& program = executable_->program_;
  for (size_t l = 0; l < program.loops.size(); ++l) {
    const Program::Loop& loop = program.loops[l];
    const auto broken = [&](absl::string_view what) {
      return absl::FailedPreconditionError(
          absl::StrCat("plan '", program.plan_id, "': loop ", l, " ", what));
    };
    const int64_t count = values_[loop.count_size];
    if (count < 0) return broken(absl::StrCat("has ", count, " turns"));
    for (const Program::Loop::Slice& slice : loop.slices) {
      int64_t bytes = 0;
      // The slices must cover the buffer exactly, so that none lies outside.
      if (__builtin_mul_overflow(count, BytesOf(slice.buffer), &bytes) ||
          bytes != BytesOf(slice.of)) {
        return broken(absl::StrCat("has ", count, " slices of ", BytesOf(slice.buffer),
                                   " bytes in buffer ", slice.of, " of ", BytesOf(slice.of)));
      }
    }
    for (const Program::Loop::Carry& carry : loop.carries) {
      for (const int buffer : {carry.initial, carry.read, carry.next, carry.other}) {
        if (BytesOf(buffer) == BytesOf(carry.last)) continue;
        return broken(absl::StrCat("carries ", BytesOf(carry.last), " bytes through buffer ",
                                   buffer, " of ", BytesOf(buffer)));
      }
    }
    if (loop.turn >= 0 && BytesOf(loop.turn) != static_cast<int64_t>(sizeof(int64_t))) {
      return broken(
          absl::StrCat("stores its iteration number in ", BytesOf(loop.turn), " bytes, not 8"));
    }
  }
  return absl::OkStatus();
}

int64_t Executable::Context::TouchedArenaBytes() const {
  const Program& program = executable_->program_;
  const int64_t page = arena_->granularity();
  // Buffers share memory at different times, so they overlap. Sorted by offset, each page is
  // counted once.
  int64_t touched = 0, end = 0;  // pages below `end` are counted
  for (const int index : program.arena_buffers) {
    const int64_t bytes = BytesOf(index);
    if (bytes == 0) continue;
    const int64_t place = program.buffers[index].place;
    const int64_t first = std::max(end, place / page * page);
    const int64_t last = (place + bytes + page - 1) / page * page;
    if (last <= first) continue;
    touched += last - first;
    end = last;
  }
  return touched;
}

absl::Status Executable::Context::Poison() {
  for (const int index : executable_->program_.arena_buffers) {
    // All bits set is a NaN in each float type, and -1 in integers.
    RETURN_IF_ERROR(queue_->Fill(AddressOf(index), 0xFF, BytesOf(index)));
  }
  return absl::OkStatus();
}

absl::Status Executable::Context::CopyOut() {
  const std::vector<Program::Output>& outputs = executable_->program_.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].copied) continue;
    RETURN_IF_ERROR(queue_->Copy(outputs_[i].data(), AddressOf(outputs[i].buffer),
                                 BytesOf(outputs[i].buffer), CopyKind::kToHost));
  }
  return absl::OkStatus();
}

void Executable::Context::Trim() {
  arena_->Decommit();
  arena_charge_.Clear();
  bound_ = false;
}

}  // namespace athanor
